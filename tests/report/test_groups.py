"""Groups: one network on one task each, configurations with names of their own."""

from dataclasses import dataclass, replace

from pluribus import methods
from pluribus.report.groups import group_records, label
from tests.report.records import classes, failed, numbers, only_group


def test_tasks_and_networks_are_kept_apart():
    other = replace(classes(), network="resnet18", key="other")
    groups = group_records([classes(), numbers(), other, classes(seed=1)])
    assert [group.title for group in groups] == ["digits · cnn", "houses · mlp", "digits · resnet18"]
    assert [len(group.records) for group in groups] == [2, 1, 1]
    assert groups[0].sizes.startswith("300 train")


def test_runs_are_ordered_by_seed_and_failures_stand_apart():
    group = only_group(classes(seed=2), classes(seed=0), failed("single", 1), failed("mimo", 0))
    (entry,), (lost,) = group.entries, group.lost
    assert [run.seed for run in entry.runs] == [0, 2]
    assert [run.seed for run in entry.failures] == [1]
    assert [(name, run.seed) for name, run in group.failures] == [("single", 1), ("mimo", 0)]
    assert lost.kind == "mimo"


def test_ways_of_training_are_different_configurations():
    longer = replace(classes(), training={"epochs": 9, "seed": 4}, key="longer")
    group = only_group(classes(), longer, classes("mc_dropout"))
    assert [entry.label for entry in group.entries] == [
        "single, epochs=3",
        "single, epochs=9",
        "mc_dropout",
    ]


def test_what_all_runs_were_trained_alike_is_told():
    trained = {"epochs": 9, "batch": 64, "lr": 0.003, "seed": 4}
    one = replace(classes(), training=trained)
    other = replace(classes("mc_dropout"), training={**trained, "seed": 5})
    assert only_group(one, other).training == "trained: 9 epochs, batches of 64, learning rate 0.003"
    longer = replace(other, training={**trained, "epochs": 30})
    assert only_group(one, longer).training == "trained: batches of 64, learning rate 0.003"
    assert only_group(replace(one, training={})).training == ""


def test_labels_show_the_settings_that_are_not_the_usual_ones():
    assert label({"kind": "deep_ensembles", "version": 1, "members": 5}) == "deep_ensembles(members=5)"
    assert label({"kind": "deep_ensembles", "version": 1, "members": 4}) == "deep_ensembles"
    assert label({"kind": "not_known_here", "version": 1, "depth": 3}) == "not_known_here(depth=3)"


def test_a_pair_is_the_usual_one_as_a_list_too(monkeypatch):
    @dataclass(frozen=True)
    class Spanned:
        span: tuple[float, float] = (1.0, 0.5)

    monkeypatch.setattr(methods, "Spanned", Spanned, raising=False)
    monkeypatch.setattr(methods, "__all__", [*methods.__all__, "Spanned"])
    assert label({"kind": "spanned", "span": [1.0, 0.5]}) == label({"kind": "spanned", "span": (1.0, 0.5)})
    assert label({"kind": "spanned", "span": [1.0, 0.5]}) == "spanned"
    assert label({"kind": "spanned", "span": [1.0, 0.1]}) == "spanned(span=[1.0, 0.1])"


def test_the_yardstick_is_the_single_network():
    assert only_group(classes("mc_dropout"), classes()).single.kind == "single"
    assert only_group(classes("mc_dropout")).single is None


def test_of_a_seed_that_came_twice_the_last_run_counts():
    again = replace(classes(), key="again", metrics={"nll": 9.0})
    (entry,) = only_group(classes(), classes(seed=1), again).entries
    assert [(run.seed, run.key) for run in entry.runs] == [(0, "again"), (1, "single-1-cnn")]
    assert entry.repeated == (0,)
