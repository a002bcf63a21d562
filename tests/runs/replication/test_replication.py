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
from fedcohort.runs.comparison import PlannedRun, Watcher
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.replication.folders import Cell, Folder, Study, folders
from fedcohort.runs.replication.order import InOrder, completed, read_costs, representatives, write_costs
from fedcohort.runs.replication.replication import Replication, chosen, stale
from fedcohort.runs.replication.results import ResultRow, add_results, read_results, settings_hash
from fedcohort.runs.replication.study import study_results
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held


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


def test_no_run_is_begun_that_would_end_too_late() -> None:
    """10 rounds each; by a probe 1 s a round of the one, 5 s of the other: of 25 s one takes 10. The next
    like it would end after 20, the dear one after 60. Two at a time are half as fast."""
    experiment, now = Experiment.of({"method": ["fedavg", "fedprox"], "rounds": 10}), [0.0]
    cheap, dear = experiment.methods
    jobs = [
        PlannedRun(experiment, method, seed, Path(f"{method}{seed}"))
        for seed in (0, 1)
        for method in (cheap, dear)
    ]
    schedule = InOrder(jobs, {"fedavg": 1.0, "fedprox": 5.0}, 25.0, lambda: now[0])
    assert schedule.next().key == ("fedavg", 0)
    now[0] = 10.0
    assert [job.key for job in schedule.waiting] == [("fedavg", 1)]
    assert [job.key for job in schedule.given_up] == [("fedprox", 0), ("fedprox", 1)]
    schedule.size = 2
    assert schedule.waiting == []
    assert len(schedule.given_up) == 3


def test_a_run_that_was_seen_to_wait_can_be_begun_a_moment_later() -> None:
    """Its time may be up between the two."""
    experiment, now = Experiment.of({"method": ["fedavg"], "rounds": 10}), [0.0]
    jobs = [PlannedRun(experiment, experiment.methods[0], seed, Path(str(seed))) for seed in (0, 1)]
    schedule = InOrder(jobs, {"fedavg": 1.0}, 25.0, lambda: now[0])
    assert len(schedule.waiting) == 2
    now[0] = 16.0
    assert schedule.next().key == ("fedavg", 0)
    assert schedule.waiting == []


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


def test_a_run_that_is_seen_is_believed_rather_than_its_probe() -> None:
    experiment, now = Experiment.of({"method": ["fedavg"], "rounds": 10}), [0.0]
    jobs = [PlannedRun(experiment, experiment.methods[0], seed, Path(str(seed))) for seed in (0, 1)]
    schedule = InOrder(jobs, {"fedavg": 100.0}, 50.0, lambda: now[0])
    schedule.costs = {"fedavg": 1.0}
    schedule.next()
    schedule.costs = {"fedavg": 100.0}
    for done in (1, 2, 3):
        now[0] += 2.0
        schedule.saw(("fedavg", 0), done)
    assert len(schedule.waiting) == 1  # 20 s, not 1000


def test_a_study_tells_data_and_time_and_time_is_no_setting(folder: Folder, tmp_path: Path) -> None:
    study = Study("x", "rows.csv", "partition.alpha=$alpha", "fedavg", "")
    found = []
    for seconds in ("2.5", "3.5"):
        row = f"50.0,0.5,abc,{seconds}"
        (tmp_path / "rows.csv").write_text(f"alpha,global.accuracy,labels,seconds\n{row}\n")
        found += study_results(folder, study, "paper", tmp_path)
    assert [(each.about["seconds"], each.about["data"]) for each in found] == [("2.5", "abc"), ("3.5", "abc")]
    assert found[0].config == found[1].config


CELLS = [
    Cell(f"p/{c}", f"p/{m}") for c in ("mnist", "fmnist/alpha=0.05") for m in ("fedavg", "fedavgm", "fedlecc")
]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("*", [0, 1, 2, 3, 4, 5]),
        ("fedavg", [0, 3]),
        ("fedavg*@mnist", [0, 1]),
        ("@alpha=0.05", [3, 4, 5]),
        ("fedlecc, fedavg@fmnist/*", [2, 3, 5]),
    ],
)
def test_cells_are_chosen_by_patterns(text: str, places: list[int]) -> None:
    assert chosen(CELLS, text, "p") == [CELLS[place] for place in places]


def test_commas_between_settings_part_no_patterns() -> None:
    cells = [Cell("c", "p/cfl(eps1=0.4, relative=True)"), Cell("c", "fedavg")]
    assert chosen(cells, "cfl(eps1=0.4, relative=True)@c", "p") == cells[:1]
    assert chosen(cells, "cfl(eps1=0.4, relative=True),fedavg", "p") == cells


@pytest.mark.parametrize("text", ["", "@", "fedavg,", ", fedavg@mnist"])
def test_a_pattern_of_nothing_is_not_one_of_all(text: str) -> None:
    with pytest.raises(UserError, match="there is no such cell"):
        chosen(CELLS, text, "p")


def test_a_label_may_hold_what_parts_methods_from_conditions() -> None:
    cells = [Cell("p/mnist", "a@b")]
    assert chosen(cells, "a@b@mnist", "p") == cells
    with pytest.raises(UserError, match="methods: a@b; conditions: mnist"):
        chosen(cells, "fedavg", "p")


def test_a_pattern_that_fits_nothing_is_told_what_there_is() -> None:
    known = "methods: fedavg, fedavgm, fedlecc; conditions: mnist, fmnist/alpha=0.05"
    with pytest.raises(UserError, match=f"--cells fedprox: there is no such cell; {known}"):
        chosen(CELLS, "fedavg,fedprox", "p")


def test_a_cell_that_no_file_makes_is_named(folder: Folder, tmp_path: Path) -> None:
    path = folder.path / "experiment.toml"
    path.write_text(path.read_text().replace('\n[[method]]\nname = "fedavg"\n', ""))
    with pytest.raises(UserError, match="does not make fedavg@partition"):
        Replication(folder, "paper", tmp_path).run(Silent())


def test_costs_of_others_follow_from_those_that_were_measured() -> None:
    """Under the second conditions FedAvg takes three times as long, so FedAvgM is thought to, too: the mean
    there (3) times its own (2) by the mean of all, 2."""
    assert representatives(CELLS) == [CELLS[0], CELLS[1], CELLS[2], CELLS[3]]
    known = {CELLS[0]: 1.0, CELLS[1]: 2.0, CELLS[3]: 3.0}
    assert completed(known, CELLS)[CELLS[4]] == pytest.approx(3.0 * 2.0 / 2.0)
    assert completed({}, CELLS) == {}


def test_costs_of_a_label_with_an_at_sign_are_read_again(tmp_path: Path) -> None:
    cell = Cell("mnist", "a@b")
    write_costs(tmp_path / "costs.json", {cell: 2.0})
    assert read_costs(tmp_path / "costs.json") == {cell: 2.0}


@pytest.mark.parametrize("text", ["5", "null", "[{}]", "[]"])
def test_costs_that_are_none_are_damaged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UserError, match="damaged"):
        read_costs(path)


def test_the_working_directory_is_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is there has an absolute path; elsewhere it is found below the folder of data."""
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.csv").write_text("a,label\n1,x\n2,y\n")
    hashes = []
    for place in (tmp_path, tmp_path / "adult", tmp_path.parent):
        monkeypatch.chdir(place)
        data = {"source": "table", "path": "adult/adult.csv", "label": "label"}
        asked = Experiment.of({"method": ["fedavg"], "data": data})
        hashes.append(settings_hash(asked.table(asked.methods[0], 0)))
    assert len(set(hashes)) == 1


def test_a_result_is_written_once(folder: Folder, tmp_path: Path) -> None:
    """Two processes with directories of their own have made the same run."""
    path = tmp_path / "results.csv"
    about = {"conditions": "a", "method": "b", "scale": "paper", "seed": "0", "config": "c"}
    add_results(path, [ResultRow(about, {"ad": 1.0})])
    add_results(path, [ResultRow(about, {"ad": 2.0}), ResultRow({**about, "seed": "1"}, {"ad": 3.0})])
    assert [(each.seed, each.values["ad"]) for each in read_results(path)] == [(0, 1.0), (1, 3.0)]


def test_one_process_at_a_time_writes_results(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(UserError, match="another process"):
        add_results(tmp_path / "results.csv", [])


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


@pytest.mark.parametrize("odd", ["results", "table", "run"])
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


def test_a_study_row_without_a_seed_is_damaged(tmp_path: Path, folder: Folder) -> None:
    study = Study("x", "rows.csv", "all", "one", "")
    (tmp_path / "rows.csv").write_text("seed,groups\n1.5,3\n")
    with pytest.raises(UserError, match=r"'1\.5' is no seed"):
        study_results(folder, study, "paper", tmp_path)


def test_a_column_is_no_metric(folder: Folder) -> None:
    path = folder.path / "table.toml"
    path.write_text(path.read_text().replace('also = ["bytes_up"]', 'also = ["seed"]'))
    with pytest.raises(UserError, match="'seed' is no metric but a column"):
        _ = Folder(folder.path).metrics


def test_a_folder_that_is_a_link_is_no_table(folder: Folder, tmp_path: Path) -> None:
    (folder.path.parent / "table2").symlink_to(folder.path)
    assert [each.name for each in folders(tmp_path / "papers")] == ["tiny/table1"]


def test_a_name_may_be_longer_than_a_disk_takes(folder: Folder, tmp_path: Path) -> None:
    path = folder.path / "experiment.toml"
    path.write_text(f'name = "{"x" * 300}"\n' + path.read_text())
    asked = Replication(Folder(folder.path), "small", tmp_path, cells="fedavg")
    assert left_over(asked, Silent()) == 0


def test_where_no_directory_can_be_made_is_told(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="choose another --out"):
        Replication(folder, "small", tmp_path / "file").probe(Silent())
