"""Arrays and DataFrames become numbers by the types of their columns."""

import numpy as np
import pandas
import pytest
import torch

from pluribus.errors import InputError
from pluribus.sklearn.features import check_table, encode_table, is_table, learn_scaling, learn_table, scale


def test_only_frames_with_words_or_blanks_are_tables():
    numbers = pandas.DataFrame({"a": [1.0, 2.0], "b": [1, 2], "c": [True, False]})
    assert not is_table(numbers)
    assert not is_table(numbers.to_numpy())
    assert is_table(numbers.assign(a=[1.0, np.nan]))
    assert is_table(numbers.assign(a=["x", "y"]))
    assert is_table(numbers.assign(a=pandas.Categorical([1, 2])))


def test_types_decide_the_kinds_of_columns():
    frame = pandas.DataFrame(
        {
            "number": [1, 2, 3],
            "flag": [True, False, True],
            "day": pandas.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]),
            "code": pandas.Categorical([10, 20, 10]),
            "word": pandas.Series(["a", "b", "c"], dtype="string"),
            "object": pandas.Series([1.5, 2.5, 3.5], dtype=object),
        }
    )
    columns = learn_table(frame)
    kinds = [column.kind for column in columns]
    assert kinds == ["number", "boolean", "date", "category", "category", "number"]
    assert encode_table(columns, frame)[:, 3:5].tolist() == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(InputError, match="must be a DataFrame"):
        check_table(frame.to_numpy())


def test_weights_count_in_the_scaling():
    values, weights = np.array([[1.0, 7.0], [2.0, 7.0], [4.0, 7.0]]), np.array([1.0, 2.0, 1.0])
    weighted = learn_scaling(values, weights)
    repeated = learn_scaling(values[[0, 1, 1, 2]], None)
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.std, repeated.std)
    assert weighted.std[1] == 1


def test_images_are_scaled_by_channel():
    values = np.random.default_rng(0).normal(size=(5, 2, 3, 4)) * [[[2.0]], [[9.0]]]
    scaled = scale(values, learn_scaling(values, None))
    np.testing.assert_allclose(scaled.std(axis=(0, 2, 3)), 1)
    np.testing.assert_allclose(scaled.mean(axis=(0, 2, 3)), 0, atol=1e-12)
