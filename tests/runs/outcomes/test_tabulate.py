"""Tables of runs: whose numbers a cell holds, what is bold, what is tested, and what is refused."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli.table_formats import as_csv, as_latex, as_markdown, as_text
from fedcohort.runs.outcomes.tabulate import tabulate
from fedcohort.util.errors import UserError
from support.result_dirs import a_result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods and a reference, two alphas, three seeds. At 0.1 fedprox leads by 0.02, 0.03 and 0.04; at
    0.5 both are the same."""
    home = tmp_path_factory.mktemp("table") / "e-001"
    for alpha in (0.5, 0.1):
        for seed, lead in enumerate((0.02, 0.03, 0.04)):
            base = 0.5 + seed / 10
            lead = lead if alpha == 0.1 else 0.0
            a_result(home, "fedavg", seed, [0.1, base + 0.2, base], partition__alpha=alpha)
            a_result(home, "fedprox", seed, [0.1, 0.3, base + lead], partition__alpha=alpha)
            other = base + (0.35, -0.1, 0.0)[seed]
            a_result(home, "centralised", seed, [0.1, 0.3, other], partition__alpha=alpha)
    return home


def cells(table: Any) -> dict[tuple[str, str], Any]:
    return {(cell.row["method"], str(cell.column.get("partition.alpha"))): cell for cell in table.cells}


def test_means_over_seeds_the_best_and_tests_by_hand(home: Path) -> None:
    """Differences 0.02, 0.03, 0.04: t = 3 sqrt(3) with two degrees of freedom, so p = 1 - t / sqrt(2 + t^2).
    It is the smallest of four tests, so Holm makes it four times as large; the others become 1."""
    table = tabulate([home], against="fedavg")
    found = cells(table)
    assert [key[0] for key in found][::2] == ["fedavg", "fedprox", "centralised"]
    assert table.columns == ["partition.alpha"]
    assert found["fedprox", "0.1"].mean == pytest.approx(0.63)
    assert found["fedprox", "0.1"].std == pytest.approx(0.11)
    assert [key for key, cell in found.items() if cell.best] == [("fedprox", "0.1")]  # at 0.5 nobody leads
    t = 3 * math.sqrt(3)
    assert found["fedprox", "0.1"].test.p == pytest.approx(4 * (1 - t / math.sqrt(2 + t**2)))
    assert found["centralised", "0.1"].test.p == 1
    assert found["centralised", "0.1"].mean > found["fedprox", "0.1"].mean  # and yet it is no method
    assert found["fedprox", "0.5"].test.p == 1
    assert found["fedavg", "0.1"].test is None


def test_runs_that_stand_in_several_cells_are_tested_once(tmp_path: Path) -> None:
    """FedAvg and FedAvgM have no mu, so their runs stand under both of FedProx's: three tests, not four. The
    order is the file's, whatever parameters the runs have."""
    home = tmp_path / "e-001"
    for seed, lead in enumerate((0.02, 0.03, 0.04)):
        a_result(home, "fedavg", seed, [0.5])
        a_result(home, "fedavgm", seed, [0.5 + lead])
        for mu in (0.1, 1.0):
            a_result(home, f"fedprox(mu={mu})", seed, [0.5 + (lead - 0.03) * mu])
    (home / "experiment.toml").write_text(
        'method = ["fedavg", "fedprox", "fedavgm"]\nseeds = [0, 1, 2]\n'
        "[sweep]\nmethod.fedprox.mu = [0.1, 1.0]\n"
    )
    table = tabulate([home], against="fedavg")
    tests = {cell.row["method"]: cell.test for cell in table.cells}
    assert list(tests) == ["fedavg", "fedprox", "fedavgm"]
    t = 3 * math.sqrt(3)
    assert tests["fedavgm"].p == pytest.approx(3 * (1 - t / math.sqrt(2 + t**2)))
    assert len(table.tests) == 3
    assert "adjusted by Holm for 3 tests" in as_text(table)


def test_one_look_at_test_samples_is_no_mean_of_rounds(tmp_path: Path) -> None:
    a_result(tmp_path / "e-001", "fedavg", 0, [0.7], evaluate={"on": "validation"})
    assert tabulate([tmp_path / "e-001"]).cells[0].mean == 0.7
    for over in ("last:10", "best"):
        with pytest.raises(UserError, match=r"looked at test samples once.*evaluate\.on = 'test'"):
            tabulate([tmp_path / "e-001"], over=over)


def test_a_mean_of_more_rounds_than_there_are_is_told(home: Path) -> None:
    told = "of runs of fewer than 5 rounds (4), all count"
    assert told in tabulate([home], over="last:5").notes
    assert not any("all count" in note for note in tabulate([home], over="last:4").notes)


def test_over_which_rounds(home: Path) -> None:
    assert cells(tabulate([home], over="last:2"))["fedavg", "0.1"].mean == pytest.approx(0.7)
    assert cells(tabulate([home], over="best"))["fedavg", "0.1"].mean == pytest.approx(0.8)
    loss = cells(tabulate([home], over="best", metric="global.loss"))["fedavg", "0.1"]
    assert loss.mean == pytest.approx(0.2)  # the lowest
    least = tabulate([home], metric="global.loss")
    assert [key for key, cell in cells(least).items() if cell.best] == [("fedprox", "0.1")]


def test_the_same_table_turned_round(home: Path) -> None:
    table = tabulate([home], ["partition.alpha"], ["method"])
    assert [cell.row for cell in table.cells][::3] == [{"partition.alpha": 0.1}, {"partition.alpha": 0.5}]
    assert [cell.column["method"] for cell in table.cells if cell.best] == ["fedprox"]
    one = tabulate(sorted(home.glob("run-*"))[:1], ["seed"], ["rounds"])
    assert [(cell.row, cell.column) for cell in one.cells] == [({"seed": 0}, {"rounds": 4})]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["a cell would mix", "partition.alpha (0.1, 0.5)", "--cols partition.alpha"], {"columns": []}),
        (
            ["a cell would mix", "method (centralised, fedavg, fedprox)"],
            {"rows": ["partition.alpha"], "columns": []},
        ),
        (["no setting", "did you mean 'partition.alpha'"], {"columns": ["partition.alfa"]}),
        (["method is named twice"], {"columns": ["method", "partition.alpha"]}),
        (["no run here has a number", "did you mean 'global.accuracy'"], {"metric": "global.acuracy"}),
        (["no such method", "did you mean 'fedavg'"], {"against": "fedavgg"}),
        (["write last, best, or last:10"], {"over": "last:0"}),
        (["neither more nor less"], {"over": "best", "metric": "groups"}),
    ],
)
def test_what_makes_no_table_is_said(home: Path, words: list[str], changes: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        tabulate([home], **changes)
    assert all(word in str(error.value).replace("has a setting", "no setting") for word in words)


def test_different_experiments_are_only_compared_on_request(home: Path, tmp_path: Path) -> None:
    other = a_result(tmp_path / "e-002", "fedavg", 0, [0.5], rounds=9).parent
    with pytest.raises(
        UserError, match=r"different experiments: rounds \(4, 9\), partition\.alpha .*--cols rounds"
    ):
        tabulate([home, other])
    both = tabulate([home, other], columns=["partition.alpha", "rounds"])
    assert [len(cell.values) for cell in both.cells if cell.column["rounds"] == 9] == [1]
    assert "fewer than 3 seeds: method = fedavg, partition.alpha = 0.1, rounds = 9 (0)" in both.notes
    again = a_result(tmp_path / "again", "fedavg", 0, [0.5], rounds=9).parent
    assert tabulate([other, again]).seeds == 1  # the same run counts once
    changed = a_result(tmp_path / "changed", "fedavg", 0, [0.6], rounds=9).parent
    with pytest.raises(UserError, match="one run with different numbers"):
        tabulate([other, changed])


def test_runs_that_go_on_and_own_learning_rates_are_noted(tmp_path: Path) -> None:
    home = tmp_path / "e"
    a_result(home, "fedavg", 0, [0.5])
    a_result(home, "fedprox", 0, [0.5], local__lr=0.3)
    (a_result(home, "fedprox", 1, [0.5], local__lr=0.3) / "result.json").unlink()
    notes = tabulate([home], against="fedavg").notes
    assert notes == [
        "1 run is not complete, and left out",
        "local.lr is a method's own: 0.1 with fedavg, 0.3 with fedprox",
    ]
    assert "Nothing is tested against fedavg" in as_text(tabulate([home], against="fedavg"))


def test_formats_say_the_same(home: Path) -> None:
    table = tabulate([home], against="fedavg")
    lines = list(csv.DictReader(io.StringIO(as_csv(table))))
    (best,) = [line for line in lines if line["best"] == "1"]
    assert (best["method"], best["partition.alpha"], best["seeds"]) == ("fedprox", "0.1", "3")
    assert float(best["mean"]) == pytest.approx(0.63)
    assert "| fedprox | **63.0 ± 11.0** | 60.0 ± 10.0 |" in as_markdown(table)
    assert r"fedprox & \textbf{63.0 $\pm$ 11.0} & 60.0 $\pm$ 10.0 \\" in as_latex(table)
    text = as_text(table)
    assert "63.0 ± 11.0" in text
    assert "paired t-tests over 3 seeds, adjusted by Holm for 4 tests" in text


def test_a_star_and_names_that_would_be_commands(tmp_path: Path) -> None:
    home = tmp_path / "e"
    for seed in range(3):
        a_result(home, "fedavg", seed, [0.5 + seed / 100])
        a_result(home, "fedprox", seed, [0.7 + seed / 99], label=r"\input{x} 5% a_b|c")
    latex = as_latex(tabulate([home], against="fedavg"))
    assert r"\textbackslash{}input\{x\} 5\% a\_b$|$c & \textbf{71.0 $\pm$ 1.0$^{*}$} \\" in latex
    assert latex.index(r"\toprule") < latex.index(r"\midrule") < latex.index(r"\bottomrule")
    assert "* differs from fedavg with p < 0.05" in as_text(tabulate([home], against="fedavg"))
    assert r"a_b\|c" in as_markdown(tabulate([home]))


def test_a_run_without_the_number_has_an_empty_cell(home: Path, tmp_path: Path) -> None:
    e = tmp_path / "e"
    a_result(e, "fedavg", 0, [0.5])
    (a_result(e, "fedprox", 0, [0.5]) / "result.json").write_text(json.dumps({"global.loss": None}))
    assert "| fedprox | – |" in as_markdown(tabulate([e]))
