"""Who a client is, is for the operator to say, who admitted its key: never for the client."""

import json
from pathlib import Path

import pytest
from flwr.app import Message
from safetensors.torch import safe_open, save_file

from fedcohort.data.revealed import Revealed
from fedcohort.flower import messages
from support.flower_tiny import CLIENTS, experiment, through_flower
from support.inprocess import FIRST, InProcess, Killed, killed_after
from support.misbehaviour import BAD, log_of, rewritten, values
from support.rehearsed import Rehearsed, rehearsed

VICTIM, MALLORY, ELSEWHERE = "hospital 2", 5000, 6000
SETTINGS = {"cohort": CLIENTS, "rounds": 3, "evaluate": {"every": 3}}
NAMES = [f"hospital {number}" for number in range(CLIENTS)]


def admitted(out: Path) -> Rehearsed:
    """All clients, each with a key and the name that the operator gave it."""
    grid = rehearsed(out, "fedavg", **SETTINGS)
    grid.admitted = {FIRST + part: (name, b"key of " + name.encode()) for part, name in enumerate(NAMES)}
    return grid


def run(out: Path, grid: InProcess) -> list[float]:
    """How many were lost in each round."""
    result, _ = through_flower(experiment("fedavg", **SETTINGS), out, grid, timeout=0.2)
    return values(result, "lost")


def met(out: Path) -> Revealed:
    return Revealed.read(next(out.glob("experiment-*/*/roster.safetensors")))


def gone_after_training(grid: InProcess, name: str, key: bytes) -> None:
    """Client 2 goes offline in the first round, and somebody appears who says that it is client 2, with all
    that client 2 says of itself."""

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if (kind, node) == (messages.TRAIN, BAD):
            grid.offline.add(BAD)
            grid.contexts.setdefault(MALLORY, grid.contexts[BAD])
            if name:
                grid.admitted[MALLORY] = name, key
        return rewritten(reply, facts={"name": VICTIM}) if kind == messages.PROFILE else reply

    grid.spoil = spoil


def test_the_operators_name_counts_whatever_a_client_says(tmp_path: Path) -> None:
    """All of them call themselves the same here."""
    grid = admitted(tmp_path)
    grid.spoil = lambda kind, node, reply: (
        rewritten(reply, facts={"name": VICTIM}) if kind == messages.PROFILE else reply
    )
    assert run(tmp_path, grid) == [0, 0, 0]
    assert list(met(tmp_path).clients) == NAMES
    assert len(set(met(tmp_path).keys)) == CLIENTS


@pytest.mark.parametrize(("name", "key"), [("mallory", b"key of mallory"), ("", b"")])
def test_nobody_takes_the_place_of_another(name: str, key: bytes, tmp_path: Path) -> None:
    """Neither one admitted under another name, nor one that was never admitted by name."""
    grid = admitted(tmp_path)
    gone_after_training(grid, name, key)
    assert run(tmp_path, grid) == [0, 1, 1]
    orders = [kind for kind, node, *_ in grid.seen if node == MALLORY]
    assert orders == ([] if name else [messages.PROFILE])
    assert f"node {MALLORY}" in log_of(tmp_path)
    assert "is none of the clients" in log_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "key"),
    [("renamed", b"key of hospital 2"), (VICTIM, b"a new key")],
    ids=["its key", "its name, by the operator"],
)
def test_a_client_that_comes_back_is_known_without_being_asked(name: str, key: bytes, tmp_path: Path) -> None:
    grid = admitted(tmp_path)
    gone_after_training(grid, name, key)
    assert run(tmp_path, grid) == [0, 0, 0]
    assert messages.PROFILE not in {kind for kind, node, *_ in grid.seen if node == MALLORY}
    assert f"{VICTIM} is back" in log_of(tmp_path)


def continued(out: Path) -> Rehearsed:
    """The clients of a run whose server was killed in its second round, all with new numbers."""
    with pytest.raises(Killed):
        run(out, killed_after(2 * CLIENTS + 3, admitted(out)))
    grid = admitted(out)
    for part in range(CLIENTS):
        grid.contexts[ELSEWHERE + part] = grid.contexts.pop(FIRST + part)
        grid.admitted[ELSEWHERE + part] = grid.admitted.pop(FIRST + part)
    return grid


def test_a_continued_run_binds_the_same_clients(tmp_path: Path) -> None:
    """Client 2 is not back, and client 3 also pretends to be it."""
    grid = continued(tmp_path)
    del grid.contexts[ELSEWHERE + 2]
    grid.spoil = lambda kind, node, reply: (
        rewritten(reply, facts={"name": VICTIM}) if kind == messages.PROFILE else reply
    )
    assert run(tmp_path, grid)[1:] == [1, 1]
    orders = {node for kind, node, *_ in grid.seen if kind == messages.TRAIN}
    assert orders == {ELSEWHERE + part for part in range(CLIENTS) if part != 2}


@pytest.mark.parametrize("known", [True, False])
def test_a_run_from_before_keys_were_written_down_goes_on(known: bool, tmp_path: Path) -> None:
    """Clients are known by the operator's names, or by what they say where the run has other names."""
    grid = continued(tmp_path)
    path = next(tmp_path.glob("experiment-*/*/roster.safetensors"))
    with safe_open(path, framework="pt") as file:
        facts, tensors = json.loads(file.metadata()["facts"]), {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    del facts["keys"]
    if not known:
        facts["clients"] = [f"client {number}" for number in range(CLIENTS)]
        grid.admitted = {node: (f"key {node}", bytes(8)) for node in grid.contexts}
        grid.spoil = lambda kind, node, reply: (
            rewritten(reply, facts={"name": f"client {node - ELSEWHERE}"})
            if kind == messages.PROFILE
            else reply
        )
    save_file(tensors, path, {"facts": json.dumps(facts)})
    assert run(tmp_path, grid) == [0, 0, 0]
