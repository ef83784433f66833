"""Recipes are settings: they compare, and refuse what would shorten a training."""

import pytest

import pluribus as pl
from pluribus.recipe import Recipe


def test_recipes_come_back_equal():
    recipe = Recipe(longer=2.0, weight_decay=0.0)
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_recipes_shorten_nothing():
    with pytest.raises(pl.SettingError, match="longer must be at least 1"):
        Recipe(longer=0.5)
