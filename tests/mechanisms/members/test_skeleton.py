"""Skeletons: the user's code with exchangeable tensors, lent to one call at a time."""

import copy
import gc

import torch
from torch import nn

from pluribus.mechanisms.members.skeleton import (
    IDLE_SKELETONS,
    Skeletons,
    blank,
    modes_of,
    set_modes,
)
from pluribus.mechanisms.members.tree import named_tensors

x = torch.ones(2, 3)


def pool():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    return model, Skeletons(blank(model))


def test_two_loans_are_two_skeletons():
    _, skeletons = pool()
    first, second = skeletons.borrow((False,) * 3), skeletons.borrow((False,) * 3)
    assert first.skeleton is not second.skeleton


def test_a_returned_skeleton_is_lent_again():
    _, skeletons = pool()
    loan = skeletons.borrow((False,) * 3)
    skeleton = loan.skeleton
    del loan
    assert skeletons.borrow((False,) * 3).skeleton is skeleton


def test_each_combination_of_modes_has_its_own_skeletons():
    _, skeletons = pool()
    training = skeletons.borrow((True, False, True)).skeleton
    assert modes_of(training.module) == (True, False, True)
    assert skeletons.borrow((False,) * 3).skeleton is not training


def test_a_skeleton_is_lent_as_long_as_the_graph_of_its_output():
    model, skeletons = pool()
    loan = skeletons.borrow((False,) * 3)
    skeleton = loan.skeleton
    output = skeleton.fill(named_tensors(model))(x)
    loan.keep_with(output)
    del loan
    assert skeletons.borrow((False,) * 3).skeleton is not skeleton
    del output
    gc.collect()
    assert skeleton in skeletons._idle[(False,) * 3]


def test_the_pool_keeps_a_bounded_number():
    _, skeletons = pool()
    loans = [skeletons.borrow((False,) * 3) for _ in range(IDLE_SKELETONS + 5)]
    del loans
    assert len(skeletons._idle[(False,) * 3]) == IDLE_SKELETONS


def test_a_copy_of_the_pool_is_empty():
    model, skeletons = pool()
    skeletons.borrow((False,) * 3).skeleton.fill(named_tensors(model))
    assert copy.deepcopy(skeletons)._idle == {}


def test_modes_are_set_module_by_module():
    model, _ = pool()
    set_modes(model, (True, False, True))
    assert modes_of(model) == (True, False, True)
