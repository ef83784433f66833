"""The data folder: an option, the environment, or an error that tells what to do."""

import pytest

from pluribus.data.sources import Source, data_folder, optional, reading
from pluribus.errors import InputError, SettingError


def test_the_option_goes_before_the_environment(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("PLURIBUS_DATA", str(tmp_path))
    assert data_folder(None) == tmp_path
    assert data_folder(str(tmp_path / "a")) == tmp_path / "a"


def test_without_a_folder_the_error_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("PLURIBUS_DATA", raising=False)
    with pytest.raises(
        SettingError, match=r"got neither data_dir nor PLURIBUS_DATA. Set data_dir, --data-dir"
    ):
        data_folder(None)
    with pytest.raises(InputError, match=r"the data folder must exist, got .*none, which is no folder"):
        data_folder(tmp_path / "none")


def test_the_first_form_that_is_there_counts(tmp_path):
    source = Source("letters", "home", {name: lambda path: path.read_text() for name in ("a", "b", "c")})
    assert source.find(tmp_path) is None
    for name in ("c", "b"):
        (tmp_path / name).write_text(name)
        assert source.read(tmp_path) == name


def test_what_is_not_there_is_told_with_all_forms(tmp_path):
    source = Source("letters", "https://home", {"a": str, "b": str, "c": str})
    message = (
        f"letters must lie in {tmp_path} as a, got no such file \\(b, c would do too\\). "
        "Get it from https://home and put it there."
    )
    with pytest.raises(InputError, match=message):
        source.read(tmp_path)


def test_errors_name_the_file_once(tmp_path):
    with pytest.raises(InputError, match=r"^ours$"), reading(tmp_path):
        raise InputError("ours")
    with (
        pytest.raises(InputError, match=r"must be a whole file of its kind, got an error: EOFError. Get"),
        reading(tmp_path),
    ):
        raise EOFError


def test_a_package_that_is_not_there_is_named():
    assert optional("math", "python").pi > 3
    with pytest.raises(InputError, match=r"needs nonsuch, which is not installed. Run `pip install nonsuch`"):
        optional("nonsuch.module", "nonsuch")
