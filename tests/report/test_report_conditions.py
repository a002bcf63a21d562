"""Reports of runs under several conditions."""

from pathlib import Path

import pytest

from fedcohort.report.compose import runs_page
from fedcohort.report.conditions import choices
from fedcohort.report.evidence import gather
from support.report_runs import run_swept


def test_a_report_ranks_within_a_condition_and_shows_all_at_a_glance(tmp_path: Path) -> None:
    evidence = gather([run_swept(tmp_path)])
    assert evidence.titles == ["fedavg", "fedprox"]
    page = runs_page(evidence)
    assert "2 conditions" in page.subtitle
    tab = next(tab for tab in page.tabs if tab.name == "methods")
    assert (tab.filters[0].key, tab.filters[0].options) == (
        "partition.alpha",
        [("0.3", "0.3"), ("3.0", "3.0")],
    )
    boards = [card for card in tab.cards if card.title == "Leaderboard"]
    assert [card.tags for card in boards] == [{"partition.alpha": "0.3"}, {"partition.alpha": "3.0"}]
    heat = next(card for card in tab.cards if card.title == "Every condition at a glance").figure.data[0]
    for row, method in enumerate(heat.y):
        for column, alpha in enumerate((0.3, 3.0)):
            own = [
                r.metrics["global.accuracy"]
                for r in evidence.runs
                if (r.title, r.settings) == (method, {"partition.alpha": alpha})
            ]
            assert len(own) == 2
            assert heat.z[row][column] == pytest.approx(100 * sum(own) / 2, abs=0.051)
    for name in ("served", "clients", "sent"):
        cards = next(tab for tab in page.tabs if tab.name == name).cards
        assert all("partition.alpha" in card.tags for card in cards)


def test_what_was_not_run_in_every_combination_is_one_choice() -> None:
    grid = [{"a": a, "b": b} for a in (1, 2) for b in (3, 4)]
    filters, tags = choices(grid)
    assert [(one.key, one.options) for one in filters] == [
        ("a", [("1", "1"), ("2", "2")]),
        ("b", [("3", "3"), ("4", "4")]),
    ]
    assert tags[1] == {"a": "1", "b": "4"}
    (one,), tags = choices(grid[:3])
    assert [value for value, _ in one.options] == ["a = 1, b = 3", "a = 1, b = 4", "a = 2, b = 3"]
    assert tags[2] == {"condition": "a = 2, b = 3"}
    assert choices([{}]) == ([], [{}])
