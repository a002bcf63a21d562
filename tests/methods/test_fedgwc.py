"""FedGWC: rewards for typical losses, a matrix of who got them beside whom, splits where columns differ.

Reference vectors asserted here: gwc_omega, gwc_P1_col0, gwc_mse, gwc_m2, gwc_db_cols.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Memory
from fedcohort.core.round.loop import step
from fedcohort.core.state import State
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.fedgwc import FedGWC
from fedcohort.stats.clustering import stretched_alike, upv_distance
from fedcohort.stats.gaussian import typical
from fedcohort.stats.metrics import davies_bouldin, rand
from fedcohort.testing import play, tiny_task
from support.toy import play_method, profile_of, round_of, toy_task, updates_of

TRACE = torch.tensor([[1.0, 0.8], [1.2, 1.0], [2.0, 1.8]])
OMEGA = [0.751477293075286, 0.9310627797040227, 0.5257880244257798]
MATRIX = np.array([[0.9, 0.8, 0.3, 0.2], [0.6, 0.7, 0.2, 0.3], [0.4, 0.3, 0.8, 0.6], [0.1, 0.3, 0.7, 0.9]])
NEVER, ALWAYS = 1e-12, 1e-4  # tolerances: far below and far above what a settled matrix still moves


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

    The change is the mean square over the 9 entries touched, .0056935, on the scale of rewards that sum to
    one: over (.751477 + .931063 + .525788)^2 = 4.876715. It is averaged with its start 1.
    """
    profile, part = profile_of([[1, 1]] * 4), FedGWC()
    before = part.init_grouping(profile)
    after = part.regroup(before, updates_of([0, 1, 3], TRACE), round_of(profile, 3))
    column = [0.07514772930752861, 0.09310627797040227, 0, 0.05257880244257798]
    for seen in (0, 1, 3):
        assert after["interaction"][:, seen].tolist() == pytest.approx(column, abs=1e-7)
    assert not after["interaction"][:, 2].any()
    assert after["gamma"].tolist() == pytest.approx(column, abs=1e-7)
    moved = 0.0056934968946250174 / sum(OMEGA) ** 2
    assert float(after["change"][0]) == pytest.approx(0.9 + 0.1 * moved, abs=1e-8)
    assert not before["interaction"].any()  # a hook does not write into what it was given


def test_unbiased_entries_do_not_depend_on_how_often_they_were_seen():
    """Twice the same losses: an entry is (1 - .9^2) omega, and what it averages is omega."""
    profile, part = profile_of([[1, 1]] * 4), FedGWC(alpha=0.1, unbiased=True)
    trace = torch.tensor([[1.0, 0.8], [1.2, 1.0], [2.0, 1.8]])
    memory = part.init_grouping(profile)
    for ids in ([0, 1, 3], [0, 1, 3]):
        memory = part.regroup(memory, updates_of(ids, trace), round_of(profile, 3))
    everybody = torch.arange(4)
    plain, ours = (FedGWC(unbiased=u).matrix(memory, everybody)[:, 0] for u in (False, True))
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
    assert part.parts(MATRIX, of_four(2)).tolist() == [0, 0, 1, 1]
    affinity = np.exp(-0.5 * upv_distance(MATRIX.T))
    assert davies_bouldin(affinity, [0, 0, 1, 1]) == pytest.approx(0.4826343571371392)


def of_four(cohort: int) -> Profile:
    return replace(profile_of([[1, 1]] * 4), cohort=cohort)


def test_no_group_below_the_smallest_allowed():
    """By default 3 / rho clients (Theorem A.5): with 2 of 4 in a cohort that is 6, with 4 of 4 it is 3."""
    assert FedGWC(min_group=2).parts(MATRIX, of_four(2)).tolist() == [0, 0, 1, 1]
    assert FedGWC(min_group=3).parts(MATRIX, of_four(2)).tolist() == [0] * 4
    assert FedGWC().parts(MATRIX, of_four(2)).tolist() == [0] * 4
    blocks = np.kron(np.eye(2), np.ones((3, 3)))
    everybody = replace(profile_of([[1, 1]] * 6), cohort=6)
    assert FedGWC().parts(blocks, everybody).tolist() == [0] * 3 + [1] * 3
    assert FedGWC().parts(blocks, replace(everybody, cohort=5)).tolist() == [0] * 6  # 3 / (5/6) = 3.6


@pytest.mark.parametrize("cohort", [20, 21, 40])
def test_two_blocks_part_however_many_train(cohort):
    """Forty clients, two kinds, of which more than half may train a round."""
    profile = replace(profile_of([[1, 1]] * 40), cohort=cohort)
    assert FedGWC().parts(np.kron(np.eye(2), np.ones((20, 20))), profile).tolist() == [0] * 20 + [1] * 20


def test_what_is_no_larger_than_a_cohort_of_all_is_not_split_again():
    """24 clients of two kinds, 12 a round: two groups of 12, which stay whole though their halves differ."""
    part, profile = FedGWC(min_group=3), replace(profile_of([[1, 1]] * 24), cohort=12)
    memory = part.init_grouping(profile)
    memory["interaction"] = torch.kron(torch.eye(4, dtype=torch.float64), torch.ones(6, 6)) + torch.kron(
        torch.eye(2, dtype=torch.float64), 5 * torch.ones(12, 12)
    )
    memory["group"] = torch.arange(24) // 12
    for cohort, groups in ((12, 2), (11, 3)):
        after = part.split(memory, torch.arange(12), replace(profile, cohort=cohort))
        assert int(after.max()) + 1 == groups


def test_a_cohort_has_at_least_three_clients():
    profile = replace(profile_of([[1, 1]] * 100), cohort=10)
    assert [FedGWC().cohort(members, profile) for members in (100, 40, 10, 2)] == [10, 4, 3, 2]
    assert [FedGWC(reading="code").cohort(members, profile) for members in (100, 40, 10, 2)] == [
        10,
        10,
        10,
        2,
    ]


def test_the_last_step_is_not_all():
    """Two steps that disagree: client 0 is typical at the first and odd at the second, client 2 the reverse.
    Step 1: losses 1, 1, 4 (mean 2, variance 3): exp(-1/6), exp(-1/6), exp(-2/3); step 2: 4, 1, 1."""
    trace = torch.tensor([[1.0, 4.0], [1.0, 1.0], [4.0, 1.0]])
    near, far = np.exp(-1 / 6), np.exp(-2 / 3)
    assert typical(trace).tolist() == pytest.approx([(near + far) / 2, near, (near + far) / 2])


def test_the_codes_rewards():
    """Samples 1, 1, 2 and losses 1, 2, 4: mean (1 + 2 + 8) / 4 = 2.75, variance (1.75^2 + .75^2 + 2 * 1.25^2)
    / 4 = 1.6875; rewards exp(-.5 gap^2 / variance), over their sum."""
    profile, part = profile_of([[1, 1]] * 3), FedGWC(reading="code")
    updates = updates_of([0, 1, 2], torch.tensor([[1.0], [2.0], [4.0]]), size=torch.tensor([1, 1, 2]))
    reward = np.exp(-0.5 * np.array([1.75, 0.75, 1.25]) ** 2 / 1.6875)
    lesson = part.lesson(updates, torch.arange(3), round_of(profile, 2))
    assert lesson.reward.tolist() == pytest.approx((reward / reward.sum()).tolist(), abs=1e-6)
    assert (lesson.alpha, lesson.turns) == pytest.approx((2 / 3, 1.5))  # m / K and K / m, of the whole cohort


def test_the_codes_matrix_starts_even_and_padding_is_drawn():
    profile, part = profile_of([[1, 1]] * 4), FedGWC(reading="code")
    assert part.init_grouping(profile)["interaction"].unique().tolist() == [1 / 16]
    updates, now = updates_of([0, 1, 3], TRACE), round_of(profile, 3)
    padded = replace(part, padding=100)
    once, again = (padded.lesson(updates, torch.arange(4), now).reward for _ in range(2))
    assert once.equal(again)
    assert not once.allclose(part.lesson(updates, torch.arange(4), now).reward, atol=1e-4)
    later = replace(now, number=1)
    assert not once.equal(padded.lesson(updates, torch.arange(4), later).reward)


def test_the_codes_affinity():
    """Views between 0 and 1, nobody like itself: (.9, .1) of MATRIX become 1 and 0, so distances grow by
    1 / .8^2; columns 0 and 1 were .05 apart."""
    alike = stretched_alike(MATRIX.T, 0.5)
    assert alike[0, 1] == pytest.approx(np.exp(-0.5 * 0.05 / 0.64))
    assert np.diag(alike).tolist() == [0.0] * 4


def test_the_code_splits_by_its_embedding_into_at_most_k_over_m():
    draw = np.random.default_rng(0)
    blocks = np.kron(np.eye(2), np.ones((10, 10))) + 0.1 * draw.random((20, 20))
    profile, part = replace(profile_of([[1, 1]] * 20), cohort=10), FedGWC(reading="code")
    assert part.parts(blocks, profile).tolist() == [0] * 10 + [1] * 10
    assert part.parts(blocks, replace(profile, cohort=11)).tolist() == [0] * 20  # 20 // 11 is one part
    alone = blocks[[0, *range(10, 20)]][:, [0, *range(10, 20)]]
    assert part.parts(alone, replace(profile, cohort=5)).tolist() == [0] + [1] * 10  # parts of any size


def test_alpha_falls_with_the_rounds():
    """Theorem 5.1: with alpha 1 and decay 1 the weight of round t is 1 / t, so that gamma is a mean."""
    profile, part = profile_of([[1, 1]] * 3), FedGWC(alpha=1.0, decay=1.0)
    memory, seen = part.init_grouping(profile), []
    for number, shift in enumerate((0.0, 0.5, 3.0)):
        trace = TRACE + torch.tensor([[shift], [0.0], [0.0]])
        seen.append(typical(trace))
        memory = part.regroup(memory, updates_of([0, 1, 2], trace), round_of(profile, 3, number))
    torch.testing.assert_close(memory["gamma"], torch.stack(seen).mean(0))


def test_results_tell_the_change_of_each_group_and_the_weight_of_each_client():
    part = FedGWC()
    memory = part.init_grouping(profile_of([[1, 1]] * 4)) | {"group": torch.tensor([0, 1, 1, 0])}
    memory["change"][:2] = torch.tensor([0.25, 0.5])
    assert part.of_groups(memory)["interaction_change"].tolist() == [0.25, 0.5]
    assert part.of_clients(memory)["gaussian_weight"].tolist() == [0.0] * 4


def simulate(part: FedGWC, level: list[float], *phases: int, seed: int = 10) -> list[Memory]:
    """The memory after each phase of a world where client k's losses are level_k plus noise of deviation .15.

    Sixty clients, ten a round, eight steps each. A phase only learns, until in its last twelve rounds
    the tolerance lets every group that can split do so.
    """
    profile, levels = replace(profile_of([[1, 1]] * len(level)), cohort=10), torch.tensor(level)
    draw = torch.Generator().manual_seed(seed)
    memory, ends = part.init_grouping(profile), []
    for rounds in phases:
        for number in range(rounds):
            groups = [
                (memory["group"] == g).nonzero().flatten() for g in range(int(memory["group"].max()) + 1)
            ]
            drawn = [
                m[torch.randperm(len(m), generator=draw)[: part.cohort(len(m), profile)]] for m in groups
            ]
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


@pytest.mark.parametrize(("reading", "cohort"), [("paper", 20), ("code", 10)])
def test_the_published_tolerance_is_reached(reading, cohort):
    """At 1e-5 two kinds part. (With 20 of 60 the code's alpha is 1/3, and its matrix forgets too fast.)"""
    part, profile = FedGWC(reading=reading), replace(profile_of([[1, 1]] * 60), cohort=cohort)
    memory, draw = part.init_grouping(profile), torch.Generator().manual_seed(0)
    for number in range(1000):
        ids = torch.randperm(60, generator=draw)[:cohort].sort().values
        trace = 0.6 * (ids >= 30).float()[:, None] + 0.15 * torch.randn(cohort, 8, generator=draw)
        memory = part.regroup(memory, updates_of(ids.tolist(), trace), round_of(profile, cohort, number))
        if memory["group"].any():
            break
    assert rand(memory["group"].numpy(), np.repeat([0, 1], 30)) > 0.9


def test_one_kind_of_clients_stays_together():
    (memory,) = simulate(FedGWC(), [0.0] * 60, 1200)
    assert memory["group"].max() == 0


def test_a_group_that_split_may_split_again():
    """Levels 0, 3 and 3.6, two parts a split: first {0} and {3, 3.6}, whose own cohorts tell them apart."""
    level = [0.0] * 24 + [3.0] * 18 + [3.6] * 18
    first, second = simulate(FedGWC(max_groups=2, min_group=3), level, 1600, 800)
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


def test_patience_begins_anew_where_the_matrix_still_moves():
    """Three settled rounds count for nothing once a round is above the tolerance."""
    profile, part = profile_of([[1, 1]] * 60), FedGWC(tolerance=NEVER)
    memory = part.init_grouping(profile)
    memory["settled"][0] = 3
    memory = part.regroup(memory, updates_of(range(10), torch.ones(10, 8)), round_of(profile, 10))
    assert int(memory["settled"][0]) == 0


def test_before_a_split_it_is_fedavg_bit_for_bit():
    ours, _ = play(Method.parse("fedgwc"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert len(ours.groups) == 1
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


def split_with(text: str) -> tuple[State, State]:
    """The states before and after a real split of 12 clients, half at b = 0 and half at b = 6."""
    task = toy_task([0.0] * 6 + [6.0] * 6, [5] * 12, [3] * 12, [1.0] * 12, Local(lr=1e-4, batch=100))
    task = replace(task, cohort=4)
    learning = Method.parse(f"fedgwc(alpha=0.3, min_group=3, tolerance={NEVER})+{text}")
    splitting = Method.parse(f"fedgwc(alpha=0.3, min_group=3, tolerance=0.5)+{text}")
    state = play_method(learning, task, 120)[-1]
    profile, engine = task.profile(splitting), ReferenceEngine(task)
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
        torch.testing.assert_close(group.known("optimiser")["c"], own)
        assert group.weights.params.equal(after.groups[0].weights.params)
    assert after.groups[0].known("optimiser")["c"] > 0 > after.groups[1].known("optimiser")["c"]


def test_a_split_copies_server_momentum():
    _, after = split_with("fedavgm")
    assert len(after.groups) == 2
    assert (
        after.groups[0].known("optimiser")["velocity"].equal(after.groups[1].known("optimiser")["velocity"])
    )
    assert after.groups[0].known("optimiser")["velocity"].any()
