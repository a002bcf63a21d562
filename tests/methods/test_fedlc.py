"""FedLC: cross-entropy of z_c - tau n_c^(-1/4)."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.fedlc import FedLC
from fedcohort.testing import play, tiny_task
from support.toy import LOGITS, loss_and_slope, view_of


def test_margins():
    """n = 16, 81, 1: n^(-1/4) = 1/2, 1/3, 1, so z' = (1.5, .66667, -.5)."""
    assert (-FedLC().logits(view_of(16, 81, 1)).shift).tolist() == pytest.approx([1 / 2, 1 / 3, 1])
    loss, slope = loss_and_slope(FedLC(), 0, 16, 81, 1)
    assert loss == pytest.approx(0.4510332565, abs=1e-7)
    assert slope == pytest.approx([-0.3630303416, 0.2768258724, 0.0862044691], abs=1e-7)


def test_others():
    """-1.5 + log(e^.66667 + e^-.5) = -.5622: unbounded below, as printed."""
    assert loss_and_slope(FedLC(denominator="others"), 0, 16, 81, 1)[0] == pytest.approx(-0.5622356061)


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_the_loss_of_a_batch_is_its_mean(denominator):
    part, view = FedLC(denominator=denominator), view_of(16, 81, 1)
    logits, labels = torch.tensor([LOGITS, LOGITS]), torch.tensor([0, 1])
    alone = [loss_and_slope(part, label, 16, 81, 1)[0] for label in (0, 1)]
    assert float(part.criterion(logits, labels, view)) == pytest.approx(sum(alone) / 2, abs=1e-6)


def test_a_missing_class_takes_no_part():
    """log(1 + e^(.66667 - 1.5)) = .36088; its logit gets no slope. Clamped, it has margin tau."""
    loss, slope = loss_and_slope(FedLC(), 0, 16, 81, 0)
    assert loss == pytest.approx(0.3608848159, abs=1e-7)
    assert slope[2] == 0
    assert loss_and_slope(FedLC(missing="clamp"), 0, 16, 81, 0)[0] == pytest.approx(0.4510332565, abs=1e-7)


def test_a_client_with_a_single_class_still_learns():
    """Masking both others would leave a loss of zero: they are clamped instead."""
    loss, slope = loss_and_slope(FedLC(), 0, 16, 0, 0)
    assert loss > 0.1
    assert slope[0] < -0.1


@pytest.mark.parametrize("missing", ["mask", "clamp"])
def test_tau_zero_is_fedavg_bit_for_bit(missing):
    ours, _ = play(Method.parse(f"fedlc(tau=0, missing='{missing}')"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


@pytest.mark.parametrize("text", ["fedlc", "fedlc(denominator='others', tau=0.5)"])
def test_both_engines_agree(text):
    """The usual form is fused by the fast engine, the printed one is not."""
    task, method = tiny_task(), Method.parse(text)
    slow, _ = play(method, task, 1, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 1, engine=PoolEngine(task, workers=2))
    torch.testing.assert_close(fast.groups[0].weights.params, slow.groups[0].weights.params)
    assert method.objective.affine == (text == "fedlc")
