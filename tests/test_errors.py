"""Errors: one parent for all, and the built-in errors that users already catch."""

import inspect

import pytest

from pluribus import errors


@pytest.mark.parametrize("name", [name for name, _ in inspect.getmembers(errors, inspect.isclass)])
def test_every_error_is_ours_and_says_when_it_is_raised(name):
    error = getattr(errors, name)
    assert issubclass(error, errors.PluribusError)
    assert error.__doc__


def test_wrong_values_are_value_errors_too():
    assert issubclass(errors.SettingError, ValueError)
    assert issubclass(errors.InputError, ValueError)
    assert not issubclass(errors.ConversionError, ValueError)
