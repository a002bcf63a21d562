"""The cross-checks' own promises: what counts as agreement, and that the page tells what was found.

The packages compared live in environments of their own (``make crosscheck``); here runs what needs none.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.runners import RunError
from crosschecks import authors, clustering, ours, rows, run
from crosschecks.authors.clone import Clone, attempt
from crosschecks.rows import Pair, Reason, Row, compared, place, table
from support import REPOSITORY

PAGE = REPOSITORY / "docs" / "crosschecks.md"
NAN = float("nan")


@pytest.mark.parametrize(
    ("difference", "reason", "verdict"),
    [
        (1e-6, "", "same"),
        (2e-5, "", "UNEXPECTED"),
        (NAN, "", "UNEXPECTED"),
        (0.1, "why", "differs"),
        (1e-4, "why", "UNEXPECTED"),  # the reason no longer holds
        (NAN, "why", "does not run"),
    ],
)
def test_verdicts(difference: float, reason: str, verdict: str) -> None:
    row = Row("what", "ours", "theirs", difference, 1.0, reason)
    assert row.verdict == verdict
    assert row.holds == (verdict != "UNEXPECTED")


def test_a_path_is_compared_round_by_round() -> None:
    """From 0, ours moves to 3; theirs is 0.5 away in the first round and equal in the last."""
    row = Pair("FedX", "fedx", "X").row([[1.0, 1.0], [3.0, 2.0]], [[1.0, 1.5], [3.0, 2.0]], np.zeros(2))
    assert (row.difference, row.scale, row.verdict) == (0.5, 3.0, "UNEXPECTED")


def test_a_peer_that_failed_is_quoted() -> None:
    pair = Pair("FedX", "fedx", "X", Reason("nobody", "It has no lr."))
    row = pair.row([[1.0]], ["AttributeError: lr"], np.zeros(1))
    assert (row.theirs, row.verdict) == ("X: AttributeError: lr", "does not run")


def test_reasons_are_numbered_once() -> None:
    same = [Row("a", "o", "t", 1.0, 1.0, "why"), Row("b", "o", "t", 1.0, 1.0, "why")]
    text = table([*same, Row("c", "o", "t", 0.0, 1.0)])
    assert text.count("differs (1)") == 2
    assert text.endswith("| c | o | t | 0.0e+00 | 1 | same |\n\n1. why")


def test_a_reason_names_the_one_line_it_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "peer" / "lib" / "python3.11" / "site-packages"
    package.mkdir(parents=True)
    (package / "x.py").write_text("a = 1\nb = 2\nc = 2\n")
    monkeypatch.setattr(rows, "environment", lambda peer: tmp_path / peer)
    assert str(Reason("peer", "See {}.", (("x.py", "b ="),))) == "See `x.py:2`."
    with pytest.raises(RunError, match="in 2 lines"):
        str(Reason("peer", "See {}.", (("x.py", "= 2"),)))


def test_arrays_of_other_shapes_are_not_compared() -> None:
    """NumPy would spread one over the other, and call them the same."""
    with pytest.raises(RunError, match=r"FedX: ours is \(2, 3\), theirs \(3,\)"):
        compared("FedX", ("fedx", np.zeros((2, 3))), ("X", np.zeros(3)))


def test_the_scale_is_how_far_ours_went() -> None:
    row = compared("FedX", ("fedx", [[5.0, 2.0]]), ("X", [[5.0, 2.5]]), "why", since=[4.0, -1.0])
    assert (row.difference, row.scale, row.verdict) == (0.5, 3.0, "differs")


def test_a_reason_about_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"x\.py cannot be read: No such file"):
        place(tmp_path, "x.py", "b =")


def test_without_clones_every_method_is_skipped_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authors, "FOLDER", tmp_path)
    found, versions = authors.run()
    assert [row.what for row in found] == list(authors.METHODS)
    assert all(row.holds for row in found)
    assert not versions
    source = "https://github.com/felisat/clustered-federated-learning"
    cfl = table(row for row in found if row.what == "CFL")
    assert (
        f"| - | - | skipped: no clone of {source[19:]} in {tmp_path}; `git clone {source} {tmp_path}/" in cfl
    )


def test_a_check_without_clones_leaves_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    monkeypatch.setattr(authors, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["run", "--only", "authors"])
    assert run.main() == 0
    assert page.read_text() == PAGE.read_text()
    assert "nothing compared, the page stays" in capsys.readouterr().out


@pytest.mark.deploy
def test_authors_code_runs_elsewhere_and_leaves_its_clone_alone(tmp_path: Path) -> None:
    """What a stranger's module does when it is imported, it does in another process and an empty folder."""
    clone = Clone("cfl", "somebody/code", tmp_path)
    clone.folder.mkdir()
    (clone.folder / "other.py").write_text("")
    lines = "import os, other", "raise OSError(f'{os.listdir()} in {os.getcwd()}, {os.getpid()}')"
    (clone.folder / "fl_devices.py").write_text("\n".join(lines))
    with pytest.raises(RunError, match=r"OSError: \[\] in /.*, \d+") as error:
        clone.ask(vars(ours.make_kinds(3, 1)))
    where = str(error.value).split(" in ")[1].split(",")[0]
    assert not Path(where).exists()
    assert sorted(file.name for file in clone.folder.iterdir()) == ["fl_devices.py", "other.py"]


def test_a_clone_tells_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    clone = Clone("cfl", "somebody/code", tmp_path)
    clone.folder.mkdir()
    assert clone.version == "of an unknown commit"
    git = ["git", "-C", str(clone.folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (clone.folder / "x.py").write_text("a = 1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    assert clone.version == head.stdout.strip()
    (clone.folder / "x.py").write_text("a = 2\n")
    assert clone.version == f"{head.stdout.strip()} with changes"


def test_code_that_ends_with_a_mistake_of_its_own_is_quoted() -> None:
    def broken() -> np.ndarray:
        raise AttributeError("no clients")

    assert attempt(broken).tolist() == ["AttributeError: no clients"]
    assert attempt(lambda: np.ones(2)).tolist() == [1.0, 1.0]


def test_scripted_clients_move_the_model_by_their_weighted_mean() -> None:
    """FedAvg's path is the running sum of the deltas' means by size."""
    moves = ours.make_moves(params=20)
    mean = np.einsum("rkp,k->rp", moves.deltas.astype(float), moves.sizes / moves.sizes.sum())
    expected = moves.init + mean.cumsum(axis=0)
    assert ours.take_steps("fedavg", moves) == pytest.approx(expected, abs=1e-5)


def test_clients_of_equal_size_are_cut_to_the_smallest() -> None:
    steps = [1] * ours.CLIENTS
    free, equal = ours.make_training(steps), ours.make_training(steps, equal=True)
    assert set(np.bincount(equal.owner)) == {np.bincount(free.owner).min()}


def test_groups_agree_with_scikit_learn() -> None:
    found = [*clustering.by_loss_curves(), *clustering.by_updates(), *clustering.scores()]
    assert [row.what for row in found if not row.holds] == []


def test_groups_that_differ_are_noticed() -> None:
    """{0, 1}, {2, 3} against {0, 2}, {1, 3}: an adjusted Rand index of -1/2."""
    row = clustering.same_groups("x", "ours", "theirs", [0, 0, 1, 1], np.array([5, 7, 5, 7]))
    assert row.difference == pytest.approx(1.5)
    assert not row.holds


def test_the_page_holds_every_check_and_nothing_unexpected() -> None:
    page = PAGE.read_text()
    assert page.startswith(run.INTRODUCTION)
    for check in run.CHECKS:
        assert f"## {check.TITLE}\n\n{check.ABOUT}" in page
    assert "UNEXPECTED" not in page


def test_the_page_has_every_author_compared() -> None:
    section = run.sections(PAGE.read_text())[authors.TITLE]
    for method in authors.METHODS:
        assert f"\n| {method}" in section
    assert "skipped:" not in section


def test_requirements_pin_every_package() -> None:
    files = [*Path(run.__file__).parent.glob("peers/requirements-*.txt")]
    lines = [line for file in files for line in file.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all("==" in line for line in lines)
