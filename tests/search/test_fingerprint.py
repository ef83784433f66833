"""Fingerprints: other spaces, tasks and versions are refused by name."""

import pytest

from pluribus.errors import SettingError
from pluribus.search.fingerprint import check_fingerprint, fingerprint_parts, study_name
from pluribus.search.making import read_space
from pluribus.search.objectives import parse_objectives
from tests.search.cases import OBJECTIVES, SPACE, problem


def parts(tmp_path, **changes):
    given = {
        "space": read_space(SPACE),
        "objectives": parse_objectives(OBJECTIVES),
        "budget": "",
        "flat": False,
    }
    return fingerprint_parts(problem(tmp_path, **changes.pop("problem", {})), **(given | changes))


def test_same_line_has_the_same_fingerprint(tmp_path):
    check_fingerprint(parts(tmp_path), parts(tmp_path / "elsewhere"), "a")


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("space", {"space": read_space({"single": {}})}),
        ("objectives", {"objectives": parse_objectives("nll")}),
        ("budget", {"budget": "parameters<=2x"}),
        ("training", {"problem": {"steps": 9}}),
    ],
)
def test_differing_part_is_named(tmp_path, part, changes):
    with pytest.raises(SettingError, match=f"the {part} of a search"):
        check_fingerprint(parts(tmp_path), parts(tmp_path, **changes), "a")


def test_other_version_is_refused(tmp_path):
    own = parts(tmp_path)
    with pytest.raises(SettingError, match="the version of a search"):
        check_fingerprint(own | {"version": "0.0"}, own, "a")


def test_name_is_the_same_on_every_machine(tmp_path):
    assert (
        study_name(problem(tmp_path), parse_objectives(OBJECTIVES)) == "two_moons-network-nll-multiply_adds"
    )
