"""An open page of ``fedcohort serve`` follows a run that goes on, and stays where its reader is."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli import http, http_pages
from fedcohort.cli.http import PageServer
from support.report_runs import run_tiny


@pytest.fixture
def growing(tmp_path: Path) -> tuple[Path, str]:
    """The table of a run as it was before the last round, and as it will be."""
    home = run_tiny(tmp_path / "runs", "fedavg", seeds=[0])
    (table,) = home.glob("*/table.csv")
    whole = table.read_text()
    table.write_text("".join(line for line in whole.splitlines(True) if not line.startswith("4,")))
    shutil.move(table.parent / "result.json", tmp_path)
    return table, whole


@pytest.fixture
def server(growing: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    monkeypatch.setattr(http, "PAUSE", 0.2)
    with PageServer(growing[0].parents[2], 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_click_on_the_list_is_not_lost_when_the_list_has_news(
    browser: Any, server: PageServer, growing: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report takes a while to make; meanwhile the list, which is still shown, learns of a new round."""
    table, whole = growing
    monkeypatch.setattr(http_pages, "GLANCE", 0.2)
    page, make = browser.new_page(), server.reports.report
    page.goto(server.url)

    def slowly(*of: Any) -> bytes:
        table.write_text(whole)
        time.sleep(1)  # the list looks several times
        return make(*of)

    monkeypatch.setattr(server.reports, "report", slowly)
    page.click("h2 a", no_wait_after=True)
    page.wait_for_url("**/report/*", wait_until="commit")
    page.close()


def test_a_page_follows_its_run_and_keeps_its_tab(
    browser: Any, server: PageServer, growing: tuple[Path, str], tmp_path: Path
) -> None:
    table, whole = growing
    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(server.url)
    page.click("h2 a")
    page.wait_for_selector("html[data-theme]")
    assert "1 of 1 runs not complete" in page.locator("header").inner_text()
    page.click("nav button[data-tab=methods]")
    page.select_option("#methods select[data-key=scope]", "personal")
    last = "() => document.querySelector('#methods article:not([hidden]) .chart')._fullData.at(-1).x.at(-1)"
    assert page.evaluate(last) == 3
    table.write_text(whole)
    shutil.move(tmp_path / "result.json", table.parent)
    page.wait_for_function("() => !document.querySelector('header').innerText.includes('not complete')")
    page.wait_for_selector("#methods:not([hidden]) .chart svg")
    assert page.input_value("#methods select[data-key=scope]") == "personal"
    assert page.evaluate(last) == 4
    assert said == []
    page.close()
