"""Recording: tensors know how they were computed, down to what was there before."""

import torch
from torch.testing import assert_close

from pluribus.mechanisms.graph.recording import Recording, recipe_of

W, S = torch.rand(3, 4), torch.rand(3)


def test_a_recipe_computes_the_tensor_from_its_leaves():
    with Recording():
        product = (W * S[:, None]).t().contiguous()
    recipe = recipe_of(product)
    assert {id(leaf) for leaf in recipe.leaves()} == {id(W), id(S)}
    assert_close(recipe.value({}), product, rtol=0, atol=0)
    doubled = recipe.with_leaves(lambda leaf: leaf * 2, {})
    assert_close(doubled.value({}), 4 * product)


def test_random_numbers_and_masks_are_leaves():
    with Recording():
        noise = torch.rand(3, 4)
        mask = noise > 0.5
        kept = W * mask
    assert recipe_of(noise) is None
    assert recipe_of(mask) is None
    assert {id(leaf) for leaf in recipe_of(kept).leaves()} == {id(W), id(mask)}


def test_nothing_is_noted_outside():
    assert recipe_of(W * 2) is None
