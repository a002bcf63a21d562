"""What the columns of an unknown table are taken for, rule by rule, and which look like client and label."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from fedcohort.data.survey import Roles, Seen, look, order_of_dates, roles, survey

ROWS = 60
Y = np.arange(ROWS) % 2
SITE = [f"s{n % 3}" for n in range(ROWS)]
DRAW = np.random.default_rng(0)


def seen(cells: Sequence[object], classes: Sequence[object] = Y.tolist(), name: str = "a") -> Seen:
    """A column beside a label and a client."""
    column = pl.Series(name, cells, strict=False)
    codes = np.unique(classes, return_inverse=True)[1]
    (found,) = survey(column.to_frame(), codes, np.array(SITE), order_of_dates([column])[0])
    return found


@pytest.mark.parametrize(
    ("cells", "kind", "what"),
    [
        (DRAW.normal(size=ROWS).round(4), "numbers", "to"),  # nearly unique, but measured
        ([str(20 + n % 40) for n in range(ROWS)], "numbers", "20 to 59"),
        ([str(n % 4) for n in range(ROWS)], "copy of the label", "tells it alone"),  # even or odd
        ([str(n // 3 % 4) for n in range(ROWS)], "numbers", "0 to 3, perhaps codes"),
        (range(ROWS), "identifier", "row numbers, 0 to 59"),
        ([7 * n * n for n in range(ROWS)], "identifier", "nearly unique, 60 values"),
        ([n // 3 for n in range(ROWS)], "identifier", "row numbers of each client"),
        ([f"P{n}" for n in range(ROWS)], "identifier", "nearly unique"),
        ([f"site {s}" for s in SITE], "categories", "3: site s0"),
        (["ill" if y else "well" for y in Y], "copy of the label", "tells it alone"),
        ([y + 0.1 * n / ROWS for n, y in enumerate(Y)], "copy of the label", "tells it alone"),
        ([5] * ROWS, "constant", "always 5"),
        (["x"] * ROWS, "constant", "always x"),
        (["x", *[None] * (ROWS - 1)], "categories", "1: x"),  # to be empty may mean something
        ([None] * ROWS, "empty", "no cell is filled"),
        (["2024-01-02", "2023-05-06", "2022-01-01"] * 20, "dates", "2022-01-01 to 2024-01-02"),
        (["red", "green", "blue", "blue"] * 15, "categories", "3: blue, green, red"),
        ([f"no pain at all since day {n}" for n in range(ROWS)], "texts", "7 words"),
        (["x" * 300, "y"] * 30, "texts", "1 words"),
        ([f"code{n % 20}" for n in range(ROWS)], "categories", "20: code0"),
        ([[1], [2], [3]] * 20, "unclear", "List"),
        (["3,5", "4,1", "7,25"] * 20, "unclear", "commas in numbers, as in 3,5"),
        (["31/01/2020", "01/31/2020", "02/02/2020"] * 20, "unclear", "dates of another order"),
    ],
)
def test_kinds(cells: Sequence[object], kind: str, what: str) -> None:
    found = seen(list(cells))
    assert (found.kind, what in found.what) == (kind, True), found


def test_few_rows_are_no_ground_to_call_numbers_unique() -> None:
    assert look(pl.Series([1, 5, 9])).kind == "numbers"
    assert look(pl.Series(range(30))).kind == "identifier"


def test_a_name_makes_numbers_that_often_repeat_an_identifier() -> None:
    cells = [n * 3 // 2 % 40 for n in range(ROWS)]
    assert seen(cells).kind == "numbers"
    for name in ("patient_id", "ID", "serialno", "patientId"):
        assert seen(cells, name=name).kind == "identifier", name
    assert seen(cells, name="paid").kind == "numbers"


def test_more_words_than_can_be_categories() -> None:
    found = look(pl.Series([f"w{n % 250}" for n in range(1000)]))
    assert (found.kind, found.what) == ("unclear", "250 different words, too many for categories")


def test_words_among_numbers_stand_for_empty_cells_if_they_are_few() -> None:
    cells = [str(n % 30) for n in range(ROWS - 2)]
    found = seen([*cells, "unknown", "unknown"])
    assert (found.kind, found.odd, found.empty) == ("numbers", ("unknown",), 2)
    assert found.what == "0 to 29; 'unknown' as empty"
    several = [str(n % 30) for n in range(ROWS - 5)]
    assert seen([*several, "a", "b", "c", "d", "e"]).kind == "unclear"


def test_dates_of_which_nobody_knows_the_order() -> None:
    both, months, days = (
        pl.Series([f"{first}/2020", "03/04/2020"] * 30) for first in ("05/06", "05/16", "16/05")
    )
    assert order_of_dates([both]) == ("dmy", False)
    assert order_of_dates([both, months]) == ("mdy", True)
    assert order_of_dates([days, both]) == ("dmy", True)
    assert order_of_dates([days, months]) == ("ymd", True)  # neither is read
    assert order_of_dates([pl.Series(["2020-01-02"])]) == ("ymd", True)
    assert (look(both, "mdy").kind, look(both, "mdy").what) == ("dates", "2020-03-04 to 2020-05-06")


def test_an_amount_in_other_units_tells_the_classes_that_were_made_of_it() -> None:
    classes = [n // 15 for n in range(ROWS)]
    assert seen([1.1 * n + 7 for n in range(ROWS)], classes).kind == "copy of the label"
    assert seen(DRAW.normal(size=ROWS).round(4), classes).kind == "numbers"


def test_rare_classes_and_rare_categories_tell_nothing_by_chance() -> None:
    """A category of two rows knows their label, whatever it is."""
    names = [f"n{n // 2}" for n in range(ROWS)]
    assert seen(names, [n // 2 % 2 for n in range(ROWS)]).kind == "categories"


def test_who_looks_like_a_client_and_what_like_a_label() -> None:
    columns = {
        "age": list(range(20, 50)) * 2,
        "sex": ["m", "f"] * 30,
        "hospital": SITE,
        "outcome": Y.tolist(),
    }
    assert roles(pl.DataFrame(columns)) == Roles("hospital", "outcome")
    renamed = {"a": columns["age"], "b": columns["hospital"], "c": columns["outcome"]}
    assert roles(pl.DataFrame(renamed)) == Roles("b", "c")
    assert roles(pl.DataFrame({"x": DRAW.normal(size=ROWS)})) == Roles(None, None)
    assert roles(pl.DataFrame({"label": Y.tolist(), "text": [f"t{n}" for n in range(ROWS)]})) == Roles(
        None, "label"
    )
