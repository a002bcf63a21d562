"""Damaged, odd and hostile run directories: one sentence each, nothing lost, and the others are shown."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcohort.data.revealed import Revealed
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import Recorder
from fedcohort.runs.stored import RunDir, read_table
from fedcohort.util import checkpoint
from support import REPOSITORY
from support.cli_calls import Cli, contents

STORED = REPOSITORY / "tests" / "stored" / "digits-001"
COUNTS = "site,0,1,2\nnorth,4,5,6\n"


@pytest.fixture
def run(run_once: Callable[..., Path], here: Path) -> Path:
    """A complete run beside another, of two methods."""
    (run,) = (here / run_once("--set", "method=['fedavg', 'fedprox']")).glob("fedprox*")
    (here / "counts.csv").write_text(COUNTS)
    return run


def one_sentence(answer: Any) -> str:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    return str(answer.err)


# Directories of earlier versions ---------------------------------------------------------------------------


def test_directories_of_version_0_1_0_are_read_and_resumed(cli: Cli, here: Path) -> None:
    """It kept neither about.json nor, of a simulation, label counts. One of its two runs is complete."""
    home = shutil.copytree(STORED, here / "old")
    (here / "counts.csv").write_text(COUNTS)
    (complete,), (stopped,) = home.glob("fedavg*"), home.glob("clust_psi_pfl*")
    assert cli("report", str(home)).code == 0
    text = (here / "report.html").read_text()
    assert "keeps no label counts, as an older fedcohort wrote it" in text
    assert "MLP 784-200-200-10" in text
    states = {
        entry["method"]: entry["state"] for entry in json.loads(cli("watch", "old", "--json").out)["runs"]
    }
    assert states == {"fedavg": "complete", "clust_psi_pfl": "stopped"}
    refused = cli("assign", str(complete), "--counts", "counts.csv", "--client", "site")
    assert refused.code == 2
    assert f"fedcohort run --resume {complete}' adds them" in refused.err
    first = (stopped / "table.csv").read_text()
    results = json.loads(cli("run", "--resume", "old", "--json").out)["runs"]
    accuracy = results[1]["metrics"]["global.accuracy"]
    assert accuracy == pytest.approx(0.43175487465181056, abs=0.05)  # it goes on with today's defaults
    assert (stopped / "table.csv").read_text().startswith(first)
    for run in (stopped, complete):
        assert cli("assign", str(run), "--counts", "counts.csv", "--client", "site").code == 0
        assert {"about.json", "roster.safetensors"} <= {path.name for path in run.iterdir()}  # added
    assert cli("report", str(home)).code == 0
    assert "Labels of the clients" in (here / "report.html").read_text()


def test_directories_since_they_are_self_contained_are_read_and_resumed(cli: Cli, here: Path) -> None:
    """Of its two runs one is complete, and the other lost its last two rounds to a power cut."""
    home = shutil.copytree(STORED.with_name("digits-002"), here / "old")
    (complete,), (stopped,) = home.glob("clust_psi_pfl*"), home.glob("fedavgm*")
    assert cli("report", "old").code == 0
    text = (here / "report.html").read_text()
    assert "Labels of the clients" in text
    assert "8 local steps" in text
    states = {run["method"]: run["state"] for run in json.loads(cli("watch", "old", "--json").out)["runs"]}
    assert states == {"clust_psi_pfl": "complete", "fedavgm": "stopped"}
    known = Revealed.read(complete / "roster.safetensors")
    assert known.counts is not None
    for name, counts in (("old", known.counts), ("new", known.counts[[1, 0, 2, 3, 4, 5]])):
        table = zip(known.clients, counts.int().tolist(), strict=True)
        rows = [",".join([client, *map(str, row)]) for client, row in table]
        (here / f"{name}.csv").write_text("\n".join([",".join(["client", *known.classes]), *rows]))
    joined = json.loads(cli("assign", str(complete), "--counts", "old.csv", "--json").out)
    assert sum(group["members"] for group in joined["groups"]) == 6
    assert len(joined["groups"]) == 2
    drift = json.loads(cli("drift", "old.csv", "new.csv", "--run", str(complete), "--json").out)
    assert [client["band"] == "major" for client in drift["clients"]] == [True, True, *[False] * 4]
    wanted = read_table(stopped / "table.csv")
    assert cli("run", "--resume", "old", "--json").code == 0
    rows = read_table(stopped / "table.csv")
    assert [row for row in rows if row.round <= 10] == [row for row in wanted if row.round <= 10]
    ended, before = (
        {row.key: row.value for row in table if row.round == 12 and row.metric in ("loss", "train_loss")}
        for table in (rows, wanted)
    )
    assert ended == pytest.approx(before, rel=1e-3)  # other machines round in other ways
    assert ended.keys() == {"train_loss", "global.loss", "personal.loss"}
    assert cli("assign", str(stopped), "--counts", "old.csv").code == 0


# Label counts ----------------------------------------------------------------------------------------------


def test_a_look_needs_no_data(cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of samples is gone, and no experiment can be made; still all is known that clients revealed,
    by their names and those of the classes, and which runs had the same data."""
    rows = [
        f"{('north', 'south', 'west')[k % 3]},{k % 7},{'ill' if k % 9 < k % 4 else 'well'}" for k in range(90)
    ]
    (here / "samples.csv").write_text("\n".join(["site,age,outcome", *rows, ""]))
    data = "data={source='table', path='samples.csv', client='site', label='outcome'}"
    methods = "method=['fedavg', 'clust_psi_pfl']"
    asked = ("--set", data, "--set", "partition={name='natural'}", "--set", methods)
    runs = [run["dir"] for run in json.loads(cli("run", "e.toml", *asked, "--json").out)["runs"]]
    (here / "samples.csv").unlink()
    monkeypatch.setattr(Experiment, "of", None)
    assert cli("report", "runs/e-001").code == 0
    text = (here / "report.html").read_text()
    assert "Labels of the clients" in text
    assert all(name in text for name in ("north", "south", "west", "ill", "well"))
    assert json.loads(cli("watch", "runs/e-001", "--json").out)["runs"][1]["state"] == "complete"
    assert len({RunDir.read(Path(run)).environment()["fingerprint"] for run in runs}) == 1
    (here / "old.csv").write_text("site,ill,well\nnorth,4,20\nsouth,9,11\nwest,5,5\n")
    (here / "new.csv").write_text("site,ill,well\nnorth,90,2\nsouth,9,11\nwest,5,5\n")
    for run in runs:
        answer = cli("assign", run, "--counts", "new.csv", "--client", "site", "--json")
        assert sum(group["members"] for group in json.loads(answer.out)["groups"]) == 3
        drift = cli("drift", "old.csv", "new.csv", "--client", "site", "--run", run, "--json")
        assert json.loads(drift.out)["clients"][0]["band"] == "major"


def test_label_counts_are_those_that_the_method_saw(cli: Cli, here: Path) -> None:
    """Who trains on validation data too tells the counts of both, and no others beside them."""
    asked = (
        "--set",
        "split.validation=0.3",
        "--set",
        "evaluate.on=test",
        "--set",
        "method=['fairavg', 'fairavg(everything=true)']",
    )
    runs = json.loads(cli("run", "e.toml", *asked, "--json").out)["runs"]
    part, whole = (Revealed.read(Path(run["dir"]) / "roster.safetensors") for run in runs)
    assert part.sizes[1].sum() > whole.sizes[1].sum() == 0
    assert torch.equal(part.sizes[:2].sum(0), whole.sizes[0])
    for known in (part, whole):
        assert known.counts is not None
        assert torch.equal(known.counts.sum(1), known.sizes[0].double())


@pytest.mark.parametrize("counts", ["exact", "noised", "withheld"])
def test_label_counts_are_kept_as_revealed_and_for_their_owner_alone(
    counts: str, cli: Cli, here: Path
) -> None:
    (run,) = json.loads(cli("run", "e.toml", "--set", f"privacy.counts={counts}", "--json").out)["runs"]
    path = Path(run["dir"]) / "roster.safetensors"
    for private in (path, path.parents[1] / "report.html"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    kept = Revealed.read(path)
    assert (kept.counts is None) == (counts == "withheld")
    assert kept.sizes.shape == (3, 6)
    if kept.counts is not None:
        assert (kept.counts.sum(1) == kept.sizes[0]).all() or counts == "noised"


# Looking ---------------------------------------------------------------------------------------------------


def not_a_number(run: Path) -> None:
    with (run / "table.csv").open("a") as table:
        table.write("2,global,,,accuracy,high\n")


def no_accuracy(run: Path) -> None:
    with (run / "table.csv").open("a") as table:
        table.write("2,global,,,accuracy,1e300\n")


def endless_group(run: Path) -> None:
    with (run / "table.csv").open("a") as table:
        table.write("2,personal,client 0,99999999999,accuracy,0.5\n")


def odd_settings(run: Path) -> None:
    (run / "config.toml").write_text("rounds = 3\nseeds = 5\nmethod = 7\n")


def deep_settings(run: Path) -> None:
    (run / "config.toml").write_text(f"rounds = {'[' * 5000}")


def commands_for_terminals(run: Path) -> None:
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('"fedprox"', '"fedprox", label = "\\u001b[2J"'))


def pipe(run: Path) -> None:
    (run / "config.toml").unlink()
    os.mkfifo(run / "config.toml")


def link(run: Path) -> None:
    (run / "config.toml").rename(run.parents[2] / "elsewhere.toml")
    (run / "config.toml").symlink_to(run.parents[2] / "elsewhere.toml")


def endless(run: Path) -> None:
    with (run / "config.toml").open("ab") as file:
        file.truncate(1 << 40)


ODD: list[Callable[[Path], None]] = [
    not_a_number,
    no_accuracy,
    endless_group,
    odd_settings,
    deep_settings,
    commands_for_terminals,
    pipe,
    link,
    endless,
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
def test_one_odd_run_hides_no_other(odd: Callable[[Path], None], run: Path, cli: Cli, here: Path) -> None:
    """watch and report show the other run, and say what is wrong with this one."""
    odd(run)
    answer = cli("watch", "runs/e-001", "--json")
    entries = {entry["state"]: entry for entry in json.loads(answer.out)["runs"]}
    assert entries["complete"]["method"] == "fedavg"
    assert entries["damaged"]["trouble"].startswith(f"runs/e-001/{run.name}/")
    shown = cli("watch", "runs/e-001", "--once")
    assert (shown.code, "\x1b" in shown.out) == (0, False)
    assert "damaged" in shown.out
    assert entries["damaged"]["trouble"] in shown.out
    answer = cli("report", "runs/e-001")
    assert answer.code == 0
    assert answer.err.startswith("warning: a run is left out: runs/e-001/")
    assert "1 left out, see Provenance" in (here / "report.html").read_text()
    assert "\x1b" not in one_sentence(cli("report", str(run)))
    one_sentence(cli("assign", str(run), "--counts", "counts.csv", "--client", "site"))


def test_numbers_that_are_missing_or_there_twice(run: Path, cli: Cli) -> None:
    """Without its bytes a run has no price; with two accuracies in a round it is damaged."""
    table = run / "table.csv"
    lines = table.read_text().splitlines(keepends=True)
    for left_out in ("1,round,,,bytes_down", "round,,,bytes_up"):
        table.write_text("".join(line for line in lines if left_out not in line))
        assert cli("report", str(run)).code == 0
    table.write_text("".join(lines) + "2,global,,,accuracy,0.5\n")
    assert "round 2 has two numbers global.accuracy" in one_sentence(cli("report", str(run)))
    table.write_text("".join(lines) + "2,grouping,,1e+308,interaction_change,0.5\n")
    assert "'1e+308' is no group" in one_sentence(cli("report", str(run)))


def facts(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return damage


ABOUT = {
    "not an object": facts(lambda about: [about]),
    "a number for a text": facts(lambda about: {**about, "grouping": 5}),
    "an unknown key": facts(lambda about: {**about, "more": True}),
    "an answer without bytes": facts(lambda about: {**about, "answers": [{"message": "m"}]}),
    "endless bytes": facts(lambda about: {**about, "answers": [{**about["answers"][0], "bytes": 10**400}]}),
    "another privacy": facts(lambda about: {**about, "privacy": {"counts": "all", "epsilon": 0.5}}),
    "depth": lambda path: path.write_text("[" * 100_000),
}


@pytest.mark.parametrize("how", ABOUT)
def test_damaged_facts_about_a_method_are_named(how: str, run: Path, cli: Cli) -> None:
    ABOUT[how](run / "about.json")
    for words in (("report", str(run)), ("assign", str(run), "--counts", "counts.csv", "--client", "site")):
        assert "about.json is damaged" in one_sentence(cli(*words))


def test_damaged_label_counts_are_named_and_a_report_does_without(run: Path, cli: Cli, here: Path) -> None:
    path = run / "roster.safetensors"
    good, data = Revealed.read(path), path.read_bytes()
    facts = good.clients, good.classes, good.shape, good.vocabulary
    counts = good.counts
    assert counts is not None
    bad = [
        Revealed(*facts, good.sizes, counts[:, :1].clone()),
        Revealed(*facts, good.sizes, -counts),
        Revealed(*facts, good.sizes, counts * float("nan")),
        Revealed(*facts, good.sizes[:, :1].clone(), counts),
        Revealed(*facts, good.sizes.to(torch.int8), counts),
        Revealed((good.clients[0],) * 6, *facts[1:], good.sizes, counts),
        Revealed(*facts[:2], (10**9, 10**9), 0, good.sizes, counts),
        Revealed((1, 2, 3, 4, 5, 6), *facts[1:], good.sizes, counts),  # type: ignore[arg-type]
    ]
    texts = []
    for each in bad:
        each.write(path)
        texts.append(path.read_bytes())
    for text in (*texts, data[:-1], data[:4], b"", data.replace(b"facts", b"fucts")):
        path.write_bytes(text)
        words = ("assign", str(run), "--counts", "counts.csv", "--client", "site")
        assert "roster.safetensors is damaged" in one_sentence(cli(*words))
    assert cli("report", str(run)).code == 0
    assert "roster.safetensors is damaged" in (here / "report.html").read_text()


@pytest.mark.parametrize("text", ["t,r,c,w\nnow\n", "t,r,c,w\nnow,first,north,left\n"])
def test_a_damaged_diary_of_a_deployment_is_named(text: str, run: Path, cli: Cli, here: Path) -> None:
    facts(lambda about: {**about, "elsewhere": True})(run / "about.json")
    (run / "events.csv").write_text(text)
    assert cli("report", str(run)).code == 0
    page = (here / "report.html").read_text()
    assert "events.csv is damaged" in page
    assert "The clients of these runs and their data were elsewhere" in page


def test_a_report_writes_where_it_is_told_and_never_through_a_link(run: Path, cli: Cli, here: Path) -> None:
    precious = here / "precious"
    precious.write_text("mine")
    for name in ("report.html.tmp", "out.html.tmp", "about.json.tmp", "table.csv.tmp"):
        for folder in (here, run, run.parent):
            (folder / name).symlink_to(precious)
    before = contents(run)
    assert cli("report", str(run.parent)).code == 0
    assert cli("report", str(run), "--out", "out.html").code == 0
    assert precious.read_text() == "mine"
    assert contents(run) == before
    (run / "result.json").unlink()
    assert "is a link, and nothing is written through it" in one_sentence(cli("run", "--resume", str(run)))
    assert precious.read_text() == "mine"


# Resuming --------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(run_once: Callable[..., Path]) -> Path:
    """A run that was stopped after its last checkpoint."""
    (run,) = run_once().glob("fedprox*")
    (run / "result.json").unlink()
    return run


ENVIRONMENTS = ["", "[]", "{}", "null", "[" * 100_000, '{"seconds": "long"}']
RESULTS = ["", "[]", "5", '"x"', '{"ad": "0.5"}', '{"ad": true}', '{"ad": [1]}', '{"ad": NaN}', "[" * 100_000]


@pytest.mark.parametrize(("name", "texts"), [("env.json", ENVIRONMENTS), ("result.json", RESULTS)])
def test_odd_json_is_one_sentence_and_its_cure_helps(
    name: str, texts: list[str], stopped: Path, cli: Cli, here: Path
) -> None:
    kept = (stopped / name).read_text() if name == "env.json" else ""
    for text in (*texts, *([kept.replace('"started"', '"ended"')] if kept else [])):
        (stopped / name).write_text(text)
        before = contents(here)
        for directory in (stopped, stopped.parent):
            error = one_sentence(cli("run", "--resume", str(directory)))
            assert f"{name} is damaged (" in error
            assert "delete it" in error
            assert contents(here) == before
    (stopped / name).unlink()
    assert cli("run", "--resume", str(stopped)).code == 0


def test_a_result_without_numbers_is_shown(stopped: Path, cli: Cli) -> None:
    (stopped / "result.json").write_text("{}")
    assert cli("run", "--resume", str(stopped)).code == 0


def test_a_changed_digit_in_an_old_row_is_noticed(stopped: Path, cli: Cli, here: Path) -> None:
    table = stopped / "table.csv"
    text = table.read_text()
    place = text.index("global,,,accuracy,0.") + len("global,,,accuracy,0.")
    table.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")
    before = contents(here)
    error = one_sentence(cli("run", "--resume", str(stopped)))
    assert "its rows are not those that the checkpoint was saved with): restore it" in error
    assert contents(here) == before
    table.write_text(text)
    assert cli("run", "--resume", str(stopped)).code == 0


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_comparison_is_refused(stopped: Path, cli: Cli, here: Path) -> None:
    """The names of runs follow from all settings: another run would be started beside the old one."""
    asked = stopped.parent / "experiment.toml"
    text = asked.read_text()
    for old, new, told in (
        ("lr = 0.05", "lr = 0.06", "local.lr is 0.06 here and 0.05 there"),
        ("    0,", "    1,", "fedprox, seed 0, is missing here"),
        ("fedprox", "fedavg", "fedprox, seed 0, is missing here"),
    ):
        edited(asked, old, new)
        before = contents(here)
        error = one_sentence(cli("run", "--resume", str(stopped.parent)))
        assert told in error
        assert "undo that change, or start a new comparison with 'fedcohort run FILE'" in error
        assert contents(here) == before
        asked.write_text(text)
    edited(asked, "    0,", "    0,\n    1,")  # more of the same is no change of what there is
    assert len(json.loads(cli("run", "--resume", str(stopped.parent), "--json").out)["runs"]) == 2


TENSORS: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "no round": lambda tensors: tensors.pop("round"),
    "no groups": lambda tensors: [tensors.pop(key) for key in list(tensors) if key.startswith("group/")],
    "a smaller model": lambda tensors: tensors.update({"group/0/weights/params": torch.zeros(3)}),
    "a group that is not there": lambda tensors: tensors["grouping/group"].fill_(7),
    "too few clients": lambda tensors: tensors.update({"grouping/group": torch.zeros(2, dtype=torch.int64)}),
    "a late round": lambda tensors: tensors["round"].fill_(10**6),
    "one number of two": lambda tensors: tensors.update({"bytes": torch.zeros(1)}),
}


@pytest.mark.parametrize("how", TENSORS)
def test_a_checkpoint_of_something_else_is_one_sentence(how: str, stopped: Path, cli: Cli) -> None:
    """Its digest is right: somebody made it."""
    tensors, facts = checkpoint.load(stopped)
    TENSORS[how](tensors)
    checkpoint.save(stopped, tensors, facts)
    (stopped / checkpoint.PREVIOUS).unlink()
    assert "state.safetensors is damaged (" in one_sentence(cli("run", "--resume", str(stopped)))


@pytest.mark.parametrize(
    "change", [{"config": 5}, {"table_bytes": -1}, {"table_bytes": "all"}, {"fingerprint": None}]
)
def test_a_checkpoint_with_odd_facts_is_one_sentence(change: dict[str, Any], stopped: Path, cli: Cli) -> None:
    tensors, facts = checkpoint.load(stopped)
    checkpoint.save(stopped, tensors, {**facts, **change})
    (stopped / checkpoint.PREVIOUS).unlink()
    assert "state.safetensors is damaged (" in one_sentence(cli("run", "--resume", str(stopped)))


# Disks -----------------------------------------------------------------------------------------------------


class Disk:
    """Counts what is written, and is full after so much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes, self.room = 0, 10**9
        self.error = errno.ENOSPC
        for owner, name in ((checkpoint, "_new_file"), (Recorder, "_write"), (os, "truncate")):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*about: Any) -> Any:
            self.writes += 1
            if self.writes > self.room:
                if write.__name__ == "_new_file":  # its name fits, its content does not
                    write(*about).close()
                raise OSError(self.error, os.strerror(self.error))
            return write(*about)

        return counted


def test_a_disk_that_fills_up_anywhere_loses_nothing(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every single thing that is written: one sentence, and with room again the same bytes at the end."""
    monkeypatch.setattr("fedcohort.report.write_report", lambda runs, out, private: out)  # takes its time
    disk = Disk(monkeypatch)
    assert cli("run", "e.toml", "--out", "whole", "--quiet").code == 0
    (whole,) = here.glob("whole/e-001/fedprox*")
    needed = disk.writes
    assert needed > 8
    for room in range(needed):
        disk.writes, disk.room = 0, room
        out = f"full-{room}"
        assert "No space left on device" in one_sentence(cli("run", "e.toml", "--out", out, "--quiet"))
        assert not list(here.rglob("*.tmp"))
        disk.room = 10**9
        if room == 0:  # nothing had begun
            continue
        assert cli("run", "--resume", f"{out}/e-001", "--quiet").code == 0
        (again,) = here.glob(f"{out}/e-001/fedprox*")
        for name in ("table.csv", "state.safetensors", "result.json", "config.toml", "about.json"):
            assert (again / name).read_bytes() == (whole / name).read_bytes(), (room, name)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_directory_that_cannot_be_written_is_one_sentence(
    error: int, stopped: Path, cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.error, disk.room = error, 0
    before = contents(here)
    assert os.strerror(error) in one_sentence(cli("run", "--resume", str(stopped)))
    assert contents(here) == before
