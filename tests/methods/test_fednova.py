"""FedNova: w_k = p_k (sum_j p_j r_j) / r_k, with r_k how far client k's steps could reach."""

import pytest
import torch

from fedcohort.core.profile import Local
from fedcohort.methods.fednova import FedNova
from support.toy import play_toy, position, profile_of, round_of, toy_task, updates_of

MOMENTUM = Local(lr=0.1, momentum=0.9, batch=100)


def test_weights():
    """p = (.25, .75), r = (.2, .3): mean .275, so w = (.34375, .6875), together 1.03125."""
    updates = updates_of([0, 1], size=torch.tensor([10, 30]), reach=torch.tensor([0.2, 0.3]))
    now = round_of(profile_of([[1, 1]] * 2), 2)
    assert FedNova().weights({}, updates, now).tolist() == pytest.approx([0.34375, 0.6875])
    harmonic = FedNova(tau_eff="harmonic").weights({}, updates, now)
    assert float(harmonic.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "local", "reached"),
    [
        ("fednova", None, 0.758),
        ("fednova(tau_eff='harmonic')", None, 0.7653333333),
        # ||a|| = (2.9, 5.61) under momentum .9; FedAvg would end at .369
        ("fednova", MOMENTUM, 0.5602316522),
        # ||a|| = (1.9, 2.71) under mu = 1: sum p T, as the authors' code has it, or sum p ||a||
        ("fedprox(mu=1)+fednova(tau_eff='steps')", None, 0.7588609439),
        ("fedprox(mu=1)+fednova", None, 0.7801250243),
    ],
)
def test_toy_round(text, local, reached):
    """1 + .34375 * .38 - .6875 * .542 = .758 for plain SGD."""
    (state,) = play_toy(text, (0, 1), task=toy_task(local=local))
    assert position(state) == pytest.approx(reached, abs=1e-6)


def test_momentum_and_pull_together():
    """T = 2, 3, momentum .9, lr mu = .1: ||a|| = (2.8, 5.14); adding both recursions gives (4.42, 7.417).

    w = p (.25 * 2.8 + .75 * 5.14) / ||a|| = p * 4.555 / ||a|| = (.4066964, .6646401).
    """
    (state,) = play_toy("fedprox(mu=1)+fednova", (0, 1), task=toy_task(local=MOMENTUM))
    # velocities: client 0 -2, then .9 (-2) - 1.8 + .2 = -3.4; client 1 2, 3.4, then 3.06 + 1.46 - .54 = 3.98
    moves = 0.1 * (2 + 3.4), -0.1 * (2 + 3.4 + 3.98)
    expected = 1 + 4.555 * (0.25 / 2.8 * moves[0] + 0.75 / 5.14 * moves[1])
    assert position(state) == pytest.approx(expected, abs=1e-6)


def test_equal_work_makes_it_fedavg():
    task = toy_task(steps=(2, 2, 2))
    (ours,), (theirs,) = play_toy("fednova", (0, 1), task=task), play_toy("fedavg", (0, 1), task=task)
    assert position(ours) == pytest.approx(position(theirs), abs=1e-6)


def test_server_momentum():
    """With one step each FedNova is FedAvg, so momentum .9 is FedAvgM with beta .9; from the third round on
    it matters that the velocity is kept, not the last move."""
    task = toy_task(steps=(1, 1, 1))
    ours = play_toy("fednova+fedavgm(beta=0.9)", (0, 1), (1, 2), (0, 2), task=task)[-1]
    theirs = play_toy("fedavgm(beta=0.9)", (0, 1), (1, 2), (0, 2), task=task)[-1]
    assert position(ours) == pytest.approx(position(theirs), abs=1e-6)
