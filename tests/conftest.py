"""What all tests share."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tests run beside each other


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
