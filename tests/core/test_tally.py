"""Counts of answers: what they hold, that they add up, and how exact the bins of log-odds are."""

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from fedcohort.core.tally import BINS, PER_UNIT, Tally
from fedcohort.stats.metrics import ranking_scores

CLIENT = torch.tensor([1, 0, 1, 1, 2])
LABEL = torch.tensor([0, 1, 0, 1, 1])
SAID = torch.tensor([0, 0, 1, 1, 1])
ODDS = torch.tensor([-0.5, -1e9, 0.0, 1 / PER_UNIT, torch.nan])


def test_samples_are_counted_by_client_class_and_answer() -> None:
    tally = Tally.of(CLIENT, LABEL, SAID, ODDS, 2)
    size, right, named = tally.by_class(3, 2)
    assert size.tolist() == [[0, 1], [2, 1], [0, 1]]
    assert right.tolist() == [[0, 0], [1, 1], [0, 1]]
    assert named.tolist() == [[1, 0], [1, 2], [0, 1]]
    grouped = tally.confusion(np.array([0, 1, 1]), 2, 2)
    assert grouped.tolist() == [[[0, 0], [1, 0]], [[1, 1], [0, 2]]]


def test_log_odds_are_counted_in_bins_around_zero_and_what_is_none_as_zero() -> None:
    odds = Tally.of(CLIENT, LABEL, SAID, ODDS, 2).odds
    middle = BINS // 2
    assert {(int(c), int(b)): int(odds[c, b]) for c, b in zip(*odds.nonzero(), strict=True)} == {
        (0, middle - PER_UNIT // 2): 1,
        (1, 0): 1,
        (0, middle): 1,
        (1, middle + 1): 1,
        (1, middle): 1,
    }
    assert Tally.of(CLIENT, LABEL, SAID, ODDS, 3).odds.shape == (0, BINS)


@pytest.mark.parametrize("classes", [2, 3])
def test_tallies_of_different_clients_add_up(classes: int) -> None:
    whole = Tally.of(CLIENT, LABEL, SAID, ODDS, classes)
    first, others = CLIENT == 0, CLIENT > 0
    parts = [
        Tally.of(client, LABEL[own], SAID[own], ODDS[own], classes).moved(start)
        for own, client, start in ((first, CLIENT[first], 0), (others, CLIENT[others] - 1, 1))
    ]
    for ours, theirs in zip(Tally.joined(parts), whole, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_a_client_tells_is_what_it_counted(classes: int) -> None:
    own = CLIENT == 1
    alone = Tally.of(CLIENT[own] * 0, LABEL[own], SAID[own], ODDS[own], classes)
    told = alone.of_one(classes)
    assert told["answers"].shape == (classes, classes)
    assert ("odds" in told) == (classes == 2)
    for ours, theirs in zip(Tally.told(1, told), alone.moved(1), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("samples", "rate", "spread", "off"),
    [(300, 0.5, 1.0, 0.002), (3000, 0.5, 1.0, 0.001), (3000, 0.02, 1.0, 0.005), (3000, 0.1, 0.2, 0.005)],
    ids=["few", "usual", "a rare class", "scores that hardly differ"],
)
def test_bins_are_narrower_than_what_so_few_samples_tell(
    samples: int, rate: float, spread: float, off: float
) -> None:
    """AUROC and average precision are nearly those of the scores themselves, which so many samples tell only
    to 0.01 at best."""
    draw = np.random.default_rng(5)
    for _ in range(5):
        label = (draw.random(samples) < rate).astype(int)
        odds = np.log(rate / (1 - rate)) + spread * (draw.standard_normal(samples) + 1.5 * (label - 0.5))
        said = torch.from_numpy(odds > 0).long()
        nobody = torch.zeros(samples, dtype=torch.long)
        tally = Tally.of(nobody, torch.from_numpy(label), said, torch.from_numpy(odds), 2)
        exact = sk.roc_auc_score(label, odds), sk.average_precision_score(label, odds)
        assert ranking_scores(tally.odds) == pytest.approx(exact, abs=off)
