"""fedcohort bench shows what it measured."""

import pytest

from fedcohort.bench.jobs import JOBS
from fedcohort.bench.measure import bench
from fedcohort.cli.tables import bench_tables, results
from fedcohort.util.errors import UserError

TRAINING = {
    "engine_ms": 1.5, "reference_ms": 3.0, "bare_ms": 2.0, "ratio_bare": 1.3, "gemm_share": 0.5,
    "samples_per_second": 12_345, "first_weight_difference": 1.5e-8, "max_weight_difference": 2.5e-7,
}  # fmt: skip
SERVER = {
    "clients": 100_000, "seconds": {"diagnose": 21.65}, "round_ratio": {"ratio": 1.14},
    "peak_gb": {"diagnose": 7.48}, "refused": {0: "fedcor needs 32,000 GB"},
}  # fmt: skip


def test_all_numbers_are_in_the_tables():
    convolving = {key: value for key, value in TRAINING.items() if key != "gemm_share"}
    jobs = {"A": TRAINING, "B": convolving, "scale": SERVER, "startup": {"help_s": 0.154}}
    with results.capture() as captured:
        results.print(bench_tables({"jobs": jobs, "machine": {"cores": 2}}))
    shown = " ".join(captured.get().split())
    known = (
        "A 1.5 3.0 2.0 1.3 0.5 12,345 1.5e-08 2.5e-07", "B 1.5 3.0 2.0 1.3 12,345 1.5e-08 2.5e-07",
        "seconds diagnose 21.65", "ratio 1.14", "help s 0.154",
        "peak gb diagnose 7.48", "refused 0 fedcor needs 32,000 GB",
    )  # fmt: skip
    assert [text for text in known if text not in shown] == []


def test_no_more_rounds_than_a_job_has():
    with pytest.raises(UserError, match="job B has 9 rounds"):
        bench(["startup", "B"], JOBS["B"].rounds, print)
