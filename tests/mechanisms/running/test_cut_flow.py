"""Cut flow: members with masks of equal size run together."""

from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.mechanisms.running.cut_flow import flow_of_cut
from pluribus.mechanisms.running.specialised import CutMembers, cut_members
from pluribus.methods import Masksembles
from tests.cases import normal

x = normal(6)()


def test_members_of_equal_widths_are_rows_of_one_program():
    ensemble = pl.convert(mlp(6, 3, hidden=(20, 30)).double(), Masksembles(members=3), example=x).eval()
    cut, _ = cut_members(ensemble.members, ensemble._example)
    flow = flow_of_cut(cut)
    assert len(flow.rows) == 3
    assert set(flow.keys(1)) < set(next(flow.of([1])))
    uneven = CutMembers(cut.signature, cut.trunk, (cut.members[0], cut.trunk))
    assert flow_of_cut(uneven) is None
    names = [str(node.target) for node in ensemble.freeze().module.graph.nodes]
    assert "aten.baddbmm.default" in names
    assert_close(ensemble.freeze()(x), ensemble(x).detach())
