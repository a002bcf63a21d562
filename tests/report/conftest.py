"""Reports to open in a browser."""

from pathlib import Path

import pytest

from fedcohort.report import write_report
from support.report_runs import hospital_table, large_run, run_tiny


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
