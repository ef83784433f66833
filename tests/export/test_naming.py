"""Naming: values are passed on by position, whatever way they come."""

import inspect

import pytest

from pluribus.export.naming import with_parameters


def test_a_function_has_the_parameters_that_are_named():
    function = with_parameters(lambda *values: values, ["image", "age"])
    assert list(inspect.signature(function).parameters) == ["image", "age"]
    assert function(1, age=2) == function(age=2, image=1) == (1, 2)
    with pytest.raises(TypeError):
        function(1, 2, 3)
