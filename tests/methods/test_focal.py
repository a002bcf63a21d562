"""Focal loss: -(1 - p)^gamma log p of the true class."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.focal import Focal
from fedcohort.testing import play, tiny_task
from support.toy import LOGITS, loss_and_slope, view_of


@pytest.mark.parametrize(
    ("gamma", "label", "loss", "slope"),
    [
        (2.0, 0, 0.0640776372, [-0.1318080741, 0.0820451656, 0.0497629084]),
        (0.5, 0, 0.2830244048, [-0.3153481302, 0.1962913862, 0.1190567440]),
        (2.0, 2, 1.4520215691, [0.7623403232, 0.2804493321, -1.0427896553]),
    ],
)
def test_what_is_easy_counts_less(gamma, label, loss, slope):
    """p = (.62853, .23122, .14024): (1 - .62853)^2 * .46437 = .06408. The slope also has the factor's own,
    without which it would be (1 - p)^2 (p - y) = (-.05126, ...)."""
    found = loss_and_slope(Focal(gamma), label, 5, 5, 5)
    assert found[0] == pytest.approx(loss, abs=1e-9)
    assert found[1] == pytest.approx(slope, abs=1e-9)


def test_classes_by_how_rare_they_are():
    """Of 10, 30 and no samples the weights are 2, 2/3 and none."""
    loss, slope = loss_and_slope(Focal(2.0, balanced=True), 0, 10, 30, 0)
    assert loss == pytest.approx(2 * 0.0640776372, abs=1e-7)
    assert slope[0] == pytest.approx(2 * -0.1318080741, abs=1e-7)


def test_the_loss_of_a_batch_is_its_mean():
    logits, labels = torch.tensor([LOGITS, LOGITS]), torch.tensor([0, 2])
    loss = Focal().criterion(logits, labels, view_of(5, 5, 5))
    assert float(loss) == pytest.approx((0.0640776372 + 1.4520215691) / 2, abs=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_a_sample_that_is_certain_has_no_slope(gamma):
    """1 - p is exactly 0, where a power below 1 has no slope."""
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    Focal(gamma).criterion(logits, torch.tensor([0]), view_of(5, 5, 5)).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0, 0, 0]]


def test_without_gamma_it_is_fedavg():
    ours, theirs = (play(Method.parse(text), tiny_task())[0] for text in ("focal(gamma=0)", "fedavg"))
    torch.testing.assert_close(ours.groups[0].weights.params, theirs.groups[0].weights.params)


@pytest.mark.parametrize("text", ["focal", "focal(gamma=1, balanced=True)"])
def test_engines_agree(text):
    """Neither fuses it."""
    task, method = tiny_task(), Method.parse(text)
    assert not method.objective.affine
    slow, _ = play(method, task, 2, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 2, engine=PoolEngine(task, workers=2))
    torch.testing.assert_close(fast.groups[0].weights.params, slow.groups[0].weights.params)
