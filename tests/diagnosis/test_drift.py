"""Drift: PSI of new against old labels, client by client; numbers by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedcohort.diagnosis.drift import band, chance, measure_drift
from fedcohort.diagnosis.read import Counts
from fedcohort.runs.about import About
from fedcohort.runs.stored import FinishedRun, RunSettings
from fedcohort.util.errors import UserError


def counts(classes: str = "ab", **clients: list[int]) -> Counts:
    return Counts(np.array(list(clients.values())), list(clients), list(classes))


def run_with(**group: int) -> FinishedRun:
    asked = RunSettings({"rounds": 1, "seeds": [0], "method": ["fedavg"]}, Path("run"))
    about = About.rebuilt("fedavg", asked.privacy, elsewhere=False)
    return FinishedRun(Path("run"), asked, about, group)


def test_psi_by_hand():
    """1000 of each time, half a sample added: (600.5, 400.5) / 1001 to (450.5, 550.5) / 1001.

    PSI = (150 / 1001) (ln(600.5 / 450.5) + ln(550.5 / 400.5)) = .149850 (.287405 + .318113) = .090737.
    """
    drift = measure_drift(counts(x=[600, 400]), counts(x=[450, 550]))
    assert drift.psi == pytest.approx([0.090737], abs=1e-6)
    assert drift.bands == ["stable"]
    assert drift.shift[0] == pytest.approx([-0.15, 0.15])


@pytest.mark.parametrize(
    ("psi", "name"),
    [(0.0, "stable"), (0.0999, "stable"), (0.1, "moderate"), (0.2499, "moderate"), (0.25, "major")],
)
def test_bands_of_credit_scoring(psi, name):
    assert band(psi) == name


def test_chance_by_hand():
    """The 95 % quantile of chi-square is 3.8415 with one degree of freedom and 5.9915 with two; times 1/50 +
    1/100. A class that neither table holds is no degree of freedom; one class alone cannot shift."""
    old = np.array([[25, 25, 0], [20, 20, 10], [50, 0, 0]], dtype=float)
    expected = [3.841459 * 0.03, 5.991465 * 0.03, 0.0]
    assert chance(old, 2 * old) == pytest.approx(expected, abs=1e-6)


def test_small_clients_shift_by_luck():
    """The same shares, 10 and 1000 samples: PSI is above 0.1, but only the large client proves it."""
    drift = measure_drift(counts(small=[6, 4], large=[600, 400]), counts(small=[4, 6], large=[400, 600]))
    assert (drift.psi > 0.1).all()
    assert drift.by_luck.tolist() == [True, False]
    assert drift.bands == ["chance", "moderate"]
    assert [client["band"] for client in drift.to_dict()["clients"]] == ["chance", "moderate"]


def test_samples_of_one_distribution_seldom_exceed_chance():
    """One time in twenty, by construction: 400 clients give 20 ± 4.4."""
    random = np.random.default_rng(0)
    old, new = random.multinomial(500, [0.5, 0.3, 0.2], size=(2, 400))
    names = [f"c{k}" for k in range(400)]
    drift = measure_drift(Counts(old, names, list("abc")), Counts(new, names, list("abc")))
    assert 7 <= (~drift.by_luck).sum() <= 33


def test_clients_and_classes_are_matched_by_name():
    old, new = (
        counts("ab", x=[90, 10], y=[50, 50], gone=[1, 1]),
        counts("cb", y=[50, 50], come=[5, 5], x=[9, 1]),
    )
    drift = measure_drift(old, new)
    assert drift.clients == ["x", "y"]
    assert drift.classes == ["a", "b", "c"]
    assert drift.new.tolist() == [[0, 1, 9], [0, 50, 50]]
    assert drift.notes == (
        "Only the old table has the clients gone.",
        "Only the new table has the clients come.",
        "Only the old table has the classes a.",
        "Only the new table has the classes c.",
    )


def test_who_should_change_group():
    """x turned from a-heavy to b-heavy; y moved a little, and z so little that luck explains it."""
    old = counts(x=[90, 10], y=[85, 15], u=[10, 90], v=[15, 85], z=[6, 5])
    new = counts(x=[10, 90], y=[80, 20], u=[10, 90], v=[15, 85], z=[5, 6])
    drift = measure_drift(old, new, run_with(x=0, y=0, u=1, v=1, z=0))
    assert list(drift.moved) == ["x"]
    moved = drift.moved["x"]
    assert (moved.group, moved.nearest) == (0, 1)
    assert moved.nearest_distance < moved.distance
    assert drift.rule.startswith("Hellinger")
    json.dumps(drift.to_dict())


def test_who_never_was_nearest_to_its_group_is_not_judged():
    old, new = counts(x=[90, 10], u=[10, 90], w=[12, 88]), counts(x=[90, 10], u=[10, 90], w=[2, 98])
    drift = measure_drift(old, new, run_with(x=0, u=1, w=0))
    assert drift.moved == {}
    assert drift.notes[-1].startswith("Nearer to another group before already, and so not judged: 1")


def test_mistakes():
    with pytest.raises(UserError, match="no client is in both tables"):
        measure_drift(counts(x=[1, 1]), counts(y=[1, 1]))
    with pytest.raises(UserError, match="client 'x' has no samples in one of the tables"):
        measure_drift(counts(x=[1, 1]), counts(x=[0, 0]))
    with pytest.raises(UserError, match="client 'x' was not in the run"):
        measure_drift(counts(x=[1, 1]), counts(x=[1, 1]), run_with(other=0))
