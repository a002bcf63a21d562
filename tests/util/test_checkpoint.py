"""Checkpoints survive: a good one is always found, and damage never passes for one."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.state import pack, unpack
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.util import checkpoint
from fedcohort.util.checkpoint import CURRENT, PREVIOUS
from fedcohort.util.errors import UserError


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"params": torch.full((5,), value), "ids": torch.arange(3), "none": torch.zeros(0)}


def write(folder: Path, *values: float) -> None:
    for value in values:
        checkpoint.save(folder, tensors(value), {"round": value})


def value_in(folder: Path) -> float:
    found, facts = checkpoint.load(folder)
    assert found["params"].equal(torch.full((5,), facts["round"]))
    return facts["round"]


def test_what_was_saved_is_loaded(tmp_path):
    write(tmp_path, 1.0)
    found, facts = checkpoint.load(tmp_path)
    assert facts == {"round": 1.0}
    assert all(
        found[key].equal(tensor) and found[key].dtype == tensor.dtype for key, tensor in tensors(1.0).items()
    )


def test_the_newest_is_loaded_and_the_one_before_is_kept(tmp_path):
    write(tmp_path, 1.0, 2.0, 3.0)
    assert value_in(tmp_path) == 3.0
    (tmp_path / CURRENT).unlink()
    assert value_in(tmp_path) == 2.0
    assert {path.name for path in tmp_path.iterdir()} == {PREVIOUS}


@pytest.mark.parametrize("damage", [b"", b"\x00" * 8, b"not a checkpoint"], ids=["empty", "zeros", "text"])
def test_a_damaged_file_gives_way_to_the_previous(tmp_path, damage):
    write(tmp_path, 1.0, 2.0)
    (tmp_path / CURRENT).write_bytes(damage)
    assert value_in(tmp_path) == 1.0


def test_a_damaged_file_does_not_take_the_place_of_the_good_one(tmp_path):
    """Who goes on from the previous one removes the damaged one, so that the next save keeps the good."""
    write(tmp_path, 1.0, 2.0)
    (tmp_path / CURRENT).write_bytes(b"")
    checkpoint.load(tmp_path, tidy=True)
    write(tmp_path, 3.0)
    (tmp_path / CURRENT).write_bytes(b"")
    assert value_in(tmp_path) == 1.0


def test_a_truncated_file_gives_way_to_the_previous(tmp_path):
    write(tmp_path, 1.0, 2.0)
    whole = (tmp_path / CURRENT).read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 9, 3):
        (tmp_path / CURRENT).write_bytes(whole[:kept])
        assert value_in(tmp_path) == 1.0


def test_no_flipped_bit_passes_unnoticed(tmp_path):
    """Header, text or numbers: one wrong bit in any byte, and the previous checkpoint is used."""
    write(tmp_path, 1.0, 2.0)
    whole = (tmp_path / CURRENT).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (tmp_path / CURRENT).write_bytes(damaged)
        assert value_in(tmp_path) == 1.0, f"byte {place} of {len(whole)}"


def test_two_damaged_files_are_a_sentence(tmp_path):
    write(tmp_path, 1.0, 2.0)
    (tmp_path / CURRENT).write_bytes(b"x")
    (tmp_path / PREVIOUS).write_bytes(b"x")
    with pytest.raises(UserError, match=f"{CURRENT} and {PREVIOUS} cannot be read \\(damaged\\)"):
        checkpoint.load(tmp_path)


def test_no_checkpoint_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint to resume from"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("stage", ["write", "first rename", "second rename"])
def test_a_crash_while_saving_leaves_a_good_one(tmp_path, monkeypatch, stage):
    """The power fails while the file is written aside, before the old one moves, or between the two moves."""
    write(tmp_path, 1.0)
    moves = {"first rename": 0, "second rename": 1}
    calls = iter(range(10))
    rename = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if next(calls) == moves[stage]:
            raise OSError("power cut")
        return rename(self, target)

    def fail_writing(descriptor: int) -> None:
        raise OSError("power cut")

    if stage == "write":
        monkeypatch.setattr("fedcohort.util.checkpoint.os.fsync", fail_writing)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="power cut"):
        write(tmp_path, 2.0)
    monkeypatch.undo()
    assert value_in(tmp_path) == 1.0
    write(tmp_path, 3.0)  # and the next save works
    assert value_in(tmp_path) == 3.0


class Windows:
    """Opens no directory, and flushes nothing that is open for reading only."""

    name = "nt"

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, *how: int) -> int:
        if path.is_dir():
            raise PermissionError(f"Permission denied: '{path}'")
        return os.open(path, *how)

    def fsync(self, handle: int) -> None:
        os.write(handle, b"")


def test_windows_opens_no_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "os", Windows())
    write(tmp_path, 1.0, 2.0)
    assert value_in(tmp_path) == 2.0


def test_windows_flushes_what_may_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "os", Windows())
    (tmp_path / "memory").write_bytes(b"kept")
    checkpoint.flush(tmp_path / "memory")
    assert (tmp_path / "memory").read_bytes() == b"kept"


@pytest.mark.parametrize("text", ["scaffold", "clust_psi_pfl+fedavgm", "fedgwc(tolerance=0.9, min_group=1)"])
@pytest.mark.parametrize("rounds", [0, 2])
def test_states_of_methods_survive_the_file(tmp_path, text, rounds):
    """Also before the first round, when all groups are still the same model."""
    state, _ = play(Method.parse(text), tiny_task(), rounds)
    checkpoint.save(tmp_path, pack(state), {})
    assert_same(unpack(checkpoint.load(tmp_path)[0]), state, "the file changed the state")
