"""What all tests share."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcohort.core.method import METHODS
from fedcohort.data.partition import PARTITIONS
from fedcohort.data.sources import SOURCES
from fedcohort.models import MODELS
from support.run_files import CONFIG, HEADER, Write, rows

torch.set_num_threads(1)  # tests run beside each other
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes what it starts with & deaf to Ctrl-C
MEMORY = Path("/dev/shm")  # where it is: in Linux
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:  # else on disk, where each write waits
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets, or a skip."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEDCOHORT_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set FEDCOHORT_DATA to run this test")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDCOHORT_CACHE", str(folder))
    monkeypatch.setenv("FEDCOHORT_OFFLINE", "1")
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path; what its files register is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
            for registry in (METHODS, SOURCES, PARTITIONS, MODELS):
                for key in [key for key, cls in registry._classes.items() if cls.__module__ == name]:
                    del registry._classes[key]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window, or a skip."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pages are opened by playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium on this machine: install it (Debian: chromium) to open pages in it")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses it to root
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=sandbox)
        yield chromium
        chromium.close()


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
