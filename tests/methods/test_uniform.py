"""Uniform sampling: every subset of the wanted size is equally likely, without replacement."""

from collections import Counter
from itertools import combinations

import torch

from fedcohort.methods.uniform import Uniform
from support.toy import profile_of, round_of

FIVE = profile_of([[1, 1]] * 5)


def test_each_pair_has_probability_one_tenth():
    """4000 draws of 2 out of 5: each of the ten pairs is expected 400 times, deviation sqrt(360) = 19."""
    draws = Counter(
        frozenset(Uniform().select({}, round_of(FIVE, 2, number), None).tolist()) for number in range(4000)
    )
    assert set(draws) == {frozenset(pair) for pair in combinations(range(5), 2)}
    assert all(abs(times - 400) < 5 * 19 for times in draws.values())


def test_only_members_and_never_twice():
    now = round_of(profile_of([[1, 1], [0, 0], [2, 1], [1, 0]]), 3)
    assert sorted(Uniform().select({}, now, None).tolist()) == [0, 2, 3]  # client 1 has no data


def test_the_round_and_the_seed_decide():
    draw = [Uniform().select({}, round_of(FIVE, 3, number), None) for number in (0, 0, 1, 2, 3)]
    assert draw[0].equal(draw[1])
    assert any(not draw[0].equal(other) for other in draw[2:])
    other = [Uniform().select({}, round_of(profile_of([[1, 1]] * 5, seed=1), 3, n), None) for n in range(4)]
    assert not torch.stack(other).equal(torch.stack(draw[1:]))
