"""Clipping: delta min(1, norm / ||delta||), at the client or at the server."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.pool import PoolEngine
from fedcohort.methods.clip import Clip
from fedcohort.testing import play, tiny_task
from support.toy import play_toy, position, profile_of, round_of, updates_of


def test_a_movement_beyond_the_norm_is_shortened_and_no_other():
    """||(3, 4)|| = 5: to the norm 2 it becomes (1.2, 1.6); at most 5 it stays as it is."""
    delta = torch.tensor([3.0, 4.0])
    assert Clip(2.0).clipped(delta).tolist() == pytest.approx([1.2, 1.6])
    assert Clip(5.0).clipped(delta).equal(delta)
    assert Clip(6.0).clipped(delta).equal(delta)


@pytest.mark.parametrize("at", ["client", "server"])
def test_toy_round(at):
    """Movements .38 and -.542, at most .4: 1 + .25 * .38 - .75 * .4 = .795."""
    (state,) = play_toy(f"clip(0.4, at='{at}')", (0, 1))
    assert position(state) == pytest.approx(0.795, abs=1e-6)


def test_only_one_of_the_two_clips():
    updates, now = updates_of([0], size=torch.tensor([1])), round_of(profile_of([[1, 1]]), 1)
    updates = updates.with_deltas(torch.tensor([[3.0, 4.0]]))
    client, server = Clip(1.0), Clip(1.0, at="server")
    assert client.receive(updates, {}, now)[0] is updates
    assert server.receive(updates, {}, now)[0].up["delta"].tolist() == [pytest.approx([0.6, 0.8])]
    delta = torch.tensor([3.0, 4.0])
    assert server.upload(delta, {}, None)[0] is delta  # type: ignore[arg-type]
    assert client.upload(delta, {}, None)[0].tolist() == pytest.approx([0.6, 0.8])  # type: ignore[arg-type]


def test_it_clips_before_the_weights_of_any_averaging():
    """Each movement has r = .2, .3 of FedNova: w = (.34375, .6875), so 1 + .34375 * .38 - .6875 * .4."""
    (state,) = play_toy("fednova+clip(0.4)", (0, 1))
    assert position(state) == pytest.approx(1 + 0.34375 * 0.38 - 0.6875 * 0.4, abs=1e-6)


@pytest.mark.parametrize("grouping", ["fesem(groups=2)", "cfl(eps1=9.0, eps2=0.0)", "ifca(groups=2)"])
@pytest.mark.parametrize("at", ["client", "server"])
def test_no_group_moves_further_than_its_clients_may(grouping, at):
    """Also one whose centres are made of clients' models, not by the server's step."""
    method, task = Method.parse(f"{grouping}+clip(1e-3, at='{at}')"), tiny_task()
    before = [group.weights.params for group in play(method, task, 0)[0].groups]
    after = [group.weights.params for group in play(method, task, 2)[0].groups]
    moved = [min(float((new - old).norm()) for old in before) for new in after]
    assert 0 < max(moved) <= 2e-3 + 1e-6


def test_at_both_ends_it_is_the_same_on_blocks_of_small_clients():
    """The pool engine keeps movements of small clients as factors: clipped, they are ordinary numbers."""
    task = tiny_task(cohort=8)
    states = [
        play(Method.parse(f"clip(0.05, at='{at}')"), task, 2, engine=PoolEngine(task, 2))[0]
        for at in ("client", "server")
    ]
    ours, theirs = (state.groups[0].weights.params for state in states)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    moved = ours - task.model.init(0).params
    assert 0 < float(moved.norm()) <= 2 * 0.05 + 1e-6
