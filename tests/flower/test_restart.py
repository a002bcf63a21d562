"""A server that was killed goes on from its last completed round, with clients that remember."""

from pathlib import Path

import pytest
import torch

from fedcohort.core.state import pack
from fedcohort.flower import messages
from fedcohort.flower.client_store import ClientStore
from fedcohort.runs.recorder import read_result, read_table
from support.flower_tiny import CLIENTS, experiment, nodes, through_flower
from support.inprocess import FIRST, Killed, killed_after


@pytest.mark.parametrize("method", ["scaffold", "fedsoft(groups=2)", "fedconcat(groups=2, rounds=2)+fedprox"])
def test_a_killed_server_ends_like_one_that_was_not(method: str, tmp_path: Path) -> None:
    """Killed three times: 8 is among the first orders; the others are later, with memories of several rounds
    at clients: with SCAFFOLD during an evaluation, with which clients have trained for the round after."""
    whole, _ = through_flower(experiment(method), tmp_path / "whole")
    out = tmp_path / "killed"
    for heard in (8, 19, 25):
        with pytest.raises(Killed):
            through_flower(experiment(method), out, killed_after(heard, nodes(out)))
    again, _ = through_flower(experiment(method), out, nodes(out))
    ours, theirs = pack(again.state), pack(whole.state)
    assert ours.keys() == theirs.keys()
    for key in ours:
        torch.testing.assert_close(ours[key], theirs[key], rtol=0, atol=0)
    expected = {**whole.metrics, "messages": again.metrics["messages"]}  # some more, to meet again
    assert again.metrics == pytest.approx(expected, nan_ok=True)
    (directory,) = (path.parent for path in out.glob("experiment-*/*/result.json"))
    assert read_result(directory) == pytest.approx(again.metrics, nan_ok=True)
    assert read_table(directory / "table.csv")[-1] == again.rows[-1]


def test_a_client_that_is_not_back_keeps_its_number(tmp_path: Path) -> None:
    asked = experiment("fedavg", cohort=CLIENTS)
    with pytest.raises(Killed):
        through_flower(asked, tmp_path, killed_after(30, nodes(tmp_path)))
    grid = nodes(tmp_path)
    grid.offline = {FIRST + 3}
    result, _ = through_flower(asked, tmp_path, grid, timeout=0.2)
    last = {row.client: row.value for row in result.rows if row.round == 4 and row.metric == "trained"}
    assert last == {f"client {number}": float(number != 3) for number in range(CLIENTS)}


def test_client_memory_on_disk(tmp_path: Path) -> None:
    """The version that training began from stays, and the one that this one began from; others go, as that of
    round 4, which the server never heard of."""
    keep = ClientStore(tmp_path, "0123456789abcdef", "St. Mary's")
    for version, begun in ((0, -1), (3, 0), (4, 3), (5, 3), (7, 5)):
        keep.remember({"c": torch.tensor([float(version)])}, version, begun)
    kept = {version: keep.memory(version) for version in (0, 3, 4, 5, 7)}
    assert {version for version, memory in kept.items() if memory is None} == {0, 4}
    assert [float(kept[version]["c"]) for version in (3, 5, 7)] == [3, 5, 7]
    keep.remember({"c": torch.zeros(1)}, 5, 3)  # that round again, two rounds back
    assert keep.memory(3) is not None
    assert not list(tmp_path.rglob("*.part"))


def test_an_update_that_nobody_wanted_goes_with_its_round(tmp_path: Path) -> None:
    keep = ClientStore(tmp_path, "0123456789abcdef", "a")
    for number in (1, 2):
        keep.hold({"delta": torch.tensor([float(number)])}, number)
    assert keep.held(1) is None
    assert keep.held(2)["delta"].tolist() == [2.0]


@pytest.mark.parametrize("token", ["", "../../etc", "ABCDEF012345", "0123"])
def test_a_server_cannot_choose_where_a_client_writes(token: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token"):
        ClientStore(tmp_path, token, "a")
    assert ClientStore(tmp_path, "ab" * 8, "../../x").folder.parent == tmp_path / ("ab" * 8)


def test_every_letter_names_its_kind() -> None:
    assert len(set(messages.KINDS.values())) == len(messages.KINDS)
