"""Seol & Kim's selection: the class that is short is filled from the largest clients, up to a cap."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.kl import KL, divergence
from fedcohort.testing import play, tiny_task
from support.toy import profile_of, round_of

COUNTS = [[50, 10, 0], [0, 30, 10], [20, 0, 15], [5, 5, 5], [0, 0, 30]]


def plan(part: KL, counts: list[list[int]], cohort: int) -> dict[int, list[float]]:
    profile = profile_of(counts)
    return {c: s.tolist() for c, s in part.plan(profile.counts, round_of(profile, cohort)).items()}


def test_worked_example():
    """Sizes rank 0, 1, 2, 4, 3; the cap is 50. Class 2 is short each time, until (50, 40, 50)."""
    found = plan(KL(), COUNTS, 4)
    assert list(found) == [0, 1, 2, 4]
    assert list(found.values()) == [[50, 10, 0], [0, 30, 10], [0, 0, 15], [0, 0, 25]]


def test_divergences_on_the_way():
    totals = [[50, 10, 0], [50, 40, 10], [50, 40, 25], [50, 40, 50]]
    found = [divergence(torch.tensor(total, dtype=torch.float64)) for total in totals]
    assert found == pytest.approx([0.64805108, 0.155263896, 0.037403848, 0.005237571], abs=1e-8)


def test_a_threshold_stops_it():
    """.0374 after three clients is below .06."""
    assert list(plan(KL(threshold=0.06), COUNTS, 4)) == [0, 1, 2]


def test_a_skipped_client_gets_another_chance():
    """Cap 9. Client 1 has nothing of class 2 and is skipped; client 2 fills it; then class 1 is short."""
    found = plan(KL(), [[9, 1, 0], [0, 8, 0], [0, 0, 7]], 3)
    assert list(found.items()) == [(0, [9, 1, 0]), (2, [0, 0, 7]), (1, [0, 8, 0])]


def test_it_gives_up_when_nobody_holds_what_is_short():
    assert list(plan(KL(), [[9, 0], [8, 0], [7, 0]], 3)) == [0]


def test_it_stops_when_every_class_is_full():
    assert list(plan(KL(), [[9, 9], [8, 8], [7, 7]], 3)) == [0]


def test_clients_train_on_their_quota_only():
    """The same rows in every round, no more of a class than allowed, and the update weighs that much."""
    task, method = tiny_task(), Method.parse("kl")
    profile = task.profile(method)
    now = round_of(profile, 4)
    allowed = method.selector.plan(profile.counts, now)
    engine = Watching(task)
    state, _ = play(method, task, 2, engine=engine)
    cohort = list(allowed)
    assert [client for client, _ in engine.trained] == cohort * 2
    for client, rows in engine.trained:
        held = torch.bincount(task.federation.train.y[rows], minlength=4)
        assert held.tolist() == allowed[client].long().tolist()
    first, second = engine.trained[:4], engine.trained[4:]
    assert all(a[1].equal(b[1]) for a, b in zip(first, second, strict=True))
    assert sum(len(rows) for _, rows in first) < int(task.federation.train.sizes[cohort].sum())
    plain, _ = play(Method.parse("uniform"), task, 2)
    assert state.bytes_down - plain.bytes_down == 2 * 4 * 4 * 8  # four classes to four clients, twice


class Watching(ReferenceEngine):
    """Remembers which rows each client trained on."""

    def job(self, objective, order, number):
        job = super().job(objective, order, number)
        self.trained = [*getattr(self, "trained", []), (order.client, job.rows)]
        return job


def test_the_quota_is_the_weight_of_the_update():
    """With the averaging's view of sizes: sums of what was allowed, not of what is held."""
    seen = []

    class Listening(type(Method.parse("fedavg").averaging)):
        def weights(self, memory, updates, now):
            seen.append(updates.size.tolist())
            return super().weights(memory, updates, now)

    task = tiny_task()
    play(Method.of(KL(), Listening()), task, 1)
    profile = task.profile(Method.parse("kl"))
    allowed = KL().plan(profile.counts, round_of(profile, 4))
    assert seen == [[int(allowed[client].sum()) for client in sorted(allowed)]]


def test_without_truncation_everything_is_used():
    task = tiny_task()
    engine = Watching(task)
    play(Method.parse("kl(truncate=False)"), task, 1, engine=engine)
    assert all(len(rows) == task.federation.train.sizes[client] for client, rows in engine.trained)


def test_both_engines_agree():
    task, method = tiny_task(), Method.parse("kl")
    slow, _ = play(method, task, 2, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 2, engine=PoolEngine(task, workers=2))
    torch.testing.assert_close(fast.groups[0].weights.params, slow.groups[0].weights.params)
