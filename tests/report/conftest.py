"""A browser that is already on the machine, and a report to open in it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import hospital_table, large_run, run_tiny

from fedcohort.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window, or a skip."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="reports are opened by playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium on this machine: install it (Debian: chromium) to open reports in it")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses it to root
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two methods and three seeds on clients with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    table = hospital_table(folder / "patients.csv")
    data = {"source": "table", "path": str(table), "client": "site", "label": "outcome"}
    changes = {"data": data, "partition": {"name": "natural"}, "evaluate": {"adapted": True}}
    home = run_tiny(folder, "fedavg", "clust_psi_pfl", **changes)
    return write_report([home], folder / "report.html")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run of 1,000 clients and 500 rounds, of which a hundred train in each."""
    folder = tmp_path_factory.mktemp("large")
    return write_report([large_run(folder)], folder / "report.html")
