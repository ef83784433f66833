"""The examples run and learn."""

import importlib.util
import logging
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_plain_loop_trains_an_ensemble():
    assert example("plain_loop").main(steps=150) > 0.9


@pytest.mark.filterwarnings("ignore")  # Lightning advises on workers and devices
def test_lightnings_trainer_trains_an_ensemble():
    pytest.importorskip("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    assert example("lightning_trainer").main(epochs=15) > 0.9


@pytest.mark.slow
def test_weights_or_batches_that_differ_make_members_disagree():
    found = example("sources_of_diversity").study(epochs=2, train_images=100)
    disagreement = {key: numbers["disagreement on digits"] for key, numbers in found.items()}
    assert disagreement.pop((False, False)) == pytest.approx(0, abs=1e-7)
    assert min(disagreement.values()) > 1e-6


def test_masks_lead_from_one_network_to_an_ensemble(tmp_path):
    module = example("masksembles_continuum")
    found, maps, task = module.study(epochs=3, seeds=1)
    overlaps = [numbers["overlap"] for numbers in found.values()]
    assert overlaps == sorted(overlaps, reverse=True)
    assert overlaps[0] == 1
    assert overlaps[-1] == 0
    module.draw(maps, task, tmp_path / "picture.html")
    assert "Masksembles, S = 10" in (tmp_path / "picture.html").read_text(encoding="utf-8")


def test_dropping_weights_takes_steps_out_of_a_function_and_patches_do_not(tmp_path):
    module = example("function_space_prior")
    found, drawn = module.study(draws=8, seeds=2)
    assert found["dropout"] < 0.7 * found["normal prior"]
    assert min(found["EMP"], found["ECMP"]) > 0.8 * found["normal prior"]
    module.draw(drawn, tmp_path / "picture.html")
    assert "ECMP" in (tmp_path / "picture.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")  # MLflow warns of its own dependencies
def test_an_export_is_a_model_of_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pandas = pytest.importorskip("pandas")
    from tests.serving.files import table_file

    module = example("mlflow_model")
    module.save(table_file(tmp_path / "pets.onnx"), tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    found = loaded.predict(pandas.DataFrame({"age": [50.0, None], "pet": ["b", "c"]}))
    assert set(found["label"]) <= {"cat", "dog", "cow"}
    assert found["note"].tolist()[1] == "unseen pet=c"
    assert (found["entropy"] > 0).all()
