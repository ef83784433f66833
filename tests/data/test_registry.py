"""Tasks by name: all of them, their options, and nearest names."""

import inspect
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from torch.testing import assert_close

from pluribus import data
from pluribus.data import TASKS, Task, digits, load_task
from pluribus.errors import PluribusError, SettingError

EMBEDDED = ["digits", "diabetes", "two_moons", "two_sinusoids", "sign_network"]


def test_all_tasks_have_names():
    families = ["mnist", "fashion_mnist", "kmnist", "cifar10", "cifar100", "tiny_imagenet"]
    medical = ["pneumonia_mnist", "breast_mnist", "blood_mnist", "retina_mnist"]
    tables = ["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht"]
    assert list(TASKS) == [*EMBEDDED, *families, *medical, *tables, "csv", "npz", "folder"]


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_tasks_need_no_folder(name, monkeypatch):
    monkeypatch.delenv("PLURIBUS_DATA", raising=False)
    task = load_task(name, train=40, seed=5)
    assert isinstance(task, Task)
    assert (task.name, len(task.train)) == (name, 40)


@pytest.mark.parametrize(
    "name", [name for name in TASKS if "data_dir" in inspect.signature(TASKS[name]).parameters]
)
def test_an_empty_folder_is_told(name, tmp_path):
    with pytest.raises(
        PluribusError, match=f"must lie in {tmp_path} as .* Get it from http.* and put it there"
    ):
        load_task(name, tmp_path)


def test_loading_by_name_is_calling_the_function(tmp_path):
    assert_close(load_task("digits", tmp_path, train=50).train.x, digits(train=50).train.x, rtol=0, atol=0)
    x = np.arange(40.0)[:, None]
    np.savez(tmp_path / "a.npz", x_train=x, y_train=x, x_test=x, y_test=x)
    assert load_task("npz", path=tmp_path / "a.npz", likelihood="point").outputs == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digit", {}, r"tasks are digits, .* got 'digit'. Did you mean 'digits'\?"),
        ("digits", {"trian": 3}, r"options of the task digits are train, .*'trian'. Did you mean 'train'\?"),
        ("boston", {"spilt": 3}, r"are split, targets, likelihood, train, .* Did you mean 'split'\?"),
        ("csv", {"path": "a.csv"}, "the task csv needs path, target, got no target"),
    ],
)
def test_unknown_names_and_options_are_refused(name, options, message):
    with pytest.raises(SettingError, match=message):
        load_task(name, **options)


def test_no_module_hides_a_public_function():
    modules = {module.name for module in pkgutil.iter_modules(data.__path__)}
    assert modules.isdisjoint(data.__all__)
    assert set(data._HOME_OF) == set(data.__all__)


def test_importing_a_torch_free_module_loads_no_torch():
    code = "import sys; from pluribus.data import column_record, columns; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
