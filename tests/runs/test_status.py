"""How far a run is, from its directory alone."""

import os
from pathlib import Path

import pytest

from fedcohort.runs.status import Follower, Followers
from fedcohort.runs.stored import homes_in
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held, is_held
from support.run_files import Write, rows


def test_a_run_is_read_from_its_files(write_run: Write) -> None:
    """Two rounds of four, two updates used in each."""
    status = Follower(write_run(method="fedprox(mu=0.1)", seed=1)).look()
    assert (status.method, status.seed, status.rounds, status.done) == ("fedprox(mu=0.1)", 1, 4, 2)
    assert status.trained == 4
    assert status.curve == (0.25, 0.5)
    assert status.numbers == {"bytes_up": 200.0, "global.accuracy": 0.5, "groups": 3.0}


def test_state_is_who_holds_it_and_whether_there_is_a_result(write_run: Write) -> None:
    run = write_run()
    follower = Follower(run)
    assert follower.look().state == "stopped"
    with held(run):
        assert follower.look().state == "running"
    assert follower.look().state == "stopped"
    (run / "result.json").write_text("{}")
    assert follower.look().state == "complete"


def test_only_what_is_new_is_read_and_never_half_a_line(write_run: Write) -> None:
    run = write_run()
    follower = Follower(run)
    follower.look()
    new = rows(3, 0.75, trained=1)
    with (run / "table.csv").open("a") as table:
        table.write(new[:-3])  # "3,grouping,,,groups,3.0" lacks its end
        table.flush()
        assert follower.look().curve == (0.25, 0.5, 0.75)
        before = follower.read
        table.write(new[-3:])
    status = follower.look()
    assert follower.read - before == len("3,grouping,,,groups,3.0\n")
    assert (status.done, status.trained, status.curve) == (3, 5, (0.25, 0.5, 0.75))


def test_names_may_hold_what_looks_like_the_end_of_a_line(write_run: Write) -> None:
    """Unicode knows more line ends than CSV does."""
    run = write_run()
    with (run / "table.csv").open("a", encoding="utf-8") as table:
        table.write("3,cohort,north\x85\u2028 wing,0,trained,1.0\n")
    assert Follower(run).look().trained == 5


def test_a_run_that_went_back_to_its_checkpoint_is_read_again(write_run: Write) -> None:
    run = write_run()
    follower = Follower(run)
    follower.look()
    table = run / "table.csv"
    os.truncate(table, len(table.read_text()) - len(rows(2, 0.5)))
    assert follower.look().curve == (0.25,)
    assert follower.look().trained == 2


@pytest.mark.parametrize("name", ["table.csv", "config.toml"])
def test_what_is_damaged_is_not_read_again_until_it_changes(
    name: str, write_run: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of all runs looks every few seconds, and a table may have ten million rows."""
    run = write_run()
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole + b"= nonsense\n")
    read: list[int] = []
    look, start = Follower.look, Follower.__init__
    monkeypatch.setattr(Follower, "look", lambda self: read.append(1) or look(self))
    monkeypatch.setattr(Follower, "__init__", lambda self, at: read.append(1) or start(self, at))
    followers = Followers(run.parent)
    first, *others = (followers.look() for _ in range(5))
    reads = len(read)
    assert (first[0].state, others) == ("damaged", [first] * 4)
    assert reads == (2 if name == "table.csv" else 1)
    (run / name).write_bytes(whole)
    assert followers.look()[0].state == "stopped"


def test_a_comparison_knows_how_many_runs_there_will_be(write_run: Write) -> None:
    """Two seeds of one method are asked for; one has started, then the other."""
    home = write_run("late", seed=1).parent
    followers = Followers(home)
    assert [status.seed for status in followers.look()] == [1]
    assert followers.planned == 2
    write_run("early", seed=0)
    assert sorted(status.seed for status in followers.look()) == [0, 1]
    assert [status.seed for status in Followers(home).look()] == [0, 1]  # by when they were started


def test_homes_are_runs_comparisons_or_what_holds_them(write_run: Write, tmp_path: Path) -> None:
    run = write_run()
    (tmp_path / "runs" / "notes").mkdir()
    assert homes_in(run) == [run]
    assert homes_in(run.parent) == [run.parent]
    assert homes_in(run.parents[1]) == [run.parent]


def test_what_is_no_run_is_refused(tmp_path: Path, write_run: Write) -> None:
    with pytest.raises(UserError, match=r"is not the directory of a run"):
        Followers(tmp_path)
    run = write_run()
    (run / "config.toml").write_text("rounds = = 3")
    with pytest.raises(UserError, match=r"config\.toml is damaged"):
        Follower(run)
    (run.parent / "experiment.toml").write_text("seeds = [0]")
    with pytest.raises(UserError, match=r"experiment\.toml is damaged"):
        _ = Followers(run.parent).planned


def test_a_directory_is_held_once(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(UserError, match="is being run by another process"), held(tmp_path):
            pass
    assert not is_held(tmp_path)
    with held(tmp_path):
        pass
