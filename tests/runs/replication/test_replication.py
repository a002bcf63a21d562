"""A table is run cell by cell: nothing twice, nothing lost, the decisive first, and nothing too late."""

import math
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli.progress import Silent
from fedcohort.core.state import State
from fedcohort.methods.fedprox import FedProx
from fedcohort.runs.comparison import Watcher
from fedcohort.runs.replication.folders import Folder
from fedcohort.runs.replication.order import write_costs
from fedcohort.runs.replication.replication import Replication, chosen, stale
from fedcohort.runs.replication.results import ResultRow, add_results, read_results
from fedcohort.util.errors import UserError


class Watched(Silent):
    """Writes down which runs begin, and may be interrupted before a round ends."""

    def __init__(self, rounds: float = math.inf) -> None:
        self.begun: list[tuple[str, int]] = []
        self.rounds = rounds

    def begin(self, method: str, seed: int, rounds: int) -> Any:
        self.begun.append((method, seed))
        callback = super().begin(method, seed, rounds)

        def after_round(state: State, *about: Any) -> bool:
            self.rounds -= 1
            if self.rounds < 0:
                raise KeyboardInterrupt
            return False

        callback.after_round = after_round  # type: ignore[method-assign,assignment]
        return callback


def left_over(asked: Replication, watcher: Watcher, seconds: float = math.inf) -> int:
    asked.run(watcher, seconds)
    return len(asked.open)


def lines(folder: Folder) -> dict[tuple[str, ...], dict[str, float]]:
    """What results.csv has, without what depends on the clock."""
    found = read_results(folder.path / "results.csv")
    return {(*each.cell, each.about["scale"], each.about["seed"], each.config): each.values for each in found}


def test_every_cell_and_seed_has_a_line_and_nothing_is_run_twice(folder: Folder, tmp_path: Path) -> None:
    asked = Replication(folder, "paper", tmp_path / "runs")
    assert left_over(asked, Silent()) == 0
    found = read_results(folder.path / "results.csv")
    assert len(found) == len(lines(folder)) == 2 * 2 * 3
    one = next(each for each in found if each.cell == ("partition.alpha=0.5", "fedavg"))
    assert set(one.values) == {"global.accuracy", "bytes_up"}
    command = "fedcohort replicate tiny/table1 --scale paper --cells fedavg@partition.alpha=0.5"
    assert one.about["command"] == command
    assert len(one.about["data"]) == 64
    assert float(one.about["seconds"]) > 0
    assert (one.about["rounds"], one.about["version"] != "") == ("4", True)
    again = Watched()
    assert left_over(Replication(folder, "paper", tmp_path / "elsewhere"), again) == 0
    assert again.begun == []
    more = Watched()
    Replication(folder, "paper", tmp_path / "runs", seeds=4, cells="fedavg").run(more)
    assert {seed for _, seed in more.begun} == {3}
    assert len(lines(folder)) == 12 + 2


def test_a_shell_reads_the_command_as_it_is_written(folder: Folder, tmp_path: Path) -> None:
    method = "fedlecc(loss_source='last_seen')"
    path = folder.path / "experiment.toml"
    path.write_text(path.read_text().replace('"fedavg"', '"fedlecc"\nloss_source = "last_seen"'))
    for name in ("table.toml", "expected.csv"):
        (folder.path / name).write_text((folder.path / name).read_text().replace("fedavg", method))
    asked = Replication(Folder(folder.path), "small", tmp_path, seeds=1, cells="fedlecc*@*=50.0")
    asked.run(Silent())
    (one,) = asked.results
    *_, cells = shlex.split(one.about["command"])
    assert chosen(asked.folder.cells, cells, "tiny") == [one.cell] == [("partition.alpha=50.0", method)]


def test_who_is_killed_goes_on_to_the_same_numbers(folder: Folder, tmp_path: Path) -> None:
    for rounds in (5, 13, 22):
        with pytest.raises(KeyboardInterrupt):
            Replication(folder, "paper", tmp_path / "runs").run(Watched(rounds))
    stopped = lines(folder)
    assert 0 < len(stopped) < 12
    last = Watched()
    assert left_over(Replication(folder, "paper", tmp_path / "runs"), last) == 0
    resumed = lines(folder)
    assert len(resumed) == 12
    assert len(set(last.begun)) == 12 - len(stopped)
    assert stopped.items() <= resumed.items()
    (folder.path / "results.csv").unlink()
    Replication(folder, "paper", tmp_path / "other").run(Silent())
    assert lines(folder) == resumed


def test_what_was_complete_but_not_written_down_is_taken_over(folder: Folder, tmp_path: Path) -> None:
    Replication(folder, "small", tmp_path / "runs").run(Silent())
    kept = lines(folder)
    (folder.path / "results.csv").unlink()
    watcher = Watched()
    assert left_over(Replication(folder, "small", tmp_path / "runs"), watcher) == 0
    assert watcher.begun == []
    assert lines(folder) == kept


@pytest.mark.parametrize(("kept", "left"), [("rounds_to_target", 0), ("bytes_down", 12)])
def test_runs_in_another_table_s_results_are_taken_over(
    kept: str, left: int, folder: Folder, tmp_path: Path
) -> None:
    """Whatever became of their directories. That a target was not reached is known; what the other table does
    not keep is not."""
    Replication(folder, "small", tmp_path / "runs").run(Silent())
    path = folder.path / "results.csv"
    known = [
        ResultRow(each.about, {**each.values, "rounds_to_target": math.nan}) for each in read_results(path)
    ]
    path.unlink()
    add_results(path, known)
    other = folder.path.parent / "table2"
    shutil.copytree(folder.path, other, ignore=shutil.ignore_patterns("results.csv"))
    (other / "table.toml").write_text((other / "table.toml").read_text().replace("bytes_up", kept))
    asked = Replication(Folder(other), "small", tmp_path / "elsewhere")
    assert left_over(asked, Silent(), seconds=0) == left
    taken = lines(Folder(other))
    assert len(taken) == 12 - left
    assert taken.keys() <= lines(folder).keys()
    assert all(set(values) == {"global.accuracy", kept} for values in taken.values())


def test_a_changed_experiment_makes_its_results_stale(folder: Folder, tmp_path: Path) -> None:
    Replication(folder, "small", tmp_path, cells="fedavg").run(Silent())
    assert stale(folder) == []
    path = folder.path / "experiment.toml"
    path.write_text(path.read_text().replace("cohort = 3", "cohort = 2"))
    told = stale(folder)
    assert len(told) == 6
    assert "fedavg@partition.alpha=0.5, small, seed 0" in told
    assert Replication(folder, "small", tmp_path).results == []


def test_no_result_of_a_smoke_test_is_kept(folder: Folder, tmp_path: Path) -> None:
    """Every method and all conditions are tried once, not each with each."""
    asked = Replication(folder, "smoke", tmp_path)
    assert left_over(asked, Silent()) == 0
    assert len(asked.results) == 3
    assert not (folder.path / "results.csv").exists()


def test_what_a_claim_needs_goes_first_and_every_seed_of_it_before_the_rest(
    folder: Folder, tmp_path: Path
) -> None:
    watcher = Watched()
    asked = Replication(folder, "paper", tmp_path)
    asked.probe(Silent())
    asked.run(watcher)
    order = [(title.endswith("50.0"), seed) for title, seed in dict.fromkeys(watcher.begun)]
    assert order == sorted(order, key=lambda each: (not each[0], each[1]))


def test_the_cheapest_claim_has_its_seeds_before_another_begins(folder: Folder, tmp_path: Path) -> None:
    """The second costs less. Three seeds give a verdict; the fourth comes when both have one."""
    path = folder.path / "table.toml"
    claim = path.read_text().partition("[[claims]]")[2]
    path.write_text(path.read_text() + "\n[[claims]]" + claim.replace("50.0", "0.5"))
    asked = Replication(Folder(folder.path), "small", tmp_path, seeds=4)
    asked.home.mkdir(parents=True)
    write_costs(
        asked._costs, {cell: float(cell.conditions.rpartition("=")[2]) for cell in asked.folder.cells}
    )
    watcher = Watched()
    asked.run(watcher)
    order = [(title.rpartition("=")[2], seed) for title, seed in dict.fromkeys(watcher.begun)]
    expected = [(alpha, seed) for seeds in ((0, 1, 2), (3,)) for alpha in ("0.5", "50.0") for seed in seeds]
    assert list(dict.fromkeys(order)) == expected


def test_there_is_no_time_for_anything(folder: Folder, tmp_path: Path) -> None:
    watcher = Watched()
    assert left_over(Replication(folder, "paper", tmp_path), watcher, seconds=0) == 12
    assert watcher.begun == []
    assert lines(folder) == {}


def test_tables_of_other_experiments_are_probed_anew(folder: Folder, tmp_path: Path) -> None:
    """They may have other data under conditions of the same name."""
    first = Replication(folder, "paper", tmp_path)
    first.probe(Silent())
    path = folder.path / "experiment.toml"
    path.write_text('name = "other-data"\n' + path.read_text())
    other = Replication(Folder(folder.path), "paper", tmp_path)
    assert not math.isnan(first.seconds_left)
    assert math.isnan(other.seconds_left)


def test_a_name_leads_to_no_other_folder(folder: Folder, tmp_path: Path) -> None:
    """A folder of tables may be a stranger's."""
    path = folder.path / "experiment.toml"
    path.write_text('name = "../../elsewhere"\n' + path.read_text())
    asked = Replication(Folder(folder.path), "paper", tmp_path)
    asked.probe(Silent())
    assert asked.seconds_left > 0
    assert [each.parent for each in tmp_path.rglob("seconds_per_round*")] == [asked.home]


def test_a_budget_goes_by_this_machine_s_seconds(folder: Folder, tmp_path: Path) -> None:
    """Somebody with a slower machine has made the first seed; an hour would not do for another run there."""
    Replication(folder, "paper", tmp_path / "theirs", seeds=1).run(Silent())
    path = folder.path / "results.csv"
    slow = [ResultRow(each.about | {"seconds": "36000"}, each.values) for each in read_results(path)]
    path.unlink()
    add_results(path, slow)
    asked = Replication(folder, "paper", tmp_path / "ours")
    assert math.isnan(asked.seconds_left)
    asked.probe(Silent())
    assert 0 < asked.seconds_left < 3600
    assert left_over(asked, Silent(), seconds=3600) == 0


def test_a_cell_that_no_file_makes_is_named(folder: Folder, tmp_path: Path) -> None:
    path = folder.path / "experiment.toml"
    path.write_text(path.read_text().replace('\n[[method]]\nname = "fedavg"\n', ""))
    with pytest.raises(UserError, match="does not make fedavg@partition"):
        Replication(folder, "paper", tmp_path).run(Silent())


def test_a_result_that_cannot_be_written_down_now_ends_no_run(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command takes it over."""
    asked = Replication(folder, "small", tmp_path / "runs", cells="fedavg")

    def refuse(*about: object) -> None:
        raise UserError("somebody writes")

    with monkeypatch.context() as patched:
        patched.setattr("fedcohort.runs.replication.replication.add_results", refuse)
        with pytest.warns(RuntimeWarning, match="not written down yet"):
            asked.run(Silent())
    assert not (folder.path / "results.csv").exists()
    again = Watched()
    assert left_over(asked, again) == 0
    assert again.begun == []


@pytest.mark.parametrize("odd", ["table", "run"])
def test_what_is_odd_elsewhere_keeps_no_table_from_being_made(
    odd: str, folder: Folder, tmp_path: Path
) -> None:
    asked = Replication(folder, "small", tmp_path / "runs", cells="fedavg")
    asked.run(Silent())
    (folder.path / "results.csv").unlink()
    if odd == "run":
        next(asked.home.rglob("env.json")).write_text("{")
    else:
        (folder.path.parent / odd).mkdir()
        (folder.path.parent / odd / "results.csv").write_text('garbage,"')
    with suppress(UserError):  # a run directory that is damaged is told when it is carried out
        asked.run(Silent())
    assert len(asked.open) == (odd == "run")


def test_a_method_that_is_mistaken_ends_no_other(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sentence of ours but any error, such as that of memory that is not there, in probes as in runs."""

    def fail(*about: object) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(FedProx, "anchor", fail)
    asked = Replication(folder, "small", tmp_path / "runs")
    with pytest.raises(RuntimeError, match="allocate"):
        asked.run(Silent())
    assert {cell.method for cell, _ in asked.open} == {"fedprox"}


def test_a_name_may_be_longer_than_a_disk_takes(folder: Folder, tmp_path: Path) -> None:
    path = folder.path / "experiment.toml"
    path.write_text(f'name = "{"x" * 300}"\n' + path.read_text())
    asked = Replication(Folder(folder.path), "small", tmp_path, cells="fedavg")
    assert left_over(asked, Silent()) == 0


def test_where_no_directory_can_be_made_is_told(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="choose another --out"):
        Replication(folder, "small", tmp_path / "file").probe(Silent())
