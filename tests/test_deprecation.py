"""Old public names work for one more release, and warn."""

import gc

import pytest
import torch

import pluribus as pl
from pluribus import conversion_record, method
from pluribus.deprecation import REMOVAL, RenamedAttribute, adopt_renamed, find_renamed, renamed_arguments
from pluribus.methods import DeepEnsembles, Single


def warns(old, new):
    return pytest.warns(DeprecationWarning, match=rf"^{old} is deprecated .* {REMOVAL}\. Use {new}\.$")


@renamed_arguments(size="length")
def measure(length=1):
    return length


class Square:
    side = 3
    edge = RenamedAttribute("side")


def test_arguments_by_their_old_names_work_and_warn():
    with warns("size=", "length="):
        assert measure(size=4) == 4
    assert measure(length=4) == measure(4) == 4


def test_arguments_by_both_names_raise():
    with pytest.raises(pl.SettingError, match=r"length must be given once, got size= too\. Remove size=\."):
        measure(length=4, size=4)


def test_attributes_by_their_old_names_work_and_warn():
    with warns("Square.edge", "Square.side"):
        assert Square().edge == 3
    with warns("Square.edge", "Square.side"):
        assert Square.edge == 3


def test_methods_of_subclasses_under_old_names_are_called_by_their_new_ones():
    class Small(Square):
        edge = 2

    with warns("Small.edge", "side"):
        adopt_renamed(Small, {"edge": "side"})
    assert Small.side == 2


def test_names_of_modules_work_and_warn():
    with warns("here.old", "here.new"):
        assert find_renamed("here", {"new": 5}, {"old": "new"}, "old") == 5
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'other'"):
        find_renamed("here", {"new": 5}, {"old": "new"}, "other")


def test_warnings_point_at_the_line_that_uses_the_old_name():
    for use in (lambda: measure(size=4), lambda: Square().edge, lambda: pl.pack):
        with pytest.warns(DeprecationWarning, match="is deprecated") as caught:
            use()
        assert [one.filename for one in caught] == [__file__]


def test_pack_is_from_models():
    with warns("pluribus.pack", "pluribus.from_models"):
        assert pl.pack is pl.from_models


def ensemble():
    return pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2))


def test_samples_of_loss_is_dataset_size():
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    with warns("samples=", "dataset_size="):
        assert ensemble().loss(x, y, samples=4).ndim == 0


def test_network_and_kind_of_an_ensemble_are_network_name_and_case():
    one = ensemble()
    with warns("Ensemble.network", "Ensemble.network_name"):
        assert one.network == one.network_name == "Linear"
    with warns("Ensemble.kind", "Ensemble.case"):
        assert one.kind == one.case == "deep_ensembles"


def test_budget_of_predict_is_best():
    one, x = ensemble(), torch.zeros(4, 3)
    one.rank((x, torch.zeros(4, dtype=torch.long)))
    with warns("budget=", "best="):
        assert len(one.predict(x, budget=1).members) == 1


def test_choice_and_row_are_layer_choice_and_layer_record():
    with warns("pluribus.method.Choice", "pluribus.method.LayerChoice"):
        assert method.Choice is method.LayerChoice
    with warns("pluribus.conversion_record.Row", "pluribus.conversion_record.LayerRecord"):
        assert conversion_record.Row is conversion_record.LayerRecord


def test_rows_of_built_are_layers():
    with warns("Built.rows", "Built.layers"):
        assert method.Built(None, ()).rows == ()


@pytest.mark.parametrize(("old", "new"), method.RENAMED.items())
def test_hooks_of_methods_have_their_old_names(old, new):
    one = DeepEnsembles()
    with warns(f"DeepEnsembles.{old}", f"DeepEnsembles.{new}"):
        assert getattr(one, old) == getattr(one, new)


def test_methods_that_define_old_hooks_are_called():
    with warns("Doubled.total", "combine"):

        class Doubled(method.Method):
            def build(self, network, choices, seed):
                return Single().build(network, choices, seed)

            def total(self, losses, shares, binding, progress):
                return 2 * losses.sum()

    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    network = torch.nn.Linear(3, 2)
    assert pl.convert(network, Doubled()).loss(x, y) == 2 * pl.convert(network, Single()).loss(x, y)
    # Settings.known() lists subclasses while they live, and other tests read it.
    del Doubled
    gc.collect()
    assert "doubled" not in method.Method.known()
