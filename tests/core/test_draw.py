"""Round.draw: distinct members at random, by odds if there are any."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from support.toy import profile_of, round_of, updates_of

FOUR = profile_of([[1, 1]] * 4)


def share_of_first(odds: torch.Tensor | None, given: torch.Tensor | None) -> list[float]:
    """How often each client is drawn first, in 2000 rounds."""
    rounds = (replace(round_of(FOUR, 1, number), odds=given) for number in range(2000))
    firsts = Counter(int(now.draw("select", odds)) for now in rounds)
    return [firsts[client] / 2000 for client in range(4)]


def test_without_odds_everybody_is_as_likely():
    assert share_of_first(None, None) == pytest.approx([0.25] * 4, abs=0.04)


@pytest.mark.parametrize(
    ("odds", "given", "expected"),
    [
        ([1, 2, 3, 4], None, [0.1, 0.2, 0.3, 0.4]),
        (None, [1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]),
        ([1, 2, 3, 4], [4, 3, 2, 1], [0.2, 0.3, 0.3, 0.2]),  # 4, 6, 6, 4
    ],
)
def test_odds_of_selector_and_grouping_multiply(odds, given, expected):
    tensors = (None if values is None else torch.tensor(values) for values in (odds, given))
    assert share_of_first(*tensors) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("odds", [None, torch.tensor([1, 5, 1, 1])])
def test_members_are_distinct_and_as_many_as_wanted(odds):
    now = replace(round_of(FOUR, 2), members=torch.tensor([0, 1, 2, 3]))
    assert len(set(now.draw("select", odds).tolist())) == 2
    assert sorted(now.draw("select", odds, count=4).tolist()) == [0, 1, 2, 3]
    assert now.draw("select", odds).equal(now.draw("select", odds))
    purposes = {tuple(now.draw(purpose, odds, 4).tolist()) for purpose in "abcdefgh"}
    assert len(purposes) > 1


def test_groups_draw_by_themselves():
    """Two groups of the same clients: the same draw in all of twenty rounds would be no chance."""
    rounds = [[replace(round_of(FOUR, 2, number), group=group) for number in range(20)] for group in (0, 1)]
    first, second = ([now.draw("select").tolist() for now in own] for own in rounds)
    assert first != second


def test_a_part_of_the_updates_has_its_own_rows_and_columns():
    table = torch.arange(9.0).view(3, 3)
    updates = updates_of([0, 1, 2], cross=table, cross_size=torch.tensor([5, 6, 7]))
    part = updates.where(torch.tensor([True, False, True]))
    assert part.cross.tolist() == [[0, 2], [6, 8]]
    assert part.cross_size.tolist() == [5, 7]
