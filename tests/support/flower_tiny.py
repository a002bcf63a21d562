"""The federation of :func:`fedcohort.testing.tiny_task`, as an experiment whose clients are Flower's."""

from pathlib import Path

from fedcohort.flower.server_app import carry_out
from fedcohort.flower.transport import Transport
from fedcohort.runs.comparison import begin, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Result
from support.inprocess import InProcess

ROUNDS, CLIENTS = 4, 6

TINY = {
    "rounds": ROUNDS,
    "cohort": 3,
    "model": {"name": "mlp", "widths": [8]},
    "data": {"source": "synthetic", "samples": 320, "classes": 4, "features": 12, "spread": 0.5},
    "partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": 0.5, "min_size": 8},
    "split": {"validation": 0.2},
    "local": {"lr": 0.1, "batch": 8},
}


def experiment(method: str, **changes: object) -> Experiment:
    return Experiment.of({**TINY, "method": method, **changes})


def nodes(out: Path) -> InProcess:
    """All clients; networks of these tests are known to them."""
    return InProcess.of(CLIENTS, keep=str(out / "keep"), allow="support")


def through_flower(
    asked: Experiment, out: Path, grid: InProcess | None = None, timeout: float = 5.0
) -> tuple[Result, InProcess]:
    """The only run of an experiment; continued if it was begun in ``out`` before."""
    grid = grid or nodes(out)
    begun = sorted(out.glob("experiment-*"))
    plan = reopen(begun[0]) if begun else begin(asked, out)
    return carry_out(plan.jobs[0], Transport(grid, timeout), 0), grid
