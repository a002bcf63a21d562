"""Which cells of a table a pattern names."""

import pytest

from fedcohort.runs.replication.folders import Cell
from fedcohort.runs.replication.replication import chosen
from fedcohort.util.errors import UserError

CELLS = [
    Cell(f"p/{c}", f"p/{m}") for c in ("mnist", "fmnist/alpha=0.05") for m in ("fedavg", "fedavgm", "fedlecc")
]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("*", [0, 1, 2, 3, 4, 5]),
        ("fedavg", [0, 3]),
        ("fedavg*@mnist", [0, 1]),
        ("@alpha=0.05", [3, 4, 5]),
        ("fedlecc, fedavg@fmnist/*", [2, 3, 5]),
    ],
)
def test_cells_are_chosen_by_patterns(text: str, places: list[int]) -> None:
    assert chosen(CELLS, text, "p") == [CELLS[place] for place in places]


def test_commas_between_settings_part_no_patterns() -> None:
    cells = [Cell("c", "p/cfl(eps1=0.4, relative=True)"), Cell("c", "fedavg")]
    assert chosen(cells, "cfl(eps1=0.4, relative=True)@c", "p") == cells[:1]
    assert chosen(cells, "cfl(eps1=0.4, relative=True),fedavg", "p") == cells


@pytest.mark.parametrize("text", ["", "@", "fedavg,", ", fedavg@mnist"])
def test_a_pattern_of_nothing_is_not_one_of_all(text: str) -> None:
    with pytest.raises(UserError, match="there is no such cell"):
        chosen(CELLS, text, "p")


def test_a_label_may_hold_what_parts_methods_from_conditions() -> None:
    cells = [Cell("p/mnist", "a@b")]
    assert chosen(cells, "a@b@mnist", "p") == cells
    with pytest.raises(UserError, match="methods: a@b; conditions: mnist"):
        chosen(cells, "fedavg", "p")


def test_a_pattern_that_fits_nothing_is_told_what_there_is() -> None:
    known = "methods: fedavg, fedavgm, fedlecc; conditions: mnist, fmnist/alpha=0.05"
    with pytest.raises(UserError, match=f"--cells fedprox: there is no such cell; {known}"):
        chosen(CELLS, "fedavg,fedprox", "p")
