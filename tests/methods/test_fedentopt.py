"""FedEntOpt: a random first client, then whoever makes the labels most uniform; the chosen rest a while."""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.profile import Privacy, Profile
from fedcohort.core.records import Memory
from fedcohort.methods.fedentopt import FedEntOpt
from fedcohort.stats.entropy import entropy
from fedcohort.stats.metrics import cohort_entropy
from support.toy import profile_of, round_of, updates_of

THREE_CLASSES = [[10, 0, 0], [0, 10, 0], [0, 0, 10], [5, 5, 0], [0, 5, 5], [9, 1, 0]]
TWO_CLASSES = [[10, 0], [0, 10], [8, 2], [7, 3], [6, 4]]


def play_rounds(
    part: FedEntOpt, profile: Profile, cohort: int, rounds: int
) -> tuple[list[list[int]], Memory]:
    """The cohorts of some rounds, through the hooks the round loop calls, and the memory after."""
    memory, cohorts = part.init_selector(profile), []
    for number in range(rounds):
        now = round_of(profile, cohort, number)
        chosen = part.select(memory, now, None)
        memory = part.observe(
            memory, replace(now, selected=chosen), updates_of([])
        )  # nobody answers: no matter
        cohorts.append(chosen.tolist())
    return cohorts, memory


def play_from(
    firsts: tuple[int, ...], counts: list[list[int]], part: FedEntOpt, cohort: int
) -> list[list[int]]:
    """The cohorts under the first seed whose random first picks are ``firsts``."""
    for seed in range(2000):
        cohorts, _ = play_rounds(part, profile_of(counts, seed=seed), cohort, len(firsts))
        if tuple(chosen[0] for chosen in cohorts) == firsts:
            return cohorts
    raise AssertionError("no seed gives these first picks")


def test_three_classes_two_rounds():
    """M = Q = 3. From client 0, (10,5,5) has 1.5 bits: client 4. Then clients 1, 2, 3 tie at 1.459: client 1.

    Round 2 without {0, 4, 1}, from client 3: (5,5,10) has 1.5 bits, client 2; only client 5 is left.
    """
    assert play_from((0, 3), THREE_CLASSES, FedEntOpt(buffer=3), 3) == [[0, 4, 1], [3, 2, 5]]
    assert entropy(torch.tensor([[10.0, 5, 5], [10, 15, 5]]).double()).tolist() == pytest.approx(
        [1.5, 1.459147917]
    )


def test_a_client_pushed_out_of_the_buffer_returns_only_next_round():
    """M = Q = 2. Round 1 is [1, 0]. In round 2 the second pick pushes one of them out of the buffer.

    Could it return at once, round 2 would be [2, 1] with (8,12), .971 bits; it is [2, 4] with (14,6), .881.
    """
    assert play_from((1, 2), TWO_CLASSES, FedEntOpt(buffer=2), 2) == [[1, 0], [2, 4]]
    assert entropy(torch.tensor([[14.0, 6], [8, 12]]).double()).tolist() == pytest.approx(
        [0.881290899, 0.970950594]
    )


def test_a_buffer_too_large_is_shortened_and_said_so():
    """K = 5, M = 2, Q = 4 would run dry at the second pick of round 3; Q = 3 = K - M never does."""
    profile = profile_of(TWO_CLASSES)
    with pytest.warns(RuntimeWarning, match="a buffer of 4 leaves too few clients for a full cohort"):
        shortened, _ = play_rounds(FedEntOpt(buffer=4), profile, 2, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact, _ = play_rounds(FedEntOpt(buffer=3), profile, 2, 12)
    assert shortened == exact
    assert all(len(set(chosen)) == 2 for chosen in exact)


def test_the_buffer_is_the_latest_picks_latest_first():
    cohorts, memory = play_rounds(FedEntOpt(buffer=3), profile_of(THREE_CLASSES), 3, 2)
    assert memory["buffer"][:6].tolist() == [*cohorts[1][::-1], *cohorts[0][::-1]]


@pytest.mark.parametrize(("buffer", "rests"), [(4, 2), (6, 3), (0.5, 3)])
def test_a_client_rests_q_over_m_rounds(buffer, rests):
    """K = 12, M = 2: with Q = 4 or 6 (also as the share .5) a client sits out exactly Q / M rounds."""
    profile = profile_of([[5 + k, 20 - k] for k in range(12)])
    cohorts, _ = play_rounds(FedEntOpt(buffer=buffer), profile, 2, 40)
    gaps = [
        next((n for n, later in enumerate(cohorts[number + 1 :]) if client in later), None)
        for number, chosen in enumerate(cohorts)
        for client in chosen
    ]
    assert min(gap for gap in gaps if gap is not None) == rests


def test_no_buffer_still_picks_nobody_twice_in_a_round():
    cohorts, _ = play_rounds(FedEntOpt(buffer=0), profile_of(TWO_CLASSES), 3, 20)
    assert all(len(set(chosen)) == 3 for chosen in cohorts)
    assert any(set(one) & set(other) for one, other in pairwise(cohorts))


def test_an_empty_client_is_never_picked():
    """With (5, 5) so far, nothing (1 bit) would beat (9, 1) (.881 bits): so it must not be asked at all."""
    cohorts, _ = play_rounds(FedEntOpt(buffer=0), profile_of([[5, 5], [0, 0], [9, 1]]), 2, 5)
    assert all(sorted(chosen) == [0, 2] for chosen in cohorts)


def test_random_ties():
    """From client 0 the clients 1, 2 and 3 are equally good; the others never are."""
    counts = torch.tensor([[10.0, 0], [0, 10], [0, 10], [0, 10], [10, 0]], dtype=torch.float64)
    key = torch.Generator().manual_seed(0)
    picks = {FedEntOpt(ties="random").grow(0, torch.arange(5), counts, 2, key)[1] for _ in range(40)}
    assert picks == {1, 2, 3}
    assert FedEntOpt().grow(0, torch.arange(5), counts, 2, key) == [0, 1]


def test_growing_counts_samples_not_shares():
    """From (10, 0): (0, 10) reaches 1 bit, (0, 100) only .44: counts, not distributions, are added."""
    counts = torch.tensor([[10.0, 0], [0, 100], [0, 10]], dtype=torch.float64)
    assert FedEntOpt().grow(0, torch.arange(3), counts, 2) == [0, 2]


@pytest.mark.parametrize(
    ("epsilon", "given", "expected"),
    [
        (None, Privacy(), Privacy()),
        (0.5, Privacy(), Privacy("noised", 0.5)),
        (0.5, Privacy("noised", 0.1), Privacy("noised", 0.1)),  # the stricter of the two
        (0.5, Privacy("noised", 2.0), Privacy("noised", 0.5)),
    ],
)
def test_the_stricter_privacy_holds(epsilon, given, expected):
    assert FedEntOpt(epsilon=epsilon).privacy(given) == expected


def test_withheld_counts_stay_withheld():
    assert FedEntOpt(epsilon=0.5).privacy(Privacy("withheld")).counts == "withheld"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=2, max_size=7),
    st.integers(1, 7),
    st.data(),
)
def test_each_pick_is_the_best_there_was(counts, cohort, data):
    """Greedy by definition, recomputed with plain logarithms."""
    table = torch.tensor(counts, dtype=torch.float64)
    first = data.draw(st.integers(0, len(counts) - 1))
    chosen = FedEntOpt().grow(first, torch.arange(len(counts)), table, cohort)
    assert len(chosen) == len(set(chosen)) == min(cohort, len(counts))

    def entropy(clients: list[int]) -> float:
        share = table[clients].sum(0) / table[clients].sum().clamp(min=1)
        return -sum(float(p) * float(p.log2()) for p in share if p > 0)

    for place in range(1, len(chosen)):
        others = [c for c in range(len(counts)) if c not in chosen[:place]]
        best = max(entropy([*chosen[:place], other]) for other in others)
        assert entropy(chosen[: place + 1]) == pytest.approx(best, abs=1e-9)


def test_looking_at_a_sample_costs_hardly_any_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 skewed clients: picks among 100 at random stay within a hundredth of a bit of the best."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet([0.1] * 10, size=2000)
    counts = torch.from_numpy(np.stack([rng.multinomial(200, mix) for mix in mixes]).astype(float))
    every = cohort_entropy(counts[FedEntOpt().grow(0, torch.arange(2000), counts, 20)].numpy())
    monkeypatch.setattr("fedcohort.methods.fedentopt.MANY", 1000)
    monkeypatch.setattr("fedcohort.methods.fedentopt.LOOKED_AT", 100)
    chosen = FedEntOpt().grow(0, torch.arange(2000), counts, 20, torch.Generator().manual_seed(0))
    assert 0 < every - cohort_entropy(counts[chosen].numpy()) < 0.01


def test_a_share_of_the_buffer_is_of_the_group():
    """Ten clients, of whom four are in the group: half of four rest, not half of ten."""
    now = replace(round_of(profile_of([[1, 1]] * 10), 1), members=torch.tensor([0, 3, 5, 8]))
    assert FedEntOpt(buffer=0.5).capacity(now) == 2
