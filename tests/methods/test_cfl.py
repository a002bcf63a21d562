"""CFL: when a group is torn, and where it tears.

Reference vectors asserted here: cfl1, cfl2, cfl2_brute, cfl_gamma.
"""

from itertools import combinations

import numpy as np
import pytest
import torch

from fedcohort.core.evaluate import settle
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Updates
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.cfl import CFL
from fedcohort.stats.clustering import bipartition, cosines, separation
from fedcohort.testing import accuracy, play, tiny_task
from support.toy import (
    Cohorts,
    play_method,
    play_toy,
    position,
    profile_of,
    round_of,
    toy_task,
    two_languages,
    updates_of,
)

CROSS = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
ANGLES = np.radians([3, 32, 60, 90, 118, 173])  # gaps differ where rounding would decide between equal ones
FAN = torch.tensor(np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1))


def moved(delta: torch.Tensor, **fields: torch.Tensor) -> Updates:
    updates = updates_of(range(len(delta)), **fields)
    updates.up["delta"] = delta
    return updates


def across(similarity: np.ndarray, labels: np.ndarray) -> float:
    return float(similarity[np.ix_(labels == 0, labels == 1)].max())


def test_the_worked_example():
    """The mean is 0, each norm sqrt(1.01); (1, .1) and (-1, .1) have cosine -.99 / 1.01."""
    mean, largest = CFL().norms(moved(CROSS))
    assert (mean, largest) == pytest.approx((0.0, 1.004987562112089))
    similarity = cosines(CROSS)
    labels = bipartition(similarity, "complete", apart=0.5)
    assert labels.tolist() == [0, 0, 1, 1]
    assert across(similarity, labels) == pytest.approx(-0.9801980198019804)
    assert separation(similarity, labels) == pytest.approx(0.9950371902099892)


def test_linkages_differ_and_single_is_optimal():
    """Complete linkage cuts the fan in the middle, cos 30; single cuts off the last, cos 55, the best cut."""
    similarity = cosines(FAN)
    complete, single = (bipartition(similarity, each, apart=0.0) for each in ("complete", "single"))
    assert complete.tolist() == [0, 0, 0, 1, 1, 1]
    assert single.tolist() == [0, 0, 0, 0, 0, 1]
    assert across(similarity, complete) == pytest.approx(0.8660254037844386)
    assert across(similarity, single) == pytest.approx(0.5735764363510459)
    cuts = [
        np.isin(np.arange(6), part).astype(int)
        for size in range(1, 6)
        for part in combinations(range(1, 6), size)
    ]
    assert min(across(similarity, cut) for cut in cuts) == pytest.approx(0.5735764363510459)


@pytest.mark.parametrize(("gamma", "limit"), [(0.1, 0.98), (0.5, 0.5), (0.9, -0.62)])
def test_gamma_bounds_the_similarity_across(gamma, limit):
    """sqrt((1 - s) / 2) > gamma means s < 1 - 2 gamma^2."""
    for s, splits in ((limit - 1e-6, True), (limit + 1e-6, False)):
        similarity = np.array([[1.0, s], [s, 1.0]])
        assert bipartition(similarity, "complete", apart=gamma).any() == splits


def test_gamma_keeps_a_group_together():
    """CROSS is separated by .995: a gamma above that is not reached."""
    for gamma, groups in ((0.99, [0, 0, 1, 1]), (0.999, [0, 0, 0, 0])):
        part, profile = CFL(eps1=0.5, eps2=0.5, gamma=gamma), profile_of([[1, 1]] * 4)
        after = part.assign(part.init_grouping(profile), moved(CROSS), round_of(profile, 4))
        assert after["group"].tolist() == groups


def test_a_zero_update_is_like_nobody():
    assert cosines(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist() == [[0, 0], [0, pytest.approx(1)]]


def test_the_mean_is_by_samples_or_even():
    """Sizes 10, 30: (10 (1, 0) + 30 (0, 1)) / 40 has norm sqrt(1 + 9) / 4; the even mean sqrt(2) / 2."""
    updates = moved(torch.eye(2), size=torch.tensor([10, 30]))
    assert CFL().norms(updates)[0] == pytest.approx(10**0.5 / 4)
    assert CFL(weighted=False).norms(updates)[0] == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(("eps1", "eps2", "torn"), [(0.1, 1.0, True), (0.1, 1.01, False), (0.0, 1.0, False)])
def test_both_norms_decide(eps1, eps2, torn):
    assert CFL(eps1=eps1, eps2=eps2).is_torn(*CFL().norms(moved(CROSS)), largest=9.0) == torn


def test_rest_may_be_relative_to_the_largest_mean_update():
    """Movements .2, -.16, .2, -.16 of mean .02; the round before everybody moved by .2 and more.

    A tenth of .02 itself is never undercut; a fifth of .22 is .044.
    """
    part, profile = CFL(eps1=0.2, eps2=0.1, relative=True), profile_of([[1, 1]] * 4)
    before = part.init_grouping(profile)
    pulled = moved(torch.tensor([[0.2], [-0.16], [0.2], [-0.16]]))
    assert not part.assign(before, pulled, round_of(profile, 4))["group"].any()
    after = part.assign(before, moved(torch.full((4, 1), 0.22)), round_of(profile, 4))
    assert part.assign(after, pulled, round_of(profile, 4))["group"].tolist() == [0, 1, 0, 1]


SPLITTING = "cfl(eps1=0.05, eps2=0.1)"
FOUR = {"sizes": (10,) * 4, "steps": (1,) * 4, "curvature": (1.0,) * 4}


def test_children_aggregate_their_own_members():
    """b = 3, -1, 3.2, -1.2 from 1: movements .2, -.2, .22, -.22 cancel; the halves go to 1.21 and .79."""
    (state,) = play_toy(SPLITTING, (0, 1, 2, 3), task=toy_task((3, -1, 3.2, -1.2), **FOUR))
    assert state.grouping["group"].tolist() == [0, 1, 0, 1]
    assert [position(state, g) for g in range(2)] == pytest.approx([1.21, 0.79], abs=1e-6)


def test_a_split_keeps_the_model_it_started_from():
    """Both halves leave group 0, which stays at 1: group 1 is the second half, at .79, group 2 is at 1.101.

    A client that is evaluated returns to 1 if that serves it better: client 2 (b = 1.02) does, client 0
    (b = 3) does not. Nothing is asked in training.
    """
    task = toy_task((3, -1, 1.02, -1.2), **FOUR)
    method = Method.of(Cohorts(((0, 1, 2, 3), ())), CFL(eps1=1, eps2=0.1, ancestors=True))
    first, second = play_method(method, task, 2)
    assert first.grouping["group"].tolist() == second.grouping["group"].tolist() == [2, 1, 2, 1]
    assert [position(first, g) for g in range(3)] == pytest.approx([1.0, 0.79, 1.101], abs=1e-6)
    assert second.bytes_down == first.bytes_down
    settled = settle(method, second, task.profile(method), ReferenceEngine(task))
    assert settled.grouping["group"].tolist() == [2, 1, 0, 1]


def test_until_it_splits_it_is_fedavg_bit_for_bit():
    ours, theirs = (play(Method.parse(text), tiny_task(), 3)[0] for text in ("cfl(eps1=0)", "fedavg"))
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


def test_a_second_split_moves_the_right_clients():
    """Groups {0, 2, 4} and {1, 3, 5}; the second is torn between {1, 5} and {3}: those clients, not the

    first ones.
    """
    part, profile = CFL(eps1=0.5, eps2=1.0), profile_of([[1, 1]] * 6)
    memory = {**part.init_grouping(profile), "group": torch.tensor([0, 1] * 3)}
    calm = torch.tensor([0.1, 0.0])
    delta = torch.stack(
        [
            calm,
            *torch.tensor([[2.0, 0.1]]),
            calm,
            *torch.tensor([[-4.0, 0.0]]),
            calm,
            *torch.tensor([[2.0, -0.1]]),
        ]
    )
    updates = moved(delta, group=memory["group"])
    assert part.assign(memory, updates, round_of(profile, 6))["group"].tolist() == [0, 1, 0, 2, 0, 1]


def test_a_torn_cohort_calls_the_whole_group_before_it_splits():
    """Clients 0 and 1 cancel in round 1; in round 2 everybody trains, whoever would have been chosen."""
    task = toy_task((3, -1, 3, -1), **FOUR)
    first, second = play_toy(SPLITTING, (0, 1), (0, 1), task=task)
    assert len(first.groups) == 1
    assert second.grouping["group"].tolist() == [0, 1, 0, 1]
    assert second.bytes_up - first.bytes_up == 4 * (4 + 20)  # of one number, and what goes with it


def test_a_call_that_finds_no_tear_is_over():
    """Together with clients 2 and 3, the group still moves."""
    task = toy_task((3, -1, 3, 3), **FOUR)
    states = play_toy(SPLITTING, (0, 1), (0, 1), (0,), task=task)
    assert [len(state.groups) for state in states] == [1, 1, 1]
    assert states[2].bytes_up - states[1].bytes_up == 4 + 20


@pytest.mark.parametrize(
    ("b", "group"), [((3, -3, 3, 3), [0, 1, 0, 0]), ((-3, 3, 3, 3), [0, 1, 1, 1])], ids=["first", "second"]
)
def test_who_stays_away_goes_with_the_larger_half(b, group):
    """Client 3 never answers: {0, 2} and {1} of those who do, so it stays with {0, 2}; or it goes with {1, 2}
    and leaves {0}."""
    task = toy_task(b, **FOUR)
    states = play_toy("cfl(eps1=1, eps2=0.1)", (0, 1), (0, 1), task=task, lost=(3,))
    assert states[1].grouping["group"].tolist() == group


def test_two_clients_are_never_split_and_the_first_rounds_may_be_spared():
    pair = toy_task((3, -1), (10, 10), (1, 1))
    assert len(play_toy(SPLITTING, (0, 1), task=pair)[0].groups) == 1
    late = play_toy(
        "cfl(eps1=0.05, eps2=0.1, min_round=1)", (0, 1, 2, 3), task=toy_task((3, -1, 3, -1), **FOUR), rounds=2
    )
    assert [len(state.groups) for state in late] == [1, 2]


def test_identical_clients_stay_together():
    """Then the mean is the largest, and cannot be both small and large."""
    states = play_toy("cfl(eps1=0.1, eps2=0.15)", (0, 1, 2), task=toy_task((3, 3, 3)), rounds=5)
    assert all(len(state.groups) == 1 for state in states)


@pytest.mark.parametrize("cohort", [12, 6])
def test_clients_of_different_kinds_are_told_apart(cohort):
    """The second half of the clients call every class by another name: no group mixes the halves."""
    local = Local(lr=0.2, epochs=2, batch=8)
    task = two_languages(tiny_task(clients=12, cohort=cohort, local=local))
    method = Method.parse("cfl(eps1=0.8, eps2=0.9, gamma=0.3)")
    state, _ = play(method, task, 20)
    group = state.grouping["group"].tolist()
    assert not set(group[:6]) & set(group[6:])
    assert accuracy(method, task, state) > 0.9
