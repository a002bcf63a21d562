"""Runs side by side: the longest first, no core without work, and a word of how long all will take."""

import math
from multiprocessing import Pipe
from pathlib import Path

import pytest

from fedcohort.engines import pool
from fedcohort.engines.pool import PoolEngine
from fedcohort.runs.comparison import PlannedRun
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.workers.processes import CORES, STOP, Member, _send, _spread, shares
from fedcohort.runs.workers.schedule import Schedule, _Begun
from fedcohort.testing import tiny_task
from fedcohort.util.errors import UserError


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def jobs(methods: list[str], seeds: int, rounds: int = 10) -> list[PlannedRun]:
    asked = Experiment.of({"method": list(methods), "rounds": rounds})
    return [PlannedRun(asked, method, seed, Path()) for seed in range(seeds) for method in asked.methods]


def begun(schedule: Schedule, clock: Clock, seconds: dict[str, float], rounds: int = 3) -> None:
    """One run of each method is under way and has done some rounds, each of which took it so long."""
    for _ in seconds:
        schedule.next()
    start = clock.now
    for method, each in seconds.items():
        for done in range(1, rounds + 1):
            clock.now = start + done * each
            schedule.saw((method, 0), done)


def test_every_method_is_seen_once_and_then_the_longest_goes_first():
    clock = Clock()
    schedule = Schedule(jobs(["fedavg", "scaffold", "fedprox"], 2), clock)
    assert [schedule.next().method.title for _ in range(3)] == ["fedavg", "scaffold", "fedprox"]
    for method, seconds in {"fedavg": 1.0, "scaffold": 3.0, "fedprox": 2.0}.items():
        for done in (1, 2):
            clock.now += seconds
            schedule.saw((method, 0), done)
    assert [schedule.next().method.title for _ in range(3)] == ["scaffold", "fedprox", "fedavg"]


def test_time_left_is_that_of_the_member_with_the_most_to_do():
    """Of 10 rounds 3 are done: fedavg has 7 s to go, scaffold 21 s. The two that wait take 10 s and 30 s; on
    two members the longer one starts after 7 s and ends after 37 s."""
    clock = Clock()
    schedule = Schedule(jobs(["fedavg", "scaffold"], 2), clock)
    schedule.size = 2
    assert math.isnan(schedule.seconds_left)
    begun(schedule, clock, {"fedavg": 1.0, "scaffold": 3.0})
    assert schedule.seconds_left == pytest.approx(37)
    schedule.size = 1
    schedule.begun.clear()
    schedule.queue = jobs(["fedavg", "scaffold"], 2)
    begun(schedule, clock, {"fedavg": 1.0})  # nobody knows of the other: as long as this one
    assert schedule.seconds_left == pytest.approx(7 + 3 * 10)


def test_nobody_waits_for_a_run_that_failed():
    """One of two ends in its third round of ten, and the other has seven seconds to go."""
    clock = Clock()
    schedule = Schedule(jobs(["fedavg", "scaffold"], 1), clock)
    begun(schedule, clock, {"fedavg": 1.0, "scaffold": 3.0})
    with pytest.warns(RuntimeWarning, match="scaffold, seed 0, failed: no room"):
        schedule.fail(("scaffold", 0), UserError("no room"))
    assert schedule.seconds_left == pytest.approx(7)


def test_swept_values_have_a_pace_of_their_own():
    """Each is seen once. Of 10 rounds 3 are done: 7 and 70 s to go; of those that wait the longer takes 100 s
    and starts after 7."""
    clock, asked = Clock(), Experiment.of({"method": ["fedavg"], "rounds": 10})
    method, seconds = asked.methods[0], {"epochs=1": 1.0, "epochs=10": 10.0}
    swept = [PlannedRun(asked, method, seed, Path(), words) for seed in range(2) for words in seconds]
    schedule = Schedule(swept[::2] + swept[1::2], clock)
    schedule.size = 2
    begun(schedule, clock, {f"fedavg, {words}": each for words, each in seconds.items()})
    assert schedule.seconds_left == pytest.approx(107)
    assert schedule.next().condition == "epochs=10"


def test_runs_of_a_single_round_tell_how_long_they_took_at_their_end():
    clock = Clock()
    schedule = Schedule(jobs(["fedavg"], 3, rounds=1), clock)
    schedule.next()
    clock.now = 4.0
    schedule.saw(("fedavg", 0), 1)
    assert schedule.seconds_left == 8


def test_a_run_that_had_one_round_left_tells_nothing_of_the_others():
    """Its other nine took place elsewhere, and the one that is seen began with reading the data."""
    clock = Clock()
    schedule = Schedule(jobs(["fedavg"], 3), clock)
    schedule.next()
    clock.now = 4.0
    schedule.saw(("fedavg", 0), 10)
    assert math.isnan(schedule.seconds_left)


def test_thousands_of_runs_are_looked_at_once_each(monkeypatch):
    """How long all will take is told after every round."""
    clock, looks = Clock(), [0]
    schedule = Schedule(jobs(["fedavg"], 40), clock)
    begun = [schedule.next().seed for _ in range(20)]
    for seed in begun:
        for done in (1, 2):
            clock.now += 1
            schedule.saw(("fedavg", seed), done)
    pace = _Begun.seconds_per_round.fget

    def counted(run):
        looks[0] += 1
        return pace(run)

    monkeypatch.setattr(_Begun, "seconds_per_round", property(counted))
    assert schedule.seconds_left > 0
    schedule.next()
    assert looks[0] == 2 * 20


def test_a_run_that_was_stopped_waits_with_what_is_left_of_it():
    clock = Clock()
    schedule = Schedule(jobs(["fedavg"], 2), clock)
    job = schedule.next()
    for done in (1, 2, 3, 4):
        clock.now += 1
        schedule.saw(("fedavg", 0), done)
    schedule.again(job)
    assert schedule.seconds_left == pytest.approx(6 + 10)


def test_no_core_is_left_out():
    assert shares(8, 3) == [3, 3, 2]
    assert shares(2, 3) == [1, 1, 1]
    assert shares(5, 1) == [5]


def test_who_is_left_gets_the_cores_of_those_who_are_done(monkeypatch):
    """The parent says so between two rounds, and the engine that is at work follows."""
    monkeypatch.setattr(pool, "CORES", 1)
    monkeypatch.setattr("fedcohort.runs.workers.processes.usable_cores", lambda: 3)
    engine = PoolEngine(tiny_task())
    assert engine.pool is None
    parent, child = Pipe()
    member = Member(child)
    _spread([parent])
    assert member.hear() == ()
    assert engine.pool._max_workers == 3
    _send(parent, CORES, 2)
    _send(parent, STOP)
    member.hear()
    assert (pool.CORES, member.ended) == (2, False)
    member.hear()
    assert member.ended
