"""Client memories on disk: the same numbers as in memory, restartable, and no file left over."""

import gc
from functools import partial

import pytest
import torch

from fedcohort.core import client_store
from fedcohort.core.client_store import StoredMemories
from fedcohort.core.method import Method
from fedcohort.core.state import pack, unpack
from fedcohort.runs.run import run
from fedcohort.testing import tiny_task
from fedcohort.util.errors import UserError


@pytest.fixture
def on_disk(monkeypatch):
    monkeypatch.setattr(client_store, "IN_MEMORY", 0)


def files(folder):
    gc.collect()
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "local_only"])
def test_a_run_from_disk_is_the_run_from_memory(method, tmp_path, monkeypatch):
    in_memory = run(method, tiny_task(), 4)
    monkeypatch.setattr(client_store, "IN_MEMORY", 0)
    on_disk = run(method, tiny_task(), 4, folder=tmp_path)
    assert isinstance(on_disk.state.clients, StoredMemories)
    assert on_disk.rows == in_memory.rows
    assert on_disk.state.groups[0].weights.params.equal(in_memory.state.groups[0].weights.params)
    for client, memory in in_memory.state.clients.items():
        assert all(on_disk.state.clients[client][key].equal(value) for key, value in memory.items())


def test_memories_that_were_replaced_are_removed(on_disk, tmp_path):
    result = run("scaffold", tiny_task(cohort=8), 3, folder=tmp_path)
    trained = sorted(result.state.clients)
    assert files(tmp_path) == sorted(f"{client}-2.safetensors" for client in trained)


def test_a_store_is_a_value(tmp_path):
    first = StoredMemories(tmp_path).updated({3: {"c": torch.ones(2)}}, 0)
    second = first.updated({3: {"c": torch.zeros(2)}, 5: {"c": torch.ones(2)}}, 1)
    assert (first[3]["c"].tolist(), second[3]["c"].tolist(), len(first), len(second)) == (
        [1, 1],
        [0, 0],
        1,
        2,
    )
    again = first.updated({3: {"c": torch.zeros(2)}}, 1)  # the same round once more: the same file
    del second
    gc.collect()
    assert again[3]["c"].tolist() == [0, 0]
    del first
    assert files(tmp_path) == ["3-1.safetensors", "5-1.safetensors"]


def test_checkpoints_refer_to_the_files(on_disk, tmp_path):
    state = run("scaffold", tiny_task(), 2, folder=tmp_path).state
    tensors = pack(state)
    assert not any(key.startswith("clients/") for key in tensors)
    restored = unpack(tensors, partial(StoredMemories.reopen, tmp_path))
    more = run("scaffold", tiny_task(), 4, resume=(restored, [])).state
    whole = run("scaffold", tiny_task(), 4, folder=tmp_path / "whole").state
    assert more.groups[0].weights.params.equal(whole.groups[0].weights.params)


def test_reading_a_checkpoint_removes_nothing(on_disk, tmp_path):
    tensors = pack(run("scaffold", tiny_task(), 2, folder=tmp_path).state)
    before = files(tmp_path)
    unpack(tensors, partial(StoredMemories.reopen, tmp_path))
    assert files(tmp_path) == before


def test_a_missing_file_is_named(on_disk, tmp_path):
    tensors = pack(run("scaffold", tiny_task(), 1, folder=tmp_path).state)
    gone = next(tmp_path.iterdir())
    gone.unlink()
    with pytest.raises(UserError, match=gone.name):
        unpack(tensors, partial(StoredMemories.reopen, tmp_path))


def test_a_damaged_file_is_named(tmp_path):
    filled = StoredMemories(tmp_path).updated({3: {"c": torch.ones(2)}}, 1)
    (path,) = tmp_path.iterdir()
    for damage in (b"", b"x" * 40, path.read_bytes()[:-1]):
        path.write_bytes(damage)
        with pytest.raises(UserError, match=r"3-1\.safetensors is damaged"):
            _ = filled[3]


def test_only_what_is_large_goes_to_disk():
    profile = tiny_task().profile(Method.parse("scaffold"))
    small = Method.parse("scaffold").objective.init_client(profile)
    assert client_store.empty(small, 10_000, None) == {}
    assert isinstance(client_store.empty({"c": torch.zeros(1_000_000)}, 10_000, None), StoredMemories)


def test_a_run_whose_memories_are_elsewhere_cannot_be_resumed_here():
    tensors = {"clients": torch.tensor([0]), "shelf": torch.tensor([3])}
    with pytest.raises(UserError, match="resume it where it was begun"):
        client_store.unpack(tensors, None)
