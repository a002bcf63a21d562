"""The cross-checks' own promises: what counts as agreement, and that the page tells what was found.

The packages compared live in environments of their own (``make crosscheck``); here runs what needs none.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.runners import RunError
from crosschecks import clustering, ours, rows, run
from crosschecks.rows import Pair, Reason, Row, table
from support import REPOSITORY

PAGE = REPOSITORY / "docs" / "crosschecks.md"
NAN = float("nan")


@pytest.mark.parametrize(
    ("difference", "reason", "verdict"),
    [
        (1e-6, "", "same"),
        (2e-5, "", "UNEXPECTED"),
        (NAN, "", "UNEXPECTED"),
        (0.1, "why", "differs"),
        (1e-4, "why", "UNEXPECTED"),  # the reason no longer holds
        (NAN, "why", "does not run"),
    ],
)
def test_verdicts(difference: float, reason: str, verdict: str) -> None:
    row = Row("what", "ours", "theirs", difference, 1.0, reason)
    assert row.verdict == verdict
    assert row.holds == (verdict != "UNEXPECTED")


def test_a_path_is_compared_round_by_round() -> None:
    """From 0, ours moves to 3; theirs is 0.5 away in the first round and equal in the last."""
    row = Pair("FedX", "fedx", "X").row([[1.0, 1.0], [3.0, 2.0]], [[1.0, 1.5], [3.0, 2.0]], np.zeros(2))
    assert (row.difference, row.scale, row.verdict) == (0.5, 3.0, "UNEXPECTED")


def test_a_peer_that_failed_is_quoted() -> None:
    pair = Pair("FedX", "fedx", "X", Reason("nobody", "It has no lr."))
    row = pair.row([[1.0]], ["AttributeError: lr"], np.zeros(1))
    assert (row.theirs, row.verdict) == ("X: AttributeError: lr", "does not run")


def test_reasons_are_numbered_once() -> None:
    same = [Row("a", "o", "t", 1.0, 1.0, "why"), Row("b", "o", "t", 1.0, 1.0, "why")]
    text = table([*same, Row("c", "o", "t", 0.0, 1.0)])
    assert text.count("differs (1)") == 2
    assert text.endswith("| c | o | t | 0.0e+00 | 1 | same |\n\n1. why")


def test_a_reason_names_the_one_line_it_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "peer" / "lib" / "python3.11" / "site-packages"
    package.mkdir(parents=True)
    (package / "x.py").write_text("a = 1\nb = 2\nc = 2\n")
    monkeypatch.setattr(rows, "environment", lambda peer: tmp_path / peer)
    assert str(Reason("peer", "See {}.", (("x.py", "b ="),))) == "See `x.py:2`."
    with pytest.raises(RunError, match="in 2 lines"):
        str(Reason("peer", "See {}.", (("x.py", "= 2"),)))


def test_scripted_clients_move_the_model_by_their_weighted_mean() -> None:
    """FedAvg's path is the running sum of the deltas' means by size."""
    moves = ours.make_moves(params=20)
    mean = np.einsum("rkp,k->rp", moves.deltas.astype(float), moves.sizes / moves.sizes.sum())
    expected = moves.init + mean.cumsum(axis=0)
    assert ours.take_steps("fedavg", moves) == pytest.approx(expected, abs=1e-5)


def test_clients_of_equal_size_are_cut_to_the_smallest() -> None:
    steps = [1] * ours.CLIENTS
    free, equal = ours.make_training(steps), ours.make_training(steps, equal=True)
    assert set(np.bincount(equal.owner)) == {np.bincount(free.owner).min()}


def test_groups_agree_with_scikit_learn() -> None:
    found = [*clustering.by_loss_curves(), *clustering.by_updates(), *clustering.scores()]
    assert [row.what for row in found if not row.holds] == []


def test_groups_that_differ_are_noticed() -> None:
    """{0, 1}, {2, 3} against {0, 2}, {1, 3}: an adjusted Rand index of -1/2."""
    row = clustering.same_groups("x", "ours", "theirs", [0, 0, 1, 1], np.array([5, 7, 5, 7]))
    assert row.difference == pytest.approx(1.5)
    assert not row.holds


def test_the_page_holds_every_check_and_nothing_unexpected() -> None:
    page = PAGE.read_text()
    assert page.startswith(run.INTRODUCTION)
    for check in run.CHECKS:
        assert f"## {check.TITLE}\n\n{check.ABOUT}" in page
    assert "UNEXPECTED" not in page


def test_requirements_pin_every_package() -> None:
    files = [*Path(run.__file__).parent.glob("peers/requirements-*.txt")]
    lines = [line for file in files for line in file.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all("==" in line for line in lines)
