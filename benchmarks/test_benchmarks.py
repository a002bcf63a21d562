"""The benchmark's own promises: every engine gets the same job, and the tables say what was measured.

Run with ``python -m pytest benchmarks``.
"""

import os
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import against, measure, ray_overhead, tables
from benchmarks.peers.fedcohort_runner import make_engine
from fedcohort.bench import gemm, jobs, plain_torch
from fedcohort.bench.measure import first_uses, training
from fedcohort.bench.task import accuracy, build_task, first_state
from fedcohort.core.round.loop import step

TINY = {
    "A": replace(jobs.JOBS["A"], examples=2_000, clients=10, cohort=3, rounds=3, tests=200),
    "B": replace(jobs.JOBS["B"], examples=500, clients=5, cohort=2, rounds=2, tests=100),
    "C": replace(jobs.JOBS["C"], examples=2_400, clients=40, cohort=4, rounds=2, tests=200),
    "E": replace(jobs.PAPERS["E"], examples=300, clients=5, cohort=2, rounds=2, tests=50, epochs=2),
    "P": replace(jobs.PAPERS["P"], examples=300, clients=5, cohort=2, rounds=2, tests=50, epochs=2),
}


@pytest.fixture(scope="module", params=list(TINY))
def data(request: pytest.FixtureRequest) -> jobs.Data:
    return jobs.make(TINY[request.param])


def test_jobs_are_the_ones_that_are_described() -> None:
    """784*200+200 + 200*200+200 + 200*10+10 weights, LeNet-5's 62,006 and the 93,962 of Clust-PSI-PFL's
    network; C holds 60 examples a client."""
    known = {**jobs.JOBS, **jobs.PAPERS}
    sizes = {name: sum(np.prod(w) + b for w, b in job.layers) for name, job in known.items()}
    assert sizes == {"A": 199_210, "B": 62_006, "C": 199_210, "E": 62_006, "P": 93_962}
    assert jobs.JOBS["C"].examples / jobs.JOBS["C"].clients == 60


def test_every_row_has_one_client(data: jobs.Data) -> None:
    assert np.array_equal(np.sort(data.index), np.arange(data.job.examples))
    assert data.offsets[-1] == data.job.examples


def test_a_client_visits_each_of_its_rows_once(data: jobs.Data) -> None:
    for number in range(data.job.rounds):
        for place, client in enumerate(data.cohorts[number]):
            visited = data.ordered_rows(number, place)
            assert np.array_equal(np.sort(visited), np.sort(data.rows(client)))


def test_c_has_clients_of_one_size_with_few_classes() -> None:
    data = jobs.make(TINY["C"])
    assert set(np.diff(data.offsets)) == {60}
    # A shard of 30 from 240 equal labels each touches at most two classes; a client has two shards.
    assert max(len(np.unique(data.y[data.rows(k)])) for k in range(data.job.clients)) <= 4


def test_writing_and_reading_gives_the_same_job(data: jobs.Data, tmp_path: Path) -> None:
    folder = jobs.write(data.job, tmp_path)
    again = jobs.load(folder, shared=True)
    assert again.job == data.job
    for name in jobs.ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(data, name)), name
    assert jobs.write(replace(data.job, lr=1.0), tmp_path) != folder


def test_fedcohort_takes_the_same_round_as_the_plain_loop(data: jobs.Data) -> None:
    """With one batch per client there is nothing to shuffle, so weights agree up to rounding."""
    data = replace(data, job=replace(data.job, batch=data.job.examples, augment=False))
    method, task = build_task(data)
    state = first_state(method, task, data)
    engine = make_engine("reference", task)
    state, report = step(method, state, task, task.profile(method), engine)
    assert sorted(report.selected.tolist()) == sorted(data.cohorts[0].tolist())

    network = plain_torch.first_network(data)
    expected = torch.zeros(len(data.init))
    for place in range(data.job.cohort):
        plain_torch.set_weights(network, torch.from_numpy(data.init))
        x, y = plain_torch.examples(data, 0, place)
        plain_torch.train(network, x, y, data.job)
        expected += plain_torch.get_weights(network) * len(y) / data.samples(0)
    torch.testing.assert_close(state.groups[0].weights.params, expected, rtol=0, atol=1e-6)
    plain_torch.set_weights(network, expected)
    assert accuracy(engine, state, task) == pytest.approx(plain_torch.accuracy(network, data), abs=0.02)


def test_stopwatch_leaves_out_the_warm_up_and_counts_cpu() -> None:
    watch = measure.Stopwatch()
    for _ in range(3):
        watch.begin()
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        watch.end()
    assert len(watch.rounds_ms) == 2
    assert min(watch.rounds_ms) >= 49
    assert watch.cpu_s == pytest.approx(0.1, abs=0.06)  # the system counts in hundredths
    assert watch.start_up_s > 0.05
    assert 20 < watch.peak_mb < 20_000


def test_a_process_belongs_to_its_own_tree() -> None:
    assert os.getpid() in measure._tree(os.getppid())


def test_flop_of_a_step() -> None:
    """One example of the perceptron: 2 * (784*200 + 200*200 + 200*10) forward, as much again for the weights,
    and without the first layer for the inputs: 0.88 MFLOP."""
    job = replace(jobs.JOBS["A"], batch=1)
    forward = 2 * (784 * 200 + 200 * 200 + 200 * 10)
    assert gemm.flop(gemm.products(job)) == 3 * forward - 2 * 784 * 200


def test_convolutions_are_held_to_no_limit() -> None:
    told = {name: training(jobs.make(TINY[name]), 1) for name in "AB"}
    assert told["A"].keys() - told["B"].keys() == {
        "gemm_ms_one_core",
        "gemm_share",
        "gflop_per_second_one_core",
    }
    assert 0 < told["B"]["first_weight_difference"] < 1e-5
    measured = [{"job": "B", "gflop_per_round": 5.0, "gflop_per_second": 50.0, "ms_per_round": 100.0}]
    assert "GFLOP" not in tables._limit(_results() | {"gemm": measured}, "B")


@pytest.mark.skipif(find_spec("llvmlite") is None, reason="fedcohort[fast] is not installed")
def test_kernels_are_compiled_once() -> None:
    waits = first_uses("lenet5")
    assert waits["later"] < waits["first"] < 10


def _results(**accuracy: float) -> dict[str, Any]:
    def entry(number: int, engine: str, ms: float) -> dict[str, Any]:
        return {
            "pass": number, "job": "A", "engine": engine, "load": 0.1, "rounds_ms": [ms - 1, ms + 1],
            "samples_per_round": 1000, "steps_per_round": 10, "accuracy": 0.5, "start_up_s": 1.0,
            "cpu_s": 0.2, "peak_rss_mb": 100, "versions": {"torch": "2"},
        }  # fmt: skip

    return {
        "machine": {"cpu": "abacus", "cores": 2, "memory_gb": 1, "system": "none"},
        "engine": "reference",
        "started": "today",
        "jobs": {"A": {"timed": 2, "accuracy": 30}},
        "gemm": [{"job": "A", "gflop_per_round": 5.0, "gflop_per_second": 50.0, "ms_per_round": 100.0}],
        "passes": [
            entry(0, "fedcohort", 100), entry(0, "bare", 200),
            entry(1, "fedcohort", 400), entry(1, "bare", 1200), entry(2, "bare", 9999),
        ],
        "accuracy": {"A": accuracy},
        "shuffled": {"A": [0.96, 0.97, 0.98]},
        "failures": [{"engine": "flower", "reason": "cannot be installed: no wheel"}],
    }  # fmt: skip


def test_ratios_are_taken_within_a_pass() -> None:
    """200/100 and 1200/400; the third pass has no partner and does not count."""
    text = tables.render(_results(fedcohort=0.99, bare=0.98), pages=["# Further\n\n## Measured\n"])
    assert "\n## Further\n\n### Measured\n" in text
    assert "| bare | 1200 [200 to 9999] | 2.50 [2.00 to 3.00] |" in text
    assert "flower: cannot be installed: no wheel" in text


def test_an_engine_that_learns_something_else_is_named() -> None:
    """The plain loop ends at 0.97 with a standard deviation of 0.01, so 0.03 are allowed to fedcohort; an
    engine with the same order as the plain loop has only 0.02."""
    assert tables.disagreeing(_results(fedcohort=0.945, bare=0.98, pfl=0.965)) == []
    (sentence,) = tables.disagreeing(_results(fedcohort=0.935, bare=0.98))
    assert "fedcohort ends at accuracy 0.935" in sentence
    assert sentence in tables.render(_results(fedcohort=0.935, bare=0.98))
    (sentence,) = tables.disagreeing(_results(fedcohort=0.97, bare=0.98, pfl=0.955))
    assert "pfl ends at accuracy 0.955" in sentence


def test_ratios_against_a_commit_are_taken_within_a_pass() -> None:
    """Three passes: 2, 4 and 3 times as fast, on a machine that was slower in the second."""
    pairs = [(10.0, 5.0), (40.0, 10.0), (15.0, 5.0)]
    passes = [({"cpu": old, "wall": old}, {"cpu": new, "wall": 2 * new}) for old, new in pairs]
    lines = against.table("abc", {"B": passes, "E": passes}, {}).splitlines()
    assert lines[-2].split(" | ")[1:] == [
        "15.0",
        "5.0",
        "3.00 [2.00 to 4.00]",
        "1.50 [1.00 to 2.00]",
        "2.5",
        "yes |",
    ]
    assert lines[-1].endswith("| 4 | no |")
    profiled = against.table("abc", {"E": passes}, {"E": {"compiled kernels": 0.9, "copying examples": 0.0}})
    assert profiled.splitlines()[-1].endswith("changed images: compiled kernels 90%")


def test_both_sides_measure_the_same_federation() -> None:
    case = replace(against.CASES["E"], samples=8, cohort=2)
    assert set(against.measure(case)) == {"wall", "cpu"}
    assert 0 < sum(against.profile(case).values()) <= 1.01


def _on_ray(model: str, size: int, driver: float) -> list[dict[str, Any]]:
    """Rounds on 1, 2 and 3 machines, from which two sums come back each."""
    times = {"pool": 0.1, "more": 0.02, "least": 0.01, "most": 0.03, "driver": driver, "calls": 2}
    return [
        {"model": model, "bytes": size, "machines": many, "down": many * size, "up": many * 2 * size, **times}
        for many in (1, 2, 3)
    ]


def test_what_was_measured_on_ray_stands_in_the_guide_between_its_marks() -> None:
    rows = [*_on_ray("small", 1000, 0.003), *_on_ray("large", 5_000_000, 0.033)]
    text = ray_overhead.page(rows, 7)
    guide = ray_overhead.in_docs("# Scale\n\n<!-- ray overhead -->\nold\n<!-- end -->\n\nMore.\n", text)
    assert guide.startswith("# Scale\n\n<!-- ray overhead -->\n\nWritten by `python")
    assert "\n### Measured\n" in guide
    assert "| large, 5 MB | 3 | 100.0 | 20.0 [10.0 to 30.0] | 33.0 | 2 | 15 | 30 |" in guide
    assert "\n### Calculated from it\n" in guide
    assert guide.endswith("machine.\n\n<!-- end -->\n\nMore.\n")
    assert ray_overhead.in_docs(guide, text) == guide
    assert "old" not in guide


def test_what_a_thousand_machines_send_back_costs_what_it_cost_with_three() -> None:
    """30 ms more with the large model than with the small one, for 30 MB: a millisecond each."""
    rows = [*_on_ray("small", 1000, 0.003), *_on_ray("large", 5_000_000, 0.033)]
    calculated = {what: (by, much) for what, by, much in ray_overhead.calculation(rows)}
    by, much = calculated["the driver for receiving and adding them"]
    assert by.startswith("1.00 ms a MB back, measured with 3")
    gigabytes = float(calculated["sums back"][1].removesuffix(" GB"))
    assert float(much.removesuffix(" s")) == pytest.approx(gigabytes, abs=0.1)
    assert calculated["the driver for them"][1] == "1.0 s"
