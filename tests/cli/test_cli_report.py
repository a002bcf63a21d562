"""report and diagnose --html from the command line, the report that a run writes, and mistakes with them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli_calls import Cli, contents

MARK = "<!doctype html>"


def test_a_run_writes_its_report_and_says_where(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml")
    assert answer.err.endswith("Results: runs/e-001\nReport: runs/e-001/report.html\n")
    page = here / "runs/e-001/report.html"
    assert page.read_text().startswith(MARK)
    page.unlink()
    again = cli("run", "--resume", "runs/e-001")
    assert "Report:" not in again.err
    assert not page.exists()  # nothing was left to do


def test_report_of_several_directories(cli: Cli, here: Path) -> None:
    first = json.loads(cli("run", "e.toml", "--json").out)["runs"][0]["dir"]
    cli("run", "e.toml", "--set", "method=['fedavg']", "--quiet")
    answer = cli("report", first, "runs/e-002", "--out", "new/both.html")
    assert (answer.code, answer.out) == (0, "new/both.html\n")
    text = (here / "new/both.html").read_text()
    assert "2 methods" in text
    assert cli("report", "runs/e-001").out == "report.html\n"


def test_a_run_that_lost_its_settings(run_once: Callable[..., Path], cli: Cli) -> None:
    (config,) = run_once().glob("*/config.toml")
    config.unlink()
    answer = cli("report", "runs/e-001")
    assert answer.code == 2
    assert "config.toml: restore it" in answer.err


def test_a_directory_whose_name_is_no_text(run_once: Callable[..., Path], cli: Cli, here: Path) -> None:
    """A file's name may hold any bytes."""
    odd = (here / run_once()).rename(here / "runs" / os.fsdecode(b"odd\xff"))
    assert cli("report", str(odd), "--out", "out.html").code == 0
    assert "runs/odd?" in (here / "out.html").read_text(encoding="utf-8")


def test_diagnose_writes_a_page_beside_what_it_prints(cli: Cli, here: Path) -> None:
    (here / "counts.csv").write_text("site,x,y\nnorth,40,10\nsouth,10,40\nwest,5,45\n")
    words = ("diagnose", "counts.csv", "--client", "site")
    answer = cli(*words, "--html", "d.html")
    assert answer.out == cli(*words).out
    text = (here / "d.html").read_text()
    assert text.startswith(MARK)
    assert "north" in text
    assert "Who trained when" not in text
    assert "Attributes, most different" not in text
    assert cli("diagnose", "e.toml", "--features", "--html", "e.html").code == 0
    assert "Attributes, most different" in (here / "e.html").read_text()


def test_reports_replace_reports(run_once: Callable[..., Path], cli: Cli, here: Path) -> None:
    run_once()
    for out in ("r.html", "r.html", "runs/e-001/report.html"):
        assert cli("report", "runs/e-001", "--out", out).code == 0
    assert cli("diagnose", "e.toml", "--html", "r.html").code == 0
    assert "fedcohort diagnosis" in (here / "r.html").read_text()


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("counts.csv", "counts.csv exists and is no report of fedcohort, so it is kept: choose another file"),
        ("page.html", "page.html exists and is no report of fedcohort"),
        (".", ". exists and is no report of fedcohort"),
        ("runs/e-001/experiment.toml", "experiment.toml exists and is no report of fedcohort"),
        ("RUN/result.json", "result.json would be among the files of a run: choose a place outside"),
        ("RUN/new.html", "new.html would be among the files of a run"),
    ],
)
def test_reports_replace_nothing_else(
    out: str, told: str, run_once: Callable[..., Path], cli: Cli, here: Path
) -> None:
    (here / "counts.csv").write_text("site,x,y\nnorth,40,10\nsouth,10,40\nwest,5,45\n")
    (here / "page.html").write_text("<!doctype html><title>of somebody else</title>")
    (run,) = run_once().glob("fedprox*")
    before, out = contents(here), out.replace("RUN", str(run))
    for words in (
        ("report", str(run), "--out", out),
        ("diagnose", "counts.csv", "--client", "site", "--html", out),
    ):
        answer = cli(*words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert told in answer.err
    assert contents(here) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "nowhere"), "nowhere is not the directory of a run"),
        (("report",), "Missing argument"),
        (("report", "runs/e-001", "--out", "e.toml/x.html"), "cannot write e.toml/x.html"),
        (("diagnose", "e.toml", "--html", "e.toml/x.html"), "cannot write e.toml/x.html"),
    ],
)
def test_mistakes_are_one_sentence(
    words: tuple[str, ...], told: str, run_once: Callable[..., Path], cli: Cli
) -> None:
    run_once()
    answer = cli(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert told in answer.err
