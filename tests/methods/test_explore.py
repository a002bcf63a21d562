"""FedGWC's sampling: odds proportional to exp(-times chosen)."""

from dataclasses import replace

import pytest
import torch

from fedcohort.methods.explore import Explore, exploring_odds
from support.toy import profile_of, round_of, updates_of

FOUR = profile_of([[1, 1]] * 4)


def test_odds():
    """c = 0, 1, 2, 0: (1, 1/e, 1/e^2, 1) / 2.5032147."""
    odds = exploring_odds(torch.tensor([0.0, 1, 2, 0]))
    assert odds.tolist() == pytest.approx([0.399486305, 0.146962799, 0.054064592, 0.399486305])


def test_only_differences_count_and_none_underflows():
    assert exploring_odds(torch.tensor([1000.0, 1001])).equal(exploring_odds(torch.tensor([0.0, 1])))
    assert exploring_odds(torch.tensor([0.0, 5000])).min() > 0


def test_the_chosen_are_counted_whether_or_not_they_answered():
    part, now = Explore(), replace(round_of(FOUR, 2), selected=torch.tensor([3, 1]))
    memory = part.observe(part.init_selector(FOUR), now, updates_of([1]))
    assert memory["times"].tolist() == [0, 1, 0, 1]
    memory = part.observe(memory, now, updates_of([]))
    assert memory["times"].tolist() == [0, 2, 0, 2]


def test_counting_starts_anew_when_the_group_changes():
    part, now = Explore(), replace(round_of(FOUR, 2), selected=torch.tensor([0, 1]))
    memory = part.observe(part.init_selector(FOUR), now, updates_of([]))
    smaller = replace(now, members=torch.tensor([0, 1, 2]), selected=torch.tensor([0]))
    assert part.observe(memory, smaller, updates_of([]))["times"].tolist() == [1, 0, 0, 0]


def test_everybody_has_a_turn_sooner_than_by_chance():
    """20 clients, 4 a round: after 6 rounds uniform sampling leaves .8^6 = 26 % of them unseen, about 5."""
    part, seen = Explore(), []
    for seed in range(10):
        profile = profile_of([[1, 1]] * 20, seed=seed)
        memory = part.init_selector(profile)
        for number in range(6):
            now = round_of(profile, 4, number)
            chosen = part.select(memory, now, None)
            assert len(set(chosen.tolist())) == 4
            memory = part.observe(memory, replace(now, selected=chosen), updates_of([]))
        seen.append(int((memory["times"] > 0).sum()))
    assert sum(seen) / len(seen) > 17
