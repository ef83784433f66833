"""Freezing: all members of an ensemble as one plain graph for inference.

The data flow is read with an example, written into one graph (`lowering.py`), and compared with the members
at two sizes of batch. Where that fails, members run one after the other inside of a module, and a note says
why.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from pluribus.errors import ConversionError, InputError, UnreadableError
from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.factored_weights import Factors
from pluribus.mechanisms.graph.program import Signature
from pluribus.mechanisms.graph.prove import prove
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.code import LoweredCode
from pluribus.mechanisms.members.index import Fixed, Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.channels_last import LAST, put_channels_last
from pluribus.mechanisms.running.cut_flow import flow_of_cut
from pluribus.mechanisms.running.engines import run_slowly
from pluribus.mechanisms.running.explain import (
    Explanation,
    Saving,
    explain_one_pass,
    explain_steps,
    with_prior,
)
from pluribus.mechanisms.running.kinds import Kind, add_inputs, has_free_batch, made_up, takes_any_batch
from pluribus.mechanisms.running.lowering import NOMINAL, Flow, Lowered, lower
from pluribus.mechanisms.running.planner import planner_of
from pluribus.mechanisms.running.quick import QuickGraph
from pluribus.mechanisms.running.specialised import CutMembers, cut_members

PROOFS = (2, 1, 3)
"""Sizes of batch at which a graph is compared with the members: the first two that the members take. Code
that squeezes axes of size one fails by itself on one sample. They are small because all members run. The size
of the example, and twice that, come last."""
DRAWN = 1 << 30
"""Bytes of weights that are drawn for rows and may be stored: beyond, rows draw them in every call."""
FIXED_BATCH = (
    "the graph takes the example's size of batch alone, because the code makes a number of it, as len(x) "
    "does; x.shape[0] stays free"
)
"""The note of a graph whose batch is a number."""
DIFFERENT_WIDTHS = "they are cut out by their masks, to different widths"


@dataclass(frozen=True)
class Graphed:
    """A graph of all rows for one kind of inputs.

    Attributes:
        module: The graph.
        kind: The inputs that it takes.
        summary: What its rows share, for one sample.
        notes: What became part of what.
        quick: The graph as it runs; None until it is proved.
    """

    module: GraphModule
    kind: Kind
    summary: Explanation
    notes: tuple[str, ...]
    quick: QuickGraph | None = None


def freeze(members: AnyMembers, example: Inputs | None, memory: int | None = None) -> Graphed:
    """Return all rows as one graph for inputs of the example's kind.

    Args:
        members: Not changed.
        example: One input; made from the network where it is None.
        memory: The most bytes of activations for a batch of `NOMINAL` samples, as far as possible.

    Raises:
        UnreadableError: The data flow cannot be read, or computes something else than the members.
    """
    try:
        example = _example(members, example)
        if isinstance(members, WithPrior):
            return _proved(_freeze_rows(members, example, memory), members, example)
        if members.code.one_pass:
            return _proved(_freeze_exits(members, example, memory), members, example)
        if isinstance(members.code, MaskedCode):
            return _freeze_cut_or_masked(members, example, memory)
        return _proved(_freeze_rows(members, example, memory), members, example)
    except (ConversionError, InputError) as error:
        raise UnreadableError(str(error)) from error


def _freeze_cut_or_masked(members: Members, example: Inputs, memory: int | None) -> Graphed:
    """Return masked members, cut out if possible, else with their masks multiplied."""
    try:
        return _proved(_freeze_masked(members, example, memory), members, example)
    except (ConversionError, UnreadableError) as error:
        note = f"masks are multiplied, not cut out: {error}"
    made = _proved(_freeze_rows(members, example, memory), members, example)
    return replace(made, notes=(note, *made.notes))


def _proved(made: Graphed, members: AnyMembers, example: Inputs) -> Graphed:
    """Return a graph that computes what the members compute, and what runs; raise for any other.

    What runs is compared. It is the plain graph with the same numbers in less memory, so that an error of
    the plain graph is one of both.
    """
    device = next(example.tensors()).device
    quick = QuickGraph(made.module, made_up(made.kind, device), all(has_free_batch(made.kind)))
    for inputs, expected in _proofs(members, example, made.kind.signature):
        why = _why_wrong(quick, made.kind, inputs, expected)
        if why:
            raise UnreadableError(f"the graph differs from the members at a batch of {inputs.batch}: {why}")
    fixed = () if takes_any_batch(made.kind.signature) else (FIXED_BATCH,)
    return replace(made, quick=quick, notes=(*made.notes, *fixed))


def _example(members: AnyMembers, example: Inputs | None) -> Inputs:
    """Return an example of at least two samples, on the device of the members."""
    if example is None:
        example = example_of(members)
    held = next(iter([*members.parameters(), *members.buffers()]), None)
    if held is not None:
        example = example.to(held.device)
    return example.doubled() if example.batch == 1 else example.copy()


def example_of(members: AnyMembers) -> Inputs:
    """Return inputs made up from the members' network; raise `ConversionError` where none could be made."""
    row = members.index.pick([0])[0]
    module = materialise(members.code.caller.module, members.tensors.of_one(row))
    return Network(module, None, members.code.caller.output).example


def _freeze_rows(members: AnyMembers, example: Inputs, memory: int | None) -> Graphed:
    """Return members that run by a plan as one graph, their prior networks added."""
    learnt = members.learnt if isinstance(members, WithPrior) else members
    rows = tuple(members.index.rows(training=False))
    flow = _flow(learnt, rows, example)
    builder, kind, leaves = _begin(flow, learnt.code.forward, example)
    nominal = _sized(example, NOMINAL, flow.program.signature)
    lowered = lower(builder, flow, leaves, nominal, memory)
    output, notes = lowered.output, list(lowered.notes)
    draws = learnt.index.count_draws(rows)
    summary = _summary(lowered, flow, draws, nominal)
    if isinstance(members, WithPrior):
        fixed = _flow(members.prior, rows, example)
        prior = lower(builder, fixed, leaves, nominal, memory)
        output = builder.call(aten.add.Tensor, output, prior.output, alpha=members.scale)
        summary = with_prior(summary, _summary(prior, fixed, draws, nominal))
    return Graphed(builder.finish(output), kind, summary, tuple(notes))


def _summary(lowered: Lowered, flow: Flow, draws: int, nominal: Inputs) -> Explanation:
    """Return what rows that were written into a graph share, for one sample."""
    return explain_steps(lowered.plan, lowered.costs, nominal.batch, lowered.size, draws, flow.prefix)


def _freeze_exits(members: Members, example: Inputs, memory: int | None) -> Graphed:
    """Return the exits of a network, which one run gives, as one graph."""
    rows = tuple(members.index.rows(training=False))
    code, tensors = members.code.keep(members.tensors, rows, merge=True)
    kept = Members(members.index.keep(range(len(rows)), rows), tensors, code).eval()
    flow = _flow(kept, rows[:1], example)
    builder, kind, leaves = _begin(flow, members.code.forward, example)
    lowered = lower(builder, flow, leaves, _sized(example, NOMINAL, flow.program.signature), memory)
    # The program has one row, [1, batch, pairs, ...].
    outputs = builder.call(aten.transpose.int, _first_of(builder, lowered), 0, 1)
    summary = explain_one_pass(kept, rows, example.take(slice(0, 1)))
    return Graphed(builder.finish(outputs), kind, summary, lowered.notes)


def _first_of(builder: GraphBuilder, lowered: Lowered) -> Any:
    """Return the only row that was lowered, `[batch, ...]`."""
    output = lowered.output
    if isinstance(output, Node) and output.target is aten.unsqueeze.default:
        return output.args[0]
    return builder.call(aten.select.int, output, 0, 0)


def _freeze_masked(members: Members, example: Inputs, memory: int | None) -> Graphed:
    """Return masked members, cut out of their network, as one graph."""
    cut, notes = cut_members(members, example)
    flow = flow_of_cut(cut)
    nominal = _sized(example, NOMINAL, cut.signature)
    if flow is not None:
        builder, kind, leaves = _begin(flow, members.code.forward, example, own=True)
        lowered = lower(builder, flow, leaves, nominal, memory)
        summary = _summary(lowered, flow, len(cut.members), nominal)
        return Graphed(builder.finish(lowered.output), kind, summary, (*notes, *lowered.notes))
    # Members of different widths have nothing to run together but their trunk.
    if put_channels_last([cut.trunk, *cut.members]):
        notes.append(LAST)
    builder = GraphBuilder(own=True)
    kind, leaves = add_inputs(builder, cut.signature, members.code.forward, example)
    common = builder.run(cut.trunk, leaves)
    outputs = [cut.signature.predict(builder.run(member, common)) for member in cut.members]
    summary = _summary_of_cut(cut, example.take(slice(0, 1)))
    return Graphed(builder.finish(builder.call(aten.stack.default, outputs)), kind, summary, tuple(notes))


def _summary_of_cut(cut: CutMembers, one: Inputs) -> Explanation:
    """Return what members of different widths cost for one sample."""
    with torch.no_grad():
        with Meter() as trunk:
            common = cut.trunk(*cut.signature.flatten(one))
        members = 0
        for member in cut.members:
            with Meter() as meter:
                member(*common)
            members += meter.multiply_adds
    count = len(cut.members)
    work = Saving(trunk.multiply_adds + members, count * trunk.multiply_adds + members)
    return Explanation(count, DIFFERENT_WIDTHS, draws=count, multiply_adds=work)


def _flow(members: Members, rows: Sequence[Any], example: Inputs) -> Flow:
    """Return the data flow of members, as their planner read it.

    Raises:
        UnreadableError: It cannot be read, or more weights are drawn than may be stored.
    """
    reading = planner_of(members).read(rows[0], example)
    if reading.program is None or reading.code is None:
        raise UnreadableError(reading.reason)
    _check_drawn(members, reading.code, rows)
    return Flow(
        reading.program, reading.code.of, reading.code.keys, rows, reading.code.prefix, _factors(members)
    )


def _factors(members: Members) -> Factors | None:
    """Return the factors of members' weights; None where members are made of something else."""
    tensors = members.tensors
    if not isinstance(tensors, Products) or not (tensors.merge and tensors.scales):
        return None
    shared, changed = tensors.parts()[0], tensors.changed()
    outputs, inputs = tensors.factors().values()

    def of(row: int) -> dict[str, tuple[Tensor, Tensor]]:
        return {name: (outputs[name][row], inputs[name][row]) for name in changed}

    return Factors({name: shared[name] for name in changed}, of)


def _check_drawn(members: Members, code: LoweredCode, rows: Sequence[Any]) -> None:
    """Raise where the tensors that rows have for themselves take far more memory than what is stored."""
    if isinstance(members.tensors, Stacked):
        return
    tensors, distinct = next(iter(code.of(rows[:1]))), dict[str, set[Any]]()
    for row in rows:
        for name, key in code.keys(row).items():
            distinct.setdefault(name, set()).add(key)
    drawn = sum(len(keys) * tensors[name].nbytes for name, keys in distinct.items())
    if drawn > DRAWN:
        raise UnreadableError(
            f"the weights of {len(rows)} rows take {drawn:,} bytes, more than {DRAWN:,}, and are drawn in "
            "every call. Keep fewer rows with shrink"
        )


def _begin(
    flow: Flow, forward: Callable[..., Any], example: Inputs, own: bool = False
) -> tuple[GraphBuilder, Kind, list[Any]]:
    """Return an empty graph with its inputs, their kind, and all values of a call, inputs or plain.

    Args:
        flow: What will be written into the graph.
        forward: The network's, for the names of inputs.
        example: One input.
        own: Whether nobody else holds the tensors of the flow.
    """
    builder = GraphBuilder(own)
    kind, leaves = add_inputs(builder, flow.program.signature, forward, example)
    return builder, kind, leaves


def _sized(example: Inputs, batch: int, signature: Signature) -> Inputs:
    """Return a batch of that size made of the example; the example itself where its size is fixed."""
    if not takes_any_batch(signature):
        return example
    copies = -(-batch // example.batch)
    return example.map(lambda tensor: torch.cat([tensor] * copies)[:batch])


# Without gradients: a graph of them would keep the activations of every member, and its skeleton.
@torch.no_grad()
def _proofs(members: AnyMembers, example: Inputs, signature: Signature) -> list[tuple[Inputs, Tensor]]:
    """Return batches of two sizes with the outputs of the members, `[members, batch, ...]`.

    Where the network takes no other size, the example is the only batch.

    Raises:
        Exception: As the members, where they refuse all sizes but one.
    """
    rows = members.index.rows(training=False)
    if not takes_any_batch(signature):
        return [(example, run_slowly(members, rows, example.copy()))]
    found, refusal = list[tuple[Inputs, Tensor]](), None
    # Code may refuse few samples in any way, as that of a graph whose samples are nodes. It took the example.
    for size in dict.fromkeys((*PROOFS, example.batch, 2 * example.batch)):
        inputs = _sized(example, size, signature)
        try:
            if found:
                outputs = _outputs_of(members, rows, inputs, found[0][1])
            else:
                outputs = run_slowly(members, rows, inputs.copy())
        except Exception as error:
            refusal = error
            continue
        found.append((inputs, outputs))
        if len(found) == 2:
            return found
    assert refusal is not None
    raise refusal


def _why_wrong(quick: QuickGraph, kind: Kind, inputs: Inputs, expected: Tensor) -> str:
    """Return why a graph does not compute what the members compute; empty where it does."""
    given = kind.inputs(inputs)
    return prove(lambda: quick.forward(*given), lambda: expected)


def _outputs_of(members: AnyMembers, rows: Sequence[Any], inputs: Inputs, known: Tensor) -> Tensor:
    """Return the outputs of the members on a batch of another size.

    Members share their code. Where one of them computes for fewer samples what it computes for them among
    more, samples do not depend on one another, and the outputs of the others are known.

    Args:
        members: All members.
        rows: Those to run.
        inputs: The batch; if smaller, the first samples of the batch before.
        known: The outputs on the batch before, `[members, batch, ...]`.
    """
    learnt = members.learnt if isinstance(members, WithPrior) else members
    # A single row of a network with exits ends at its exit, and later layers may differ.
    if inputs.batch < known.shape[1] and not learnt.code.one_pass:
        part = known[:, : inputs.batch]
        alone = run_slowly(members, rows[:1], inputs.copy())
        if not prove(lambda: alone, lambda: part[:1]):
            return part
    return run_slowly(members, rows, inputs.copy())


def resolved(members: AnyMembers) -> AnyMembers:
    """Return a copy of the members for inference alone, as far as possible without a graph."""
    if isinstance(members, WithPrior):
        learnt, prior = resolved(members.learnt), resolved(members.prior)
        assert isinstance(learnt, Members)
        assert isinstance(prior, Members)
        return WithPrior(learnt, prior, members.scale)
    rows, code = members.index.rows(training=False), members.code
    if code.one_pass:
        code, tensors = code.keep(members.tensors, rows, merge=True)
        index = members.index.keep(range(len(rows)), rows)
    else:
        tensors, index = members.tensors.resolved(rows), copy.deepcopy(members.index)
        if isinstance(index, Seeds) and isinstance(tensors, Stacked) and tensors.parts()[1]:
            index = Fixed(len(rows))  # what the seeds stood for is stored in their order
    own = code.with_caller(Caller(code.caller.module, code.caller.output, code.caller.inside))
    frozen = Members(index.requires_grad_(False), tensors.requires_grad_(False), own, members.lowers)
    return frozen.eval()
