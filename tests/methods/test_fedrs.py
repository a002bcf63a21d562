"""FedRS: cross-entropy of logits whose missing classes are scaled by alpha."""

import pytest

from fedcohort.core.method import Method
from fedcohort.methods.fedrs import FedRS
from fedcohort.testing import play, tiny_task
from support.toy import loss_and_slope, view_of


def test_binary():
    """z' = (2, 1, .25): loss log(e^2 + e + e^.25) - 2; the slope of the third logit is halved."""
    loss, slope = loss_and_slope(FedRS(), 0, 16, 81, 0)
    assert loss == pytest.approx(0.4328554669, abs=1e-7)
    assert slope == pytest.approx([-0.3513457629, 0.2386265582, 0.0563596024], abs=1e-7)


def test_proportional():
    """Scales are .5 + .5 n / 81: .598765, 1, .5."""
    part = FedRS(scale="proportional")
    assert part.logits(view_of(16, 81, 0)).scale.tolist() == pytest.approx([0.5987654321, 1, 0.5])
    assert loss_and_slope(part, 0, 16, 81, 0)[0] == pytest.approx(0.7922917849, abs=1e-7)


@pytest.mark.parametrize(("part", "counts"), [(FedRS(), (3, 1, 9)), (FedRS(alpha=1), (16, 81, 0))])
def test_plain_when_nothing_is_missing_or_alpha_is_one(part, counts):
    assert loss_and_slope(part, 0, *counts)[0] == pytest.approx(0.4643687841, abs=1e-9)


def test_alpha_one_is_fedavg_bit_for_bit():
    ours, theirs = (play(Method.parse(text), tiny_task())[0] for text in ("fedrs(alpha=1)", "fedavg"))
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)
