"""FedGWC: rewards for typical losses, a matrix of who got them beside whom, splits where columns differ.

Reference vectors asserted here: gwc_omega, gwc_P1_col0, gwc_mse, gwc_m2, gwc_db_cols.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equations.toy import play_method, profile_of, round_of, toy_task, updates_of
from fedcohort.cluster import upv_distance
from fedcohort.core.loop import step
from fedcohort.core.method import Method
from fedcohort.core.parts import Memory
from fedcohort.core.profile import Local
from fedcohort.core.state import State
from fedcohort.engines.loop import LoopEngine
from fedcohort.gaussian import typical
from fedcohort.methods.fedgwc import FedGWC
from fedcohort.metrics import davies_bouldin, rand
from fedcohort.testing import play, tiny_task

TRACE = torch.tensor([[1.0, 0.8], [1.2, 1.0], [2.0, 1.8]])
OMEGA = [0.751477293075286, 0.9310627797040227, 0.5257880244257798]
MATRIX = np.array([[0.9, 0.8, 0.3, 0.2], [0.6, 0.7, 0.2, 0.3], [0.4, 0.3, 0.8, 0.6], [0.1, 0.3, 0.7, 0.9]])
NEVER, ALWAYS = 1e-12, 1e-2  # tolerances: far below and far above what a settled matrix still moves


def test_typical():
    """Means 1.4 and 1.2, both times variance .28 (by m - 1): client 0 gets exp(-.16 / .56) = .7515 twice."""
    assert typical(TRACE).tolist() == pytest.approx(OMEGA, abs=1e-6)


def test_two_clients_are_always_equally_typical():
    """Each is half the gap from the mean and the variance is half the squared gap: exp(-1/4) = .778801."""
    assert typical(torch.tensor([[0.3, 5.0], [2.0, 4.0]])).tolist() == pytest.approx([0.7788007830714049] * 2)


def test_equal_losses_are_fully_typical():
    assert typical(torch.full((3, 4), 2.5)).tolist() == [1.0] * 3


def test_different_numbers_of_steps():
    """A step counts for those who took it, if they are at least three: the second step is left out here."""
    ragged = TRACE.clone()
    ragged[0, 1] = torch.nan
    assert typical(ragged).tolist() == pytest.approx(typical(TRACE[:, :1]).tolist())
    four = torch.tensor([[1.0, 7.0], [1.0, 0.8], [1.2, 1.0], [2.0, 1.8]])
    four[0, 1] = torch.nan
    second = typical(TRACE[:, 1:])  # the other three, at the step that they alone took
    first = typical(four[:, :1])
    expected = [first[0], *((first[1:] + second) / 2)]
    assert typical(four).tolist() == pytest.approx([float(value) for value in expected])


def test_one_round_of_the_matrix():
    """K = 4, clients 0, 1, 3 answer, alpha = .1: their columns become .1 omega, the absent one's stays zero.

    The change is the mean square over the 9 entries touched, .0056935, averaged with its start 1.
    """
    profile, part = profile_of([[1, 1]] * 4), FedGWC()
    before = part.init_grouping(profile)
    after = part.regroup(before, updates_of([0, 1, 3], TRACE), round_of(profile, 3))
    column = [0.07514772930752861, 0.09310627797040227, 0, 0.05257880244257798]
    for seen in (0, 1, 3):
        assert after["interaction"][:, seen].tolist() == pytest.approx(column, abs=1e-7)
    assert not after["interaction"][:, 2].any()
    assert float(after["change"][0]) == pytest.approx(0.9 + 0.1 * 0.0056934968946250174, abs=1e-8)
    assert not before["interaction"].any()  # a hook does not write into what it was given


def test_unbiased_entries_do_not_depend_on_how_often_they_were_seen():
    """Twice the same losses: an entry is (1 - .9^2) omega, and what it averages is omega."""
    profile, part = profile_of([[1, 1]] * 4), FedGWC(alpha=0.1, unbiased=True)
    trace = torch.tensor([[1.0, 0.8], [1.2, 1.0], [2.0, 1.8]])
    memory = part.init_grouping(profile)
    for ids in ([0, 1, 3], [0, 1, 3]):
        memory = part.regroup(memory, updates_of(ids, trace), round_of(profile, 3))
    everybody = torch.arange(4)
    plain, ours = (FedGWC(unbiased=u).interaction(memory, everybody)[:, 0] for u in (False, True))
    omega = torch.tensor([0.751477, 0.931063, 0.0, 0.525788]).double()
    torch.testing.assert_close(plain, 0.19 * omega, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours, omega, atol=1e-6, rtol=0)


def test_a_single_answer_teaches_nothing():
    profile, part = profile_of([[1, 1]] * 4), FedGWC()
    after = part.regroup(part.init_grouping(profile), updates_of([2], TRACE[:1]), round_of(profile, 3))
    assert not after["interaction"].any()
    assert float(after["change"][0]) == 1.0


@pytest.mark.parametrize(
    ("table", "upper"),
    [(MATRIX, [0.02, 0.41, 0.41, 0.13, 0.5, 0.09]), (MATRIX.T, [0.05, 0.52, 0.13, 0.41, 0.45, 0.02])],
    ids=["rows", "columns"],
)
def test_distances_leave_out_the_pairs_own_entries(table, upper):
    """Rows 0 and 1 without entries 0 and 1: (.3 - .2)^2 + (.2 - .3)^2 = .02."""
    assert upv_distance(table)[np.triu_indices(4, 1)] == pytest.approx(upper)


def test_the_worked_matrix_splits_in_two():
    """exp(-.5 D) of the columns: {0, 1} and {2, 3} with Davies-Bouldin .482634, below 1."""
    part = FedGWC(min_group=1)
    assert part.parts(MATRIX, cohort=2, seed=0).tolist() == [0, 0, 1, 1]
    affinity = np.exp(-0.5 * upv_distance(MATRIX.T))
    assert davies_bouldin(affinity, [0, 0, 1, 1]) == pytest.approx(0.4826343571371392)


def test_no_group_below_the_smallest_allowed_and_none_below_the_cohort():
    assert FedGWC(min_group=3).parts(MATRIX, cohort=2, seed=0).tolist() == [0] * 4
    assert FedGWC(min_group=1).parts(MATRIX, cohort=3, seed=0).tolist() == [0] * 4  # 4 // 3 groups: one


def test_a_cohort_has_at_least_three_clients():
    assert [FedGWC().cohort(members, 0.1) for members in (100, 40, 10, 2)] == [10, 4, 3, 2]


def simulate(part: FedGWC, level: list[float], *phases: int, seed: int = 10) -> list[Memory]:
    """The memory after each phase of a world where client k's losses are level_k plus noise of deviation .15.

    Sixty clients, ten a round, eight steps each. A phase only learns, until in its last twelve rounds
    the tolerance lets every group that can split do so.
    """
    profile, levels = profile_of([[1, 1]] * len(level)), torch.tensor(level)
    draw = torch.Generator().manual_seed(seed)
    memory, ends = part.init_grouping(profile), []
    for rounds in phases:
        for number in range(rounds):
            groups = [
                (memory["group"] == g).nonzero().flatten() for g in range(int(memory["group"].max()) + 1)
            ]
            drawn = [m[torch.randperm(len(m), generator=draw)[: part.cohort(len(m), 1 / 6)]] for m in groups]
            ids = torch.cat(drawn).sort().values
            trace = levels[ids][:, None] + 0.15 * torch.randn(len(ids), 8, generator=draw)
            updates = updates_of(ids.tolist(), trace, group=memory["group"][ids])
            settled = replace(part, tolerance=ALWAYS if number >= rounds - 12 else NEVER)
            memory = settled.regroup(memory, updates, round_of(profile, 10, number))
        ends.append(memory)
    return ends


def test_two_kinds_of_clients_part():
    level = [0.0] * 30 + [0.6] * 30
    (memory,) = simulate(FedGWC(), level, 1200)
    assert rand(memory["group"].numpy(), np.repeat([0, 1], 30)) == 1.0


def test_one_kind_of_clients_stays_together():
    (memory,) = simulate(FedGWC(), [0.0] * 60, 1200)
    assert memory["group"].max() == 0


def test_a_group_that_split_may_split_again():
    """Levels 0, 3 and 3.6, two parts a split: first {0} and {3, 3.6}, whose own cohorts tell them apart."""
    level = [0.0] * 24 + [3.0] * 18 + [3.6] * 18
    first, second = simulate(FedGWC(max_groups=2), level, 1600, 800)
    assert first["group"].tolist() == [0] * 24 + [1] * 36
    assert second["group"].tolist() == [0] * 24 + [1] * 18 + [2] * 18
    assert first["interaction"].shape == second["interaction"].shape == (60, 60)


def test_patience_waits_until_everybody_could_be_seen():
    """K / m = 6 rounds in a row below the tolerance; a group that cannot split starts over."""
    profile, part = profile_of([[1, 1]] * 60), FedGWC(tolerance=2.0, min_group=60)
    memory = part.init_grouping(profile)
    settled = []
    for number in range(8):
        trace = torch.ones(10, 8)
        memory = part.regroup(memory, updates_of(range(10), trace), round_of(profile, 10, number))
        settled.append(int(memory["settled"][0]))
    assert settled == [1, 2, 3, 4, 5, 0, 1, 2]


def test_before_a_split_it_is_fedavg_bit_for_bit():
    ours, _ = play(Method.parse("fedgwc"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert len(ours.groups) == 1
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


def split_with(text: str) -> tuple[State, State]:
    """The states before and after a real split of 12 clients, half at b = 0 and half at b = 6."""
    task = toy_task([0.0] * 6 + [6.0] * 6, [5] * 12, [3] * 12, [1.0] * 12, Local(lr=1e-4, batch=100))
    task = replace(task, cohort=4)
    learning = Method.parse(f"fedgwc(alpha=0.3, tolerance={NEVER})+{text}")
    splitting = Method.parse(f"fedgwc(alpha=0.3, tolerance=0.5)+{text}")
    state = play_method(learning, task, 120)[-1]
    profile, engine = task.profile(splitting), LoopEngine(task)
    for _ in range(5):
        before, (state, _) = state, step(splitting, state, task, profile, engine)
        if len(state.groups) > 1:
            break
    return before, state


def test_a_split_through_the_round_loop_hands_down_model_and_memory():
    """Both groups continue from the parent's model; SCAFFOLD's c becomes the mean of each group's c_k."""
    before, after = split_with("scaffold")
    assert len(before.groups) == 1
    assert after.grouping["group"].tolist() == [0] * 6 + [1] * 6
    for number, group in enumerate(after.groups):
        members = (after.grouping["group"] == number).nonzero().flatten().tolist()
        own = sum(after.clients[c]["c"] for c in members if c in after.clients) / len(members)
        torch.testing.assert_close(group.aggregator["c"], own)
        assert group.weights.params.equal(after.groups[0].weights.params)
    assert after.groups[0].aggregator["c"] > 0 > after.groups[1].aggregator["c"]


def test_a_split_copies_server_momentum():
    _, after = split_with("fedavgm")
    assert len(after.groups) == 2
    assert after.groups[0].aggregator["velocity"].equal(after.groups[1].aggregator["velocity"])
    assert after.groups[0].aggregator["velocity"].any()
