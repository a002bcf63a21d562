"""FedAvgM: v <- beta v + D, x <- x + server_lr v, with D the weighted mean movement."""

import pytest
import torch
from torch import nn

from fedcohort.core.method import Method
from fedcohort.core.task import Task
from fedcohort.methods.fedavgm import FedAvgM
from fedcohort.testing import play, tiny_task
from support.toy import play_toy, position, profile_of, round_of, updates_of


@pytest.mark.parametrize(
    ("nesterov", "first", "second"), [(False, (1.3, 0.9), (1.61, 1.03)), (True, (1.51, 0.83), (1.827, 1.121))]
)
def test_two_steps(nesterov, first, second):
    """x = (1, 1), D1 = (.3, -.1), D2 = (.1, .2), beta = .7.

    v1 = D1, so x = (1.3, .9); v2 = .7 (.3, -.1) + (.1, .2) = (.31, .13), so x = (1.61, 1.03).
    Nesterov adds D + .7 v: .3 + .21 = .51 and -.1 - .07 = -.17; then .1 + .217 = .317 and .2 + .091 = .291.
    """
    part = FedAvgM(beta=0.7, nesterov=nesterov)
    now, nobody = round_of(profile_of([[1, 1]]), 1), updates_of([])
    x, memory = torch.ones(2), {"velocity": torch.zeros(2)}
    x, memory = part.step(x, torch.tensor([0.3, -0.1]), memory, nobody, now)
    assert x.tolist() == pytest.approx(first)
    x, memory = part.step(x, torch.tensor([0.1, 0.2]), memory, nobody, now)
    assert x.tolist() == pytest.approx(second)
    assert memory["velocity"].tolist() == pytest.approx([0.31, 0.13])


def test_toy_rounds():
    """D1 = .6885 - 1 = -.3115. From .6885 clients 1 and 2 reach .2309165 and .747685, so
    D2 = (30 * .2309165 + 20 * .747685) / 50 - .6885 = -.2508761; x = .6885 + D2 + .9 D1 = .1572739."""
    first, second = play_toy("fedavgm(beta=0.9)", (0, 1), (1, 2))
    assert position(first) == pytest.approx(0.6885, abs=1e-6)
    assert position(second) == pytest.approx(0.1572739, abs=1e-6)


def test_a_round_without_answers_does_not_coast():
    """The velocity is neither applied nor decayed when nobody answered."""
    first, second = play_toy("fedavgm", (0, 1), ())
    assert position(second) == position(first)
    assert (
        second.groups[0].known("optimiser")["velocity"].equal(first.groups[0].known("optimiser")["velocity"])
    )
    assert second.round == 2


def test_without_momentum_it_is_fedavg_bit_for_bit():
    ours, _ = play(Method.parse("fedavgm(beta=0)"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


def test_momentum_stays_off_the_buffers():
    """Running statistics are a convex mean of the clients'; with momentum a variance could turn negative."""

    def net(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 6), nn.BatchNorm1d(6), nn.Linear(6, classes))

    task = tiny_task()
    task = Task.of(task.federation, net, local=task.local, cohort=task.cohort)
    state, _ = play(Method.parse("fedavgm(beta=0.99, server_lr=2)"), task, 1)
    plain, _ = play(Method.parse("fedavg"), task, 1)
    assert not state.groups[0].weights.params.equal(plain.groups[0].weights.params)
    assert state.groups[0].weights.buffers.equal(plain.groups[0].weights.buffers)
