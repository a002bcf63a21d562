"""The state as named tensors and back."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.state import State, pack, unpack
from fedcohort.testing import assert_same, play, tiny_task

COMBINED = "fedgwc(tolerance=0.9, min_group=1)+scaffold+fedlecc(loss_source='last_seen')"


@pytest.mark.parametrize(
    "text", ["fedavg", "scaffold", "local_only", "fedentopt+cafa", "clust_psi_pfl", COMBINED]
)
@pytest.mark.parametrize("rounds", [0, 3])
def test_round_trip(text, rounds):
    state, _ = play(Method.parse(text), tiny_task(), rounds)
    again = unpack(pack(state))
    assert_same(again, state, "unpack does not undo pack")
    assert (again.round, again.bytes_up, again.bytes_down) == (rounds, state.bytes_up, state.bytes_down)
    assert isinstance(again.round, int)
    assert set(again.clients) == set(state.clients)
    assert len(again.groups) == len(state.groups)


def test_merged_models_keep_their_encoders():
    state, _ = play(Method.parse("fedconcat(groups=2, rounds=1)"), tiny_task(), 2)
    again = unpack(pack(state))
    assert len(state.encoders) == 2
    for ours, theirs in zip(again.encoders, state.encoders, strict=True):
        assert ours.params.equal(theirs.params)
        assert ours.buffers.equal(theirs.buffers)


def test_clients_keep_their_own_memory():
    state, _ = play(Method.parse("scaffold"), tiny_task(), 3)
    again = unpack(pack(state))
    for client, memory in state.clients.items():
        assert again.clients[client]["c"].equal(memory["c"])


def test_groups_that_share_a_model_are_packed_apart():
    """Groups start as copies of one another; a file holds each, and no two tensors the same memory."""
    state, _ = play(Method.parse("clust_psi_pfl+fedavgm"), tiny_task(), 0)
    assert len(state.groups) > 1
    packed = pack(state)
    places = [tensor.data_ptr() for tensor in packed.values() if tensor.numel()]
    assert len(set(places)) == len(places)


def test_more_than_ten_groups_keep_their_order():
    state, _ = play(Method.parse("fedavg"), tiny_task(), 0)
    groups = [
        state.groups[0].__class__(state.groups[0].weights, {}, {"optimiser": {"number": torch.tensor(n)}})
        for n in range(12)
    ]
    again = unpack(pack(State(5, tuple(groups), state.grouping)))
    assert [int(group.known("optimiser")["number"]) for group in again.groups] == list(range(12))
