"""A run directory for the tests of live views, whole or growing under the test's hands."""

from pathlib import Path

import pytest
from run_files import CONFIG, HEADER, Write, rows


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Writes a run directory by hand: one accuracy per round."""

    def write(
        name: str = "fedavg-1a2b3c4d-s0",
        accuracies: tuple[float, ...] = (0.25, 0.5),
        rounds: int = 4,
        method: str = "fedavg",
        seed: int = 0,
        complete: bool = False,
    ) -> Path:
        run = tmp_path / "runs" / "e-001" / name
        run.mkdir(parents=True)
        (run.parent / "experiment.toml").write_text('seeds = [0, 1]\n\n[[method]]\nname = "fedavg"\n')
        (run / "config.toml").write_text(CONFIG.format(rounds=rounds, method=method, seed=seed))
        (run / "env.json").write_text(f'{{"started": "2026-01-01T00:00:0{seed}+00:00"}}')
        done = "".join(rows(number, accuracy) for number, accuracy in enumerate(accuracies, start=1))
        (run / "table.csv").write_text(HEADER + done)
        if complete:
            (run / "result.json").write_text("{}")
        return run

    return write
