"""Tables as tasks, shaped like well-known files: cars, diamonds, a clinical study."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data import frame_task, load_task
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian

RANDOM = np.random.default_rng(0)


def save(folder, header, rows):
    path = folder / "table.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def cars(folder, count=80):
    """Like auto-mpg: blanks among the horsepower, names, a date, a target that is missing here and there."""
    rows = []
    for i in range(count):
        power = "?" if i % 9 == 0 else 60 + i * 13 % 150
        mpg = "" if i == 5 else round(40 - 0.1 * (60 + i * 13 % 150), 1)
        rows.append(
            (f"car {i}", mpg, (4, 6, 8)[i % 3], power, f"19{70 + i % 9}-01-01", ("usa", "japan")[i % 2])
        )
    return save(folder, "name,mpg,cylinders,horsepower,year,origin", rows)


def diamonds(folder, count=90):
    """Like diamonds, with the index that pandas writes."""
    cuts = ("Fair", "Good", "Ideal")
    rows = [(i, i * 7 % 13 / 10, cuts[i % 3], "DEFG"[i % 4], 300 + i * 7 % 13 * 50) for i in range(count)]
    return save(folder, ",carat,cut,color,price", rows)


def study(folder, count=90):
    """Like GBSG2: yes and no, grades in Roman numbers, an event to predict."""
    rows = []
    for i in range(count):
        rows.append(
            (("no", "yes")[i % 2], 30 + i * 7 % 50, ("Pre", "Post")[i % 2], ("I", "II", "III")[i % 3], i % 2)
        )
    return save(folder, "horTh,age,menostat,tgrade,cens", rows)


def test_cars(tmp_path):
    task = load_task("csv", path=cars(tmp_path), target="mpg")
    assert task.likelihood == Gaussian()
    assert [column.kind for column in task.columns] == ["dropped", "number", "number", "date", "category"]
    expected = ("cylinders", "horsepower", "horsepower is missing", "year", "origin=japan", "origin=usa")
    assert task.feature_names == expected
    assert task.notes == ("1 of 80 rows have no mpg and were left out.",)
    assert len(task.train) + len(task.validation) + len(task.test) == 79


def test_diamonds_without_their_index(tmp_path):
    task = load_task("csv", path=diamonds(tmp_path), target="price")
    assert task.columns.columns[0].note.startswith("an id")
    assert task.feature_names[:4] == ("carat", "cut=Fair", "cut=Good", "cut=Ideal")
    carat = task.scaling.invert(task.test.x)[:, 0]
    price = task.target_scaling.invert(task.test.y)[:, 0]
    assert_close(price, 300 + 500 * carat, rtol=1e-4, atol=0.1)
    assert load_task("csv", path=diamonds(tmp_path), target="cut").class_names == ("Fair", "Good", "Ideal")


def test_study(tmp_path):
    path = study(tmp_path)
    task = load_task("csv", path=path, target="cens", likelihood="categorical")
    assert (task.class_names, task.likelihood) == (("0", "1"), Categorical())
    assert task.feature_names[:3] == ("horTh", "age", "menostat=Post")
    assert_close(task.test.x[:, 0].long(), task.test.y, rtol=0, atol=0)
    of_words = load_task("csv", path=path, target="horTh", likelihood="bernoulli")
    assert (of_words.likelihood, set(of_words.test.y.flatten().tolist())) == (Bernoulli(), {0.0, 1.0})


def test_zeros_and_ones_are_classes(tmp_path):
    path = save(tmp_path, "age,dead", [(20 + i % 50, i % 2) for i in range(60)])
    task = load_task("csv", path=path, target="dead")
    assert isinstance(task.likelihood, Categorical)
    assert task.class_names == ("0", "1")
    assert "dead holds 0 and 1 alone" in task.notes[0]
    assert isinstance(load_task("csv", path=path, target="dead", likelihood="gaussian").likelihood, Gaussian)


def test_plus_and_minus_are_classes(tmp_path):
    path = save(tmp_path, "age,approved", [(20 + i % 50, "+-"[i % 2]) for i in range(60)])
    task = load_task("csv", path=path, target="approved")
    assert task.class_names == ("+", "-")
    assert sum(map(len, (task.train, task.validation, task.test))) == 60
    # Alone, a dash is a blank.
    path = save(tmp_path, "age,approved", [(20 + i % 50, "ab-"[i % 3]) for i in range(60)])
    assert load_task("csv", path=path, target="approved").class_names == ("a", "b")


def test_statistics_are_those_of_the_training_rows(tmp_path):
    task = load_task("csv", path=diamonds(tmp_path), target="price", features="carat")
    assert_close(task.train.x.mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    assert_close(task.train.x.std(correction=0), torch.tensor(1.0), rtol=0, atol=1e-6)
    assert_close(task.train.y.mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    assert abs(task.test.x.mean()) > 1e-4


def test_options_come_as_text_or_as_values(tmp_path):
    path = cars(tmp_path)
    one = load_task("csv", path=path, target="mpg", features="cylinders, year", kinds="cylinders=category")
    two = load_task(
        "csv", path=path, target="mpg", features=["cylinders", "year"], kinds={"cylinders": "category"}
    )
    assert one.columns == two.columns
    assert one.feature_names == ("cylinders=4", "cylinders=6", "cylinders=8", "year")
    words = load_task("csv", path=path, target="mpg", missing_words="usa")
    assert words.columns.columns[-1].missing > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": "cylinders"}, "kinds are written column=kind,column=kind, got 'cylinders'"),
        ({"kinds": "mpg=number"}, "kinds must name columns, got 'mpg'"),
        ({"features": [1.5]}, r"features must be words, got \[1.5\]"),
    ],
)
def test_impossible_options_are_refused(tmp_path, options, message):
    with pytest.raises(SettingError, match=message):
        load_task("csv", path=cars(tmp_path), target="mpg", **options)


def test_a_frame_makes_the_task_of_its_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = cars(tmp_path)
    from_file = load_task("csv", path=path, target="mpg")
    found = frame_task(pandas.read_csv(path, na_values=["?"]), "mpg")
    assert found.columns == from_file.columns
    for part in ("train", "validation", "test"):
        assert_close(getattr(found, part).x, getattr(from_file, part).x, rtol=0, atol=0)
        assert_close(getattr(found, part).y, getattr(from_file, part).y, rtol=0, atol=0)
    with pytest.raises(InputError, match="frame must be a pandas DataFrame, got list"):
        frame_task([1, 2], "mpg")


def test_two_whole_numbers_are_classes_and_few_get_a_note(tmp_path):
    path = save(tmp_path, "age,status,stars", [(20 + i % 50, 1 + i % 2, 1 + i % 5) for i in range(60)])
    task = load_task("csv", path=path, target="status")
    assert task.class_names == ("1", "2")
    assert "status holds 1 and 2 alone" in task.notes[0]
    task = load_task("csv", path=path, target="stars")
    assert isinstance(task.likelihood, Gaussian)
    assert task.notes == (
        "stars holds 5 whole numbers, 1 to 5, and is predicted as a number. "
        "likelihood=categorical predicts classes.",
    )
    assert load_task("csv", path=path, target="stars", likelihood="gaussian").notes == ()
    assert load_task("csv", path=path, target="age").notes == ()
