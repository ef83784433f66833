"""Files of frozen ensembles, adapters, comparisons, exports, requests, searches and the testbed."""

import asyncio
import json
import random
from pathlib import Path

import pluribus as pl
from pluribus.cli.verification import verify
from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.refusal import FAILED, Refusal
from pluribus.serving.service import Service
from pluribus.testbed.results import read_results
from tests.fuzz import corpus
from tests.fuzz.damages import (
    bytes_damage,
    database_damage,
    example_damage,
    graph_damage,
    json_damage,
    lines_damage,
    rows_damage,
    settings_damage,
    tensors_damage,
    text_damage,
)
from tests.fuzz.limits import MOST_MESSAGE
from tests.fuzz.lines import run_line
from tests.fuzz.outcome import REFUSED, Case
from tests.fuzz.target import Target


def read_frozen(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(verify, folder)
    frozen = case.attempt(pl.load_frozen, folder)
    if frozen is not None:
        case.attempt(frozen.predict, corpus.inputs())


def read_adapter(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    found = case.attempt(
        pl.from_checkpoints,
        corpus.network(),
        [folder, folder],
        example=corpus.inputs(),
        likelihood="categorical",
    )
    if found is not None:
        case.attempt(found.predict, corpus.inputs())


def read_recommended(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    inputs = case.corpus / "inputs" / "points.csv"
    case.command(run_line, ["predict", str(folder), str(inputs), "--out", "out.csv"])
    case.attempt(verify, folder)


def read_export(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(verify, folder)
    if rng.random() < 0.5 and file.suffix == ".onnx":
        # The description inside of the file is read where none is beside it.
        (folder / "ensemble.onnx.json").unlink()
    exported = case.attempt(Exported, folder / "ensemble.onnx", 1)
    service = None if exported is None else case.attempt(Service, exported, ServerOptions(), "name")
    if service is not None:
        ask(case, service, "predict", (case.corpus / "requests" / "predict.json").read_bytes())
        case.attempt(service.statistics.text, 0, 0)


def read_request(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    service = Service(Exported(case.corpus / "served" / "ensemble.onnx", 1), ServerOptions(), "name")
    ask(case, service, file.stem, file.read_bytes())


def ask(case: Case, service: Service, route: str, body: bytes) -> None:
    """Answer one request, and check that the answer is JSON."""

    async def answered() -> None:
        service.batcher.start()
        try:
            if route == "predict":
                json.loads(await service.predict(body))
            else:
                await service.infer(body, None)
        except Refusal as refusal:
            case.outcome = REFUSED
            # The model itself never fails on numbers that it takes.
            if refusal.status >= FAILED:
                case.find("failed request", refusal.reason[:500])
            if len(refusal.reason) > MOST_MESSAGE:
                case.find("long message", refusal.reason[:300])
        finally:
            await service.batcher.drain()

    case.attempt(asyncio.run, answered())


def read_search(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    if file.name in ("choice.json", "run.json"):
        inputs = case.corpus / "inputs" / "points.csv"
        case.command(run_line, ["predict", str(folder), str(inputs), "--out", "out.csv"])
        return
    given: tuple[str, ...] = ()
    if file.name == "space.json":
        given = ("--space", str(file))
    elif file.name == "values.json":
        given = ("--against", str(folder))
    case.command(run_line, [*corpus.SEARCH.split(), *given, "--out", str(folder)])
    # Trials that a damaged database lost are trained again, into folders of their own.
    case.allow("runs", "outcomes")


def read_testbed(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(read_results, file)


TARGETS: dict[str, Target] = {
    "frozen.json": Target("frozen", "*/frozen.json", (json_damage, *[settings_damage] * 4), read_frozen, 8),
    "graph of frozen.json": Target("frozen", "*/frozen.json", (graph_damage,) * 9, read_frozen, 6),
    "weights of frozen": Target("frozen", "*/*.safetensors", (tensors_damage,) * 3, read_frozen, 5),
    "adapter_config.json": Target("adapters", "*/*.json", (json_damage,) * 3, read_adapter, 6),
    "adapter weights": Target("adapters", "*/*.safetensors", (tensors_damage,) * 3, read_adapter, 5),
    "recommended.json": Target(
        "compare", "recommended.json", (json_damage, text_damage), read_recommended, 3
    ),
    "records of a choice": Target("compare", "records.jsonl", (lines_damage,) * 3, read_recommended, 4),
    "onnx.json": Target("served", "*.onnx.json", (json_damage,) * 4, read_export, 6),
    "onnx": Target("served", "*.onnx", (bytes_damage,), read_export, 3),
    "request": Target("requests", "*.json", (example_damage, json_damage, text_damage), read_request, 9),
    "rows of a request": Target("requests", "*.json", (rows_damage,) * 9, read_request, 6),
    "space.json": Target("search", "space.json", (json_damage,) * 3, read_search, 1),
    "values.json": Target("search", "values.json", (json_damage,) * 3, read_search, 1),
    "choice.json": Target("search", "taken/choice.json", (json_damage,) * 3, read_search, 2),
    "study.db": Target("search", "study.db", (database_damage,) * 5, read_search, 3),
    "testbed.jsonl": Target("testbed", "*.jsonl", (lines_damage,) * 3, read_testbed, 6),
}
