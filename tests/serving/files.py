"""Small files like those of `pluribus export`, written by hand: no torch is needed for them."""

import hashlib
import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pluribus.data.column_kinds import learn_columns
from pluribus.data.column_record import columns_to_dict

CLASSES = ["cat", "dog", "cow"]
REFERENCE = np.linspace(0.2, 0.9, 200).tolist()
UNIT = {"shape": [], "mean": [0.0], "std": [1.0]}
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def weights(inputs):
    return np.random.default_rng(0).normal(size=(2, inputs, 3)).astype(np.float32)


def expected(x):
    """Return what the file of classes computes, by NumPy."""
    logits = np.einsum("bi,mio->mbo", x.astype(np.float64), weights(x.shape[1]).astype(np.float64))
    members = np.exp(logits - logits.max(-1, keepdims=True))
    members /= members.sum(-1, keepdims=True)
    mean = members.mean(0)
    entropy = -(mean * np.log(mean)).sum(1)
    inner = -(members * np.log(members)).sum(-1).mean(0)
    return {
        "probabilities": mean,
        "labels": mean.argmax(1),
        "confidence": mean.max(1),
        "entropy": entropy,
        "mutual_information": entropy - inner,
        "set": mean >= 0.1,
        "ood_score": entropy,
        "flagged": entropy > 0.9,
    }


def class_nodes(inputs):
    node = helper.make_node
    nodes = []
    for member in range(2):
        nodes += [
            node("MatMul", ["x", f"w{member}"], [f"l{member}"]),
            node("Softmax", [f"l{member}"], [f"p{member}"], axis=1),
            node("Log", [f"p{member}"], [f"g{member}"]),
            node("Mul", [f"p{member}", f"g{member}"], [f"h{member}"]),
            node("ReduceSum", [f"h{member}", "one"], [f"s{member}"], keepdims=0),
        ]
    nodes += [
        node("Mean", ["p0", "p1"], ["probabilities"]),
        node("ArgMax", ["probabilities"], ["labels"], axis=1, keepdims=0),
        node("ReduceMax", ["probabilities", "one"], ["confidence"], keepdims=0),
        node("Log", ["probabilities"], ["logs"]),
        node("Mul", ["probabilities", "logs"], ["products"]),
        node("ReduceSum", ["products", "one"], ["negative"], keepdims=0),
        node("Neg", ["negative"], ["entropy"]),
        node("Mean", ["s0", "s1"], ["inner"]),
        node("Add", ["entropy", "inner"], ["mutual_information"]),
        node("GreaterOrEqual", ["probabilities", "edge"], ["set"]),
        node("Identity", ["entropy"], ["ood_score"]),
        node("Greater", ["entropy", "threshold"], ["flagged"]),
    ]
    held = {f"w{m}": weights(inputs)[m] for m in range(2)}
    held |= {"one": np.array([1]), "edge": np.float32(0.1), "threshold": np.float32(0.9)}
    outputs = dict.fromkeys(("confidence", "entropy", "mutual_information", "ood_score"), "float32")
    shapes = {name: ["batch"] for name in (*outputs, "labels", "flagged")}
    outputs |= {"probabilities": "float32", "labels": "int64", "set": "bool", "flagged": "bool"}
    return nodes, held, outputs, shapes | {"probabilities": ["batch", 3], "set": ["batch", 3]}


def write(path, nodes, held, inputs, outputs, shapes, **changes):
    """Write a graph with its description beside it, and return its path.

    Args:
        path: The file.
        nodes: Of the graph.
        held: Constants by name.
        inputs: Type and shape of each input by name, the batch first.
        outputs: Type of each output by name.
        shapes: Of the outputs.
        **changes: Other fields of the description.
    """
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TYPES[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, TYPES[kind], shapes[name]) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    description = {
        "format": "pluribus export",
        "version": 1,
        "inputs": [{"name": name, "dtype": kind, "shape": shape} for name, (kind, shape) in inputs.items()],
        "outputs": [{"name": name, "meaning": "a number"} for name in outputs],
        "members": 2,
        "level": None,
        "classes": None,
        "calibration": None,
        "preprocessing": None,
        "method": {"kind": "deep_ensembles"},
        **changes,
    }
    helper.set_model_props(model, {"pluribus": json.dumps(description)})
    onnx.save(model, path)
    description["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".json").write_text(json.dumps(description))
    return path


def class_file(path, inputs=4, **changes):
    """Write a calibrated ensemble of two linear members for three classes."""
    nodes, held, outputs, shapes = class_nodes(inputs)
    calibrated = {
        "classes": CLASSES,
        "level": 0.9,
        "calibration": {"score": "entropy"},
        "reference_scores": REFERENCE,
    }
    given = {"x": ("float32", ["batch", inputs])}
    return write(path, nodes, held, given, outputs, shapes, **calibrated | changes)


def table_columns():
    """Return the columns of a small table with a number, a category and blanks: four features."""
    return learn_columns({"age": [20.0, 40.0, None, 60.0, 30.5, 30.5], "pet": ["a", "b", "a", "b", "a", "b"]})


def table_file(path):
    """Write a file that takes the columns of `table_columns`."""
    columns = table_columns()
    scaling = {"shape": [4], "mean": columns.means.tolist(), "std": columns.deviations.tolist()}
    record = {
        "scaling": scaling,
        "target_scaling": UNIT,
        "feature_names": list(columns.features),
        "columns": columns_to_dict(columns),
    }
    return class_file(path, preprocessing=record)


def number_file(path):
    """Write a file of one number with an interval, whose targets were scaled: y = 10 z + 100."""
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["x", "one"], ["mean"], keepdims=1),
        node("Mul", ["mean", "zero"], ["nothing"]),
        node("Add", ["nothing", "variance_of_all"], ["variance"]),
        node("Add", ["nothing", "half"], ["epistemic"]),
        node("Sub", ["mean", "half"], ["lower"]),
        node("Add", ["mean", "half"], ["upper"]),
    ]
    held = {
        "one": np.array([1]),
        "zero": np.float32(0),
        "half": np.float32(0.5),
        "variance_of_all": np.float32(4),
    }
    outputs = dict.fromkeys(("mean", "variance", "epistemic", "lower", "upper"), "float32")
    record = {
        "scaling": {"shape": [2], "mean": [1.0, 2.0], "std": [2.0, 4.0]},
        "target_scaling": {"shape": [1], "mean": [100.0], "std": [10.0]},
        "feature_names": ["a", "b"],
        "columns": None,
    }
    given = {"x": ("float32", ["batch", 2])}
    shapes = {key: ["batch", 1] for key in outputs}
    return write(path, nodes, held, given, outputs, shapes, level=0.8, preprocessing=record)


def token_file(path):
    """Write a file of two inputs that fails on tokens above 3, and takes any length."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "tokens"], ["values"]),
        node("Mul", ["values", "mask"], ["kept"]),
        node("ReduceSum", ["kept", "one"], ["mean"], keepdims=1),
        node("Abs", ["mean"], ["variance"]),
    ]
    held = {"table": np.arange(4, dtype=np.float32), "one": np.array([1])}
    given = {"tokens": ("int64", ["batch", "length"]), "mask": ("float32", ["batch", "length"])}
    outputs = {"mean": "float32", "variance": "float32"}
    return write(path, nodes, held, given, outputs, {key: ["batch", 1] for key in outputs})


def mixing_file(path):
    """Write a file whose samples affect one another: the mean over the batch is subtracted."""
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["x", "zero"], ["centre"], keepdims=1),
        node("Sub", ["x", "centre"], ["mean"]),
        node("Abs", ["mean"], ["variance"]),
    ]
    outputs = {"mean": "float32", "variance": "float32"}
    given = {"x": ("float32", ["batch", 2])}
    return write(path, nodes, {"zero": np.array([0])}, given, outputs, {key: ["batch", 2] for key in outputs})
