"""Machine code of earlier processes: executed again where it is whole and nobody else can have written it."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcohort.engines.vector import kept as keeping
from fedcohort.engines.vector.kept import KeptCode

machine = pytest.importorskip("fedcohort.engines.vector.machine", reason="fedcohort[fast] is not installed")
PROGRAM = "define i32 @answer() {{ ret i32 {} }}"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptCode:
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path))
    kept = KeptCode("a program")
    kept.write(b"its code")
    return kept


def test_what_was_written_is_read_and_nothing_else(kept: KeptCode) -> None:
    assert kept.read() == b"its code"
    assert KeptCode("a program").read() == b"its code"
    assert KeptCode("another program").read() is None


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"),
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
        lambda path: path.parent.chmod(0o770),
    ],
    ids=["cut", "changed", "empty", "a file for all", "a folder for all", "a folder for a group"],
)
def test_what_is_not_surely_ours_is_not_executed(harm: Callable[[Path], object], kept: KeptCode) -> None:
    harm(kept.path)
    assert kept.read() is None


@pytest.mark.parametrize("strange", ["the file", "the folder", "a folder above", "a link on the way"])
def test_nothing_of_somebody_elses_is_executed(
    strange: str, kept: KeptCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a link to a folder of ours: a download, say."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    places = {"the file": kept.path, "the folder": kept.path.parent, "a folder above": tmp_path}
    inode = places.get(strange, link).lstat().st_ino
    if strange == "a link on the way":
        monkeypatch.setenv("FEDCOHORT_CACHE", str(link))
    assert kept.read() == b"its code"
    really = keeping._is_ours

    def seen(about: os.stat_result) -> bool:
        return really(os.stat_result((*about[:4], about.st_uid + 7 * (about.st_ino == inode), *about[5:])))

    monkeypatch.setattr(keeping, "_is_ours", seen)
    assert kept.read() is None
    kept.write(b"other code")
    monkeypatch.setattr(keeping, "_is_ours", really)
    assert kept.read() == (b"other code" if strange == "the file" else b"its code")


def test_a_link_or_a_pipe_in_its_place_is_neither_read_nor_followed(kept: KeptCode, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(kept.path.read_bytes())
    kept.path.unlink()
    kept.path.symlink_to(tmp_path / "precious")
    assert kept.read() is None
    kept.write(b"other code")
    assert (tmp_path / "precious").read_bytes().endswith(b"its code")
    kept.path.unlink()
    os.mkfifo(kept.path)
    assert kept.read() is None


def test_what_is_no_program_stays(kept: KeptCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST", 1)
    others = [kept.path.with_name(f"{number}.o") for number in range(5)]
    for other in others:
        other.write_text("somebody's")
    KeptCode("second").write(b"code")
    assert all(other.exists() for other in others)


@pytest.mark.parametrize("home", ["file", "~nobody-of-that-name"])
def test_where_nothing_can_be_kept_nothing_is(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FEDCOHORT_CACHE", home if home.startswith("~") else str(tmp_path / home))
    kept = KeptCode("a program")
    kept.write(b"its code")
    assert kept.read() is None


def test_the_oldest_make_room(kept: KeptCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST", 2)
    os.utime(kept.path, (0, 0))
    for name in ("second", "third"):
        KeptCode(name).write(b"code")
    assert kept.read() is None
    assert KeptCode("second").read() == KeptCode("third").read() == b"code"
    assert len(list(kept.path.parent.iterdir())) == 2


def test_a_program_is_compiled_once(kept: KeptCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(number: int, lanes: int = 8) -> int:
        engine = machine.compiled(PROGRAM.format(number), lanes)
        return ctypes.CFUNCTYPE(ctypes.c_int32)(engine.get_function_address("answer"))()

    assert answer(7) == 7
    made = len(list(kept.path.parent.iterdir()))
    monkeypatch.setattr(machine.llvm, "create_new_module_pass_manager", None)  # no more compiling
    assert answer(7) == 7
    assert len(list(kept.path.parent.iterdir())) == made
    for other in (lambda: answer(8), lambda: answer(7, 16)):
        with pytest.raises(TypeError):
            other()
