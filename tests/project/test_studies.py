"""The studies, on a few partitions of the digits: what they find, and that they go on where they stopped."""

import csv
import dataclasses
import math
import runpy
import sys
from pathlib import Path

import pytest

from fedcohort.data.partition import partitioner
from support import REPOSITORY
from support.evidence import table as evidence

STUDIES = {
    "skew_metrics": ["skew_metrics.csv", "skew_importance.csv"],
    "number_of_groups": ["number_of_groups.csv", "iid_clients.csv"],
    "fedgwc_groups": ["fedgwc_groups.csv", "fedgwc_later.csv"],
    "advice_grid": ["advice_rates.csv", "advice_federations.csv", "advice_runs.csv"],
}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(REPOSITORY))

    def start(name: str) -> dict[str, str]:
        monkeypatch.setattr(sys, "argv", [name, "--smoke", "--out", str(tmp_path / "new")])
        runpy.run_module(f"studies.{name}", run_name="__main__")
        return {path.name: path.read_text() for path in (tmp_path / "new").iterdir() if path.is_file()}

    return start


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_measures_follow_the_skew(study) -> None:
    found = study("skew_metrics")
    table = rows(found["skew_metrics.csv"])
    mean = {
        level: sum(float(row["wpsi"]) for row in table if row["level"] == level)
        for level in ("50.0", "2.0", "0.5", "0.09")
    }
    assert sorted(mean.values()) == list(mean.values())  # the smaller alpha, the more skew
    kinds = ["gradient boosting", "SVM", "MLP", "regression tree"]
    assert [row["model"] for row in rows(found["skew_importance.csv"])] == kinds * 2
    assert "## Which predicts S (Fig. 4)" in found["skew_metrics.md"]


def test_a_study_goes_on_where_it_was_stopped(study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last row was being written: that one and the missing ones are made again, the others are not."""
    whole = study("number_of_groups")
    numbers, iid = rows(whole["number_of_groups.csv"]), rows(whole["iid_clients.csv"])
    assert len(numbers) == 2 * 2
    assert all(2 <= int(row["groups"]) <= 9 for row in numbers)
    assert all(0 <= float(row["recall"]) <= 1 for row in iid)
    assert "| 25% of 20 |" in whole["number_of_groups.md"]
    path = tmp_path / "new" / "iid_clients.csv"
    lines = whole["iid_clients.csv"].splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:5])
    dealt = []
    real = type(partitioner("partly_iid")).deal
    monkeypatch.setattr(
        "fedcohort.data.partition.partly_iid.PartlyIID.deal",
        lambda self, labels, seed, owner: dealt.append(seed) or real(self, labels, seed, owner),
    )
    again = study("number_of_groups")
    assert dealt == [1]
    assert [row | {"seconds": ""} for row in rows(again["iid_clients.csv"])] == [
        row | {"seconds": ""} for row in iid
    ]
    assert again | {"iid_clients.csv": ""} == whole | {"iid_clients.csv": ""}
    assert len({row["labels"] for row in (*numbers, *iid)}) == 1
    assert all(float(row["seconds"]) >= 0 for row in (*numbers, *iid))


def test_losses_are_recorded_once_and_replayed(study, tmp_path: Path) -> None:
    """Twelve clients are too few to be told apart in sixty rounds; all readings are tried all the same."""
    found = study("fedgwc_groups")
    table = rows(found["fedgwc_groups.csv"])
    assert [row["reading"] for row in table] == ["paper", "paper, rows", "code"]
    assert all(int(row["rounds"]) <= 60 and float(row["apart"]) >= 0 for row in table)
    waits = rows(found["fedgwc_later.csv"])
    assert [row["reading"] for row in waits] == ["paper", "code"]
    assert [name for name in waits[0] if name.isdigit()] == ["30", "36", "42", "48", "54", "60"]
    (recorded,) = (tmp_path / "new" / "recorded").iterdir()
    since = recorded.stat().st_mtime_ns
    assert study("fedgwc_groups") == found
    assert recorded.stat().st_mtime_ns == since


def test_evidence_is_gathered_and_what_is_missing_is_added(study, tmp_path: Path) -> None:
    """Two federations, three methods, two seeds; the last run is lost and made again."""
    found = study("advice_grid")
    runs = rows(found["advice_runs.csv"])
    assert len(runs) == 2 * 3 * 2  # of these methods none looks at counts: noise on them changes nothing
    table = rows(found["evidence.csv"])
    assert [row["cohort asked"] for row in table] == ["0.3", "1.0", "0.3"]
    assert [row["cohort"] for row in table] == ["6", "20", "6"]
    assert [row["epsilon"] for row in table] == ["", "", "1.0"]
    assert float(table[2]["emd_share"]) < float(table[0]["emd_share"])  # as clients tell them
    for row in table:
        own = [run for run in runs if run["cohort asked"] == row["cohort asked"]]
        gaps = [
            float(ours["accuracy"]) - float(theirs["accuracy"])
            for ours in own
            for theirs in own
            if (ours["method"], theirs["method"]) == ("scaffold", "fedavg") and ours["seed"] == theirs["seed"]
        ]
        assert float(row["gain scaffold"]) == pytest.approx(sum(gaps) / 2, abs=1e-4)
        assert float(row["error scaffold"]) == pytest.approx(abs(gaps[0] - gaps[1]) / 2, abs=1e-4)
    assert "always scaffold" in found["advice_grid.md"]
    lines = found["advice_runs.csv"].splitlines(keepends=True)
    (tmp_path / "new" / "advice_runs.csv").write_text("".join(lines[:-1]))
    again = rows(study("advice_grid")["advice_runs.csv"])
    assert [{**run, "seconds": ""} for run in again] == [{**run, "seconds": ""} for run in runs]


def test_regret_is_what_the_best_method_would_have_had_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of little skew scaffold gains 0.1, of much ifca 0.3. Who knows the other data only and looks at the
    skew is always right; ifca is best on average, and wrong by 0.1 on half of them."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from studies.advice_regret import regrets

    little, much = (0.0, {"scaffold": 0.1, "ifca": 0.0}), (2.0, {"scaffold": 0.0, "ifca": 0.3})
    known = evidence(little, much, little, much)
    named = tuple({**names, "data": name} for names, name in zip(known.names, "aabb", strict=True))
    found = regrets(dataclasses.replace(known, names=named), one_model=False)
    mean = {title: own["other data"].mean() for title, own in found.items()}
    assert mean["nearest federations"] == 0
    assert mean["best on average"] == pytest.approx(0.05)
    assert mean["always scaffold"] == pytest.approx(0.15)
    assert mean["always fedavg"] == pytest.approx(0.2)
    assert found["nearest federations"]["other skew"].mean() == pytest.approx(0.2)  # nothing is known: fedavg


@pytest.mark.parametrize("name", STUDIES)
def test_the_committed_pages_are_those_of_the_committed_rows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    study = runpy.run_module(f"studies.{name}")
    tables = [rows((REPOSITORY / "studies" / file).read_text()) for file in STUDIES[name]]
    assert (REPOSITORY / "studies" / f"{name}.md").read_text() == study["page"](*tables)
    for chart, picture in study.get("charts", lambda _: {})(tables[0]).items():
        assert (REPOSITORY / "studies" / chart).read_text() == picture


def test_the_guide_tells_the_regret_of_the_committed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the table that ships is theirs."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from fedcohort.runs.advice.evidence import Measured, shipped
    from studies.advice_grid import all_regrets
    from studies.advice_ranks import ranks_page
    from studies.advice_regret import summary, trusted
    from studies.advice_table import evidence_rows

    federations, runs = (
        rows((REPOSITORY / "studies" / name).read_text()) for name in STUDIES["advice_grid"][1:]
    )
    made = evidence_rows(federations, runs)
    assert rows((REPOSITORY / "src/fedcohort/runs/advice/evidence.csv").read_text()) == made
    found = all_regrets(Measured.of(made, {}))
    assert summary(found) in (REPOSITORY / "docs/advice.md").read_text()
    for name, text in ranks_page(Measured.of(made, {})).items():
        assert (REPOSITORY / "docs" / name).read_text() == text
    assert shipped().about["trusted"] == {kind: trusted(own) for kind, own in found.items()}


def test_ranks_that_differ_by_more_than_the_critical_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Demsar's example: four classifiers on fourteen data sets have a critical difference of 1.25."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from studies.advice_ranks import diagram, ranked, words

    always = {"scaffold": 0.3, "fedprox": 0.2, "fedlc": 0.1, "fedavg": 0.0}
    known = evidence(
        *[(0.0, always)] * 12, *[(0.0, {**always, "fedavg": 0.2})] * 2, (0.0, {**always, "fedlc": math.nan})
    )
    found = ranked(known, ["fedavg", "fedlc", "fedprox", "scaffold"])
    assert found.methods == ("scaffold", "fedprox", "fedlc", "fedavg")
    assert found.mean.tolist() == pytest.approx([1, (12 * 2 + 2 * 2.5) / 14, (12 * 3 + 2 * 4) / 14, 53 / 14])
    assert found.difference == pytest.approx(1.25, abs=0.005)
    assert found.p < 1e-4
    assert found.federations == 14  # one has not tried them all
    assert "not surely better than `fedprox`." in words(found)
    assert words(found).count("`") == 4
    assert diagram(found, "ranks").count("<circle") == 4
    assert ranked(known, ["fedavg", "fedlc"]) is None


def test_gains_are_told_skew_by_skew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from studies.advice_ranks import by, size_of, skew_of

    known = evidence((0.0, {"scaffold": 0.1}), (0.0, {"scaffold": 0.3}), (0.0, {"scaffold": -0.2}))
    skews = (
        "dirichlet(alpha=0.1, min_size=4)",
        "dirichlet(alpha=0.1, min_size=4)",
        "similarity(similarity=0.0)",
    )
    named = tuple({**names, "skew": skew} for names, skew in zip(known.names, skews, strict=True))
    table = by(dataclasses.replace(known, names=named), skew_of, ["fedavg", "scaffold"])
    assert table.splitlines()[0] == "| method | Dir 0.1 (2) | S 0.0 (1) |"
    assert "| `scaffold` | **+20.0** | -20.0 |" in table
    assert size_of({"clients dealt": "20", "cohort asked": "0.3"}) == "K = 20, 30%"


def test_what_to_use_is_told_by_kind_of_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one size; with few classes several models are best, where all are alike one."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from studies.advice_ranks import choices

    known = evidence((0.0, {"scaffold": 0.1, "ifca": 0.3}), (0.0, {"scaffold": 0.3, "ifca": -0.2}))
    skews = ("classes_per_client(classes=1)", "dirichlet(alpha=100.0, min_size=4)")
    named = tuple(
        {**names, "skew": skew, "clients dealt": "20", "cohort asked": "0.3"}
        for names, skew in zip(known.names, skews, strict=True)
    )
    told = choices(
        dataclasses.replace(known, names=named), ["fedavg", "scaffold", "ifca"], ["fedavg", "scaffold"]
    )
    few, alike, size = (row.split(" | ") for row in told.splitlines()[2:])
    assert [few[0], few[1], *few[3:]] == [
        "| a class or two each", "1", "`scaffold` +10.0, `fedavg` +0.0", "`ifca` +30.0 |"
    ]  # fmt: skip
    assert alike[3:] == ["`scaffold` +30.0, `fedavg` +0.0", "`ifca` -20.0 |"]
    assert [size[0], size[1], *size[3:]] == [
        "| K = 20, 30% of the clients a round", "2", "`scaffold` +20.0, `fedavg` +0.0", "`ifca` +5.0 |"
    ]  # fmt: skip
