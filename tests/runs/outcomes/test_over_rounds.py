"""Accuracy summed up over rounds: by hand, with gaps between evaluations, after a restart, in the tables."""

import csv
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from fedcohort.cli.app import main
from fedcohort.cli.tables import rounds_table
from fedcohort.core.evaluate import Row
from fedcohort.runs.experiment import Experiment, config_hash
from fedcohort.runs.outcomes.over_rounds import Curve, run_rows, smoothed_row, titles
from fedcohort.runs.outcomes.standings import Outcome, rank
from fedcohort.runs.run import Callback, Evaluation, run
from fedcohort.testing import tiny_task
from support import REPOSITORY

TINY = (REPOSITORY / "tests" / "tiny.toml").read_text()


def rows_of(**accuracy: float) -> list[Row]:
    return [Row(int(when[1:]), "global", "", "", "accuracy", value) for when, value in accuracy.items()]


def values_of(rows: list[Row]) -> dict[str, float]:
    return {row.key: row.value for row in rows}


def test_every_round_by_hand() -> None:
    """Rounds 1 to 5. The last 2: (0.9 + 0.5) / 2. Blocks of 2: rounds 1-2, 3-4 and 5 alone. The average with
    weight 1/2: (0.5 + 0.9/2 + 0.6/4 + 0.4/8 + 0.2/16) / (1 + 1/2 + 1/4 + 1/8 + 1/16) = 1.1625 / 1.9375."""
    rows = rows_of(r1=0.2, r2=0.4, r3=0.6, r4=0.9, r5=0.5)
    assert values_of(run_rows(rows, 2, True, 2, 0.6)) == pytest.approx(
        {
            "global.accuracy_last_2": 0.7,
            "global.accuracy_best": 0.9,
            "global.accuracy_rounds_1_2": 0.3,
            "global.accuracy_rounds_3_4": 0.75,
            "global.accuracy_rounds_5_5": 0.5,
            "rounds_to_target": 3,
        }
    )
    assert smoothed_row(rows, 0.5).value == pytest.approx(1.1625 / 1.9375)
    assert smoothed_row(rows, 0.5)[:5] == (5, "global", "", "", "accuracy_smoothed")
    assert run_rows(rows, None, False, None, None) == []


def test_only_evaluated_rounds_count() -> None:
    """Rounds 4, 8 and the last, 10. The last 3 rounds are 8 to 10; nobody looked in rounds 1 to 3; a round
    that is d old weighs 1/4 ** (d/2): 0.6 + 0.4/4 + 0.2/64 over 1 + 1/4 + 1/64."""
    curve = Curve.of(rows_of(r4=0.2, r8=0.4, r10=0.6))
    assert curve.last(2) == pytest.approx(0.6)
    assert curve.last(3) == pytest.approx(0.5)
    assert curve.last(100) == pytest.approx(0.4)
    assert curve.blocks(3) == pytest.approx({(4, 6): 0.2, (7, 9): 0.4, (10, 10): 0.6})
    assert curve.smoothed(0.5) == pytest.approx((0.6 + 0.4 / 4 + 0.2 / 64) / (1 + 1 / 4 + 1 / 64))


def test_the_ends_of_the_moving_average() -> None:
    """Weight 1 is the plain mean, weight 0 the last value; a first value stands for itself."""
    curve = Curve.of(rows_of(r1=0.2, r2=0.4, r3=0.9))
    assert curve.smoothed(1) == pytest.approx(0.5)
    assert curve.smoothed(0) == pytest.approx(0.9)
    assert Curve.of(rows_of(r7=0.3)).smoothed(0.99) == pytest.approx(0.3)


def test_without_test_samples_nothing_is_claimed() -> None:
    got = values_of(run_rows(rows_of(r1=math.nan, r2=math.nan), 2, True, 2, None))
    assert len(got) == 3
    assert all(math.isnan(value) for value in got.values())


def test_cafas_blocks_are_those_of_its_table_4() -> None:
    rows = [Row(number, "global", "", "", "accuracy", number / 150) for number in range(1, 151)]
    got = values_of(run_rows(rows, 10, False, 30, None))
    assert list(titles(got).values()) == [
        "last 10", "rounds 1-30", "rounds 31-60", "rounds 61-90", "rounds 91-120", "rounds 121-150",
    ]  # fmt: skip
    assert got["global.accuracy_last_10"] == pytest.approx(145.5 / 150)
    assert got["global.accuracy_rounds_121_150"] == pytest.approx(135.5 / 150)


@pytest.mark.parametrize("every", [1, 2])
def test_a_run_reports_what_was_asked_and_a_restart_changes_no_bit(every: int) -> None:
    asked = Evaluation(every=every, last=2, best=True, blocks=2, smooth=0.7)
    whole = run("fedavg", tiny_task(), 5, asked)
    assert {row.round for row in whole.rows if row.metric == "accuracy_last_2"} == {5}
    smooth = [row.round for row in whole.rows if row.metric == "accuracy_smoothed"]
    assert smooth == ([1, 2, 3, 4, 5] if every == 1 else [2, 4, 5])
    curve = [row for row in whole.rows if row.key == "global.accuracy"]
    assert whole.metrics["global.accuracy_last_2"] == Curve.of(curve).last(2)
    assert whole.metrics["global.accuracy_smoothed"] == Curve.of(curve).smoothed(0.7)

    class Stop(Callback):
        def after_round(self, state: object, report: object, rows: object) -> bool:
            return True

        def close(self, state: object) -> None: ...

    state, table = None, list[Row]()
    for _ in range(5):
        part = run("fedavg", tiny_task(), 5, asked, [Stop()], (state, table) if state is not None else None)
        state, table = part.state, part.rows
    assert table == whole.rows


def test_runs_that_ask_for_nothing_keep_their_names() -> None:
    """The settings of older runs, as they were written down before there were such wishes."""
    plain = Experiment.of({"method": "fedavg"})
    table = plain.table(plain.methods[0], 0)
    assert table["evaluate"] == {"every": 1, "adapted": False}
    wish = Experiment.of({"method": "fedavg", "evaluate": {"best": True, "last": 3}})
    wished = wish.table(wish.methods[0], 0)
    assert wished["evaluate"] == {"every": 1, "adapted": False, "last": 3, "best": True}
    assert Experiment.of(wish.table()) == wish
    assert config_hash(wished) != config_hash(table)


def test_the_terminal_shows_them_with_their_spread() -> None:
    metrics = [
        {"global.accuracy": a, "global.accuracy_last_10": a, "global.accuracy_best": 0.9} for a in (0.5, 0.7)
    ]
    standings = rank([Outcome("fedavg", seed, Path(), each) for seed, each in enumerate(metrics)])
    table = rounds_table(standings)
    assert table is not None
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table)
    assert "last 10" in shown.get()
    assert "60.0% ± 14.1" in shown.get()
    assert "90.0% ± 0.0" in shown.get()
    assert rounds_table(rank([Outcome("fedavg", 0, Path(), {"global.accuracy": 0.5})])) is None


def test_json_table_and_report_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.toml").write_text(f"method = ['fedavg']\n{TINY}\n[evaluate]\nlast = 2\nblocks = 1\nbest = true\n")
    with pytest.raises(SystemExit):
        main(["run", "e.toml", "--json"])
    (entry,) = json.loads(capsys.readouterr().out)["runs"]
    wanted = {f"global.accuracy_{name}" for name in ("last_2", "best", "rounds_1_1", "rounds_2_2")}
    assert wanted <= set(entry["metrics"])
    with (Path(entry["dir"]) / "table.csv").open() as file:
        kept = {row["metric"] for row in csv.DictReader(file) if row["scope"] == "global"}
    assert {key.removeprefix("global.") for key in wanted} <= kept
    page = (Path(entry["dir"]).parent / "report.html").read_text()
    assert "Over the rounds" in page
    assert "rounds 2-2" in page
