"""Networks that run again during backward, by the old form of gradient checkpointing."""

from torch import Tensor


def is_run_again(output: Tensor) -> bool:
    """Whether backward will run a part of the network again that ran without gradients."""
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return False
