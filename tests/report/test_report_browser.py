"""A report in a real browser: complete in itself, tabs and filters work, in light, dark and on a phone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedcohort.report.curves import accuracy_cards
from fedcohort.report.page import Filter, Page, Tab, render
from support.report_evidence import a_run, evidence_of

SEED = Filter("seed", "Seed", [("mean", "mean")])
TABS = ["summary", "methods", "served", "clients", "skew", "sent", "origin"]
COUNT_POINTS = """() => [...document.querySelectorAll("section:not([hidden]) article:not([hidden]) .chart")]
  .map(chart => chart._fullData.filter(trace => trace.visible)
    .map(trace => (trace.z || trace.x || trace.y || trace.ids).length).reduce((a, b) => a + b, 0))"""


class Opened(NamedTuple):
    """A page, what its console said, and what it asked the network for."""

    page: Any
    said: list[str]
    asked: list[str]


@pytest.fixture(scope="module")
def opened(browser: Any, page_file: Path) -> Iterator[Callable[..., Opened]]:
    """Opens a page as if for the first time.

    It is in the same tab of the browser, which then need not compile plotly.js again: that takes seconds.
    """
    context = browser.new_context()
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    empty = page_file.with_name("empty.html")
    empty.write_text("")

    def open_(path: Path = page_file, width: int = 1200, color_scheme: str = "light") -> Opened:
        page.goto(empty.as_uri())
        page.evaluate("sessionStorage.clear()")
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=color_scheme)
        said.clear()
        asked.clear()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-theme]")
        return Opened(page, said, asked)

    yield open_
    context.close()


@pytest.fixture
def report(opened: Callable[..., Opened]) -> Opened:
    return opened()


def go(page: Any, tab: str) -> None:
    page.click(f"nav button[data-tab={tab}]")
    page.wait_for_selector(f"#{tab}:not([hidden])")


def visible_titles(page: Any) -> list[str]:
    return page.locator("section:not([hidden]) article:not([hidden]) h2").all_inner_texts()


def test_every_tab_opens_offline_without_a_word_in_the_console(report: Opened, page_file: Path) -> None:
    page, said, asked = report
    assert page.locator("nav button").count() == len(TABS)
    for tab in TABS:
        go(page, tab)
        assert page.locator("section:visible").count() == 1
        assert all(points > 0 for points in page.evaluate(COUNT_POINTS)), tab
    assert said == []
    assert asked == [page_file.as_uri()]


def test_names_are_shown_and_never_run(report: Opened) -> None:
    page, *_ = report
    for tab in TABS:
        go(page, tab)
    assert page.evaluate("window.broken") is None
    assert page.locator("img, b").count() == 0
    assert "<img src=x onerror=window.broken=1>" in page.locator("#served").inner_text()
    go(page, "clients")
    ticks = page.locator("#clients article:visible .ytick text").all_text_contents()
    assert any(text.startswith("<img src=x") for text in ticks)


def test_charts_are_drawn_with_the_numbers_of_the_runs(report: Opened) -> None:
    """Four rounds, evaluated each: the mean lines of both methods have four points."""
    page, *_ = report
    go(page, "methods")
    assert len(visible_titles(page)) == 6
    lines = page.evaluate(
        """() => document.querySelector("#methods article:not([hidden]) .chart")._fullData
             .filter(t => t.visible && t.showlegend).map(t => [t.name, [...t.x]])"""
    )
    assert [x for _, x in lines] == [[1, 2, 3, 4]] * 2
    assert page.locator("#methods .legendtext").first.text_content() == "fedavg"


def test_filters_choose_scope_method_and_seed(report: Opened) -> None:
    page, said, _ = report
    go(page, "methods")
    shown = "section:not([hidden]) article:not([hidden]) .chart"
    count = f"() => document.querySelector('{shown}').data.filter(t => t.visible).length"
    assert "Accuracy by round (global)" in visible_titles(page)
    both = page.evaluate(count)
    page.select_option("#methods select[data-key=method]", "fedavg")
    assert page.evaluate(count) == both / 2
    page.select_option("#methods select[data-key=seed]", "1")
    assert page.evaluate(count) == 1  # a seed alone has no band
    page.select_option("#methods select[data-key=scope]", "adapted")
    titles = visible_titles(page)
    assert "Accuracy by round (adapted)" in titles
    assert "Accuracy by round (global)" not in titles
    go(page, "clients")
    page.select_option("#clients select[data-key=method]", "fedavg")
    assert "How each group is served (personal)" not in visible_titles(page)  # it has one group
    assert said == []


def test_choices_are_kept_over_a_reload_and_shared_between_tabs(opened: Any) -> None:
    """The address holds the tab and its choices; a choice holds in every tab that offers the same."""
    page, said, _ = opened(color_scheme="light")
    assert page.get_attribute("html", "data-theme") == "light"
    go(page, "clients")
    page.select_option("#clients select[data-key=method]", "clust_psi_pfl")
    page.select_option("#clients select[data-key=seed]", "2")
    page.click("#theme")
    assert page.url.endswith("#/clients?method=clust_psi_pfl&seed=2")
    page.evaluate("window.scrollTo(0, 200)")
    before = visible_titles(page)
    page.reload()
    page.wait_for_selector("#clients:not([hidden]) .chart svg")
    assert visible_titles(page) == before
    assert page.input_value("#clients select[data-key=seed]") == "2"
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate("window.scrollY") == 200
    go(page, "served")
    assert "With clust_psi_pfl (seed 2)" in page.locator("#served").inner_text()
    go(page, "methods")
    assert page.input_value("#methods select[data-key=method]") == "*"  # there a choice hides the others
    assert said == []


def test_light_and_dark_follow_the_system_and_the_button(opened: Any) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    ink = "() => getComputedStyle(document.querySelector('#methods .xtick text')).fill"
    page, said, _ = opened(color_scheme="dark")
    go(page, "methods")
    dark = page.evaluate(background), page.evaluate(ink)
    page.click("#theme")
    light = page.evaluate(background), page.evaluate(ink)
    assert all(a != b for a, b in zip(dark, light, strict=True))
    page.click("#theme")
    assert (page.evaluate(background), page.evaluate(ink)) == dark
    assert said == []


def test_nothing_sticks_out_on_a_phone(opened: Any) -> None:
    page, said, _ = opened(width=390)
    for tab in TABS:
        go(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        assert page.locator(f"#{tab} .modebar").count() == 0, tab  # the toolbar of charts
    assert said == []


def test_of_many_methods_the_band_below_the_pointer_is_seen(opened: Any, tmp_path: Path) -> None:
    curve = (np.arange(3.0), np.array([0.1, 0.2, 0.3]))
    methods = ("fedavg", "fedprox", "fedrs", "fedlc", "cfl")
    runs = [a_run(name, seed, curves={"global.accuracy": curve}) for name in methods for seed in (0, 1)]
    cards = [card for some in (8, 10) for card in accuracy_cards(evidence_of(*runs[:some]))]
    path = tmp_path / "many.html"
    path.write_text(render(Page("many", "", [Tab("methods", "Methods", cards, [SEED])])))
    page, said, _ = opened(path)
    page.wait_for_selector(".modebar")

    def bands(chart: int) -> list[float]:
        drawn = f"document.querySelectorAll('.chart')[{chart}].data"
        return page.evaluate(f"{drawn}.filter((t) => t.fill && t.visible).map((t) => t.opacity)")

    few, many = (place for place, card in enumerate(cards) if card.title.startswith("Accuracy by round"))
    assert (bands(few), bands(many)) == ([0.18] * 4, [0] * 5)
    point = "{points: [{data: {legendgroup: 'fedrs'}}]}"
    page.evaluate(f"document.querySelectorAll('.chart')[{many}].emit('plotly_hover', {point})")
    assert bands(many) == [0, 0, 0.25, 0, 0]
    assert said == []


def test_a_tab_has_an_address(report: Opened, page_file: Path) -> None:
    page, *_ = report
    page.goto(page_file.as_uri() + "#/sent")
    page.wait_for_selector("#sent:not([hidden])")
    assert visible_titles(page) == [
        "What left each client",
        "Every answer of a client with fedavg",
        "How often each client sent its update with fedavg, seed 0",
    ]
    assert page.evaluate("window.scrollY") == 0
    go(page, "methods")
    assert page.evaluate("window.scrollY") == 0


def test_a_diagnosis_is_such_a_page_too(opened: Any, tmp_path: Path) -> None:
    from fedcohort.diagnosis import diagnose
    from fedcohort.report import write_diagnosis

    counts = [[40, 2, 0], [38, 0, 1], [0, 41, 3], [1, 37, 0], [0, 0, 30], [0, 0, 0]]
    names = ["<i>a</i>", *"bcdef"]
    path = write_diagnosis(
        diagnose(counts, names, ["x", "y", "</script>"]), tmp_path / "d" / "diagnosis.html"
    )
    page, said, asked = opened(path)
    titles = visible_titles(page)
    assert titles[0] == "Verdict"
    assert titles.count("Map of the clients") == 1
    assert all(points > 0 for points in page.evaluate(COUNT_POINTS))
    page.select_option("select[data-key=grouping]", "fedlecc")
    assert visible_titles(page) == titles
    assert said == []
    assert asked == [path.as_uri()]


def test_a_large_report_opens_quickly(opened: Any, large: Path) -> None:
    page, said, _ = opened(large)
    for tab in TABS:
        go(page, tab)
        assert all(points > 0 for points in page.evaluate(COUNT_POINTS)), tab
    assert said == []
