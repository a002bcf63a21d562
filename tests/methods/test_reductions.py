"""Settings under which a method is another one, beyond those that stand with their method's equations."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.testing import play, tiny_task


@pytest.mark.parametrize(
    ("special", "plain"),
    [
        ("fedcls(tau=1)", "uniform"),  # one group of everybody
        ("fedcor(warmup=9)", "uniform"),  # nothing is fitted yet
        ("ifca(groups=1, sharing='trunk')", "one"),
    ],
)
def test_bit_for_bit(special, plain):
    ours, theirs = (play(Method.parse(text), tiny_task(), 3)[0] for text in (special, plain))
    assert [group.weights.params.equal(theirs.groups[0].weights.params) for group in ours.groups] == [True]


@pytest.mark.parametrize(
    ("special", "plain"),
    [
        # the second moment vanishes beside tau, and server_lr / tau = 1
        ("fedadagrad(tau=1e6, server_lr=1e6, v0='zero')", "fedavg"),
        ("fedadam(tau=1e6, server_lr=1e6, beta1=0, v0='zero')", "fedavg"),
        ("fedyogi(tau=1e6, server_lr=1e6, beta1=0, v0='zero')", "fedavg"),
        ("fedadam(tau=1e6, server_lr=1e6, beta1=0, v0='zero', weighted=False)", "fairavg"),
    ],
)
def test_but_for_rounding(special, plain):
    ours, theirs = (play(Method.parse(text), tiny_task(), 3)[0] for text in (special, plain))
    torch.testing.assert_close(ours.groups[0].weights.params, theirs.groups[0].weights.params)


def test_one_centre_makes_fedsoft_fedprox_at_first():
    """All start from the centre, are pulled back to it, and count by samples; later each has its own."""
    ours, theirs = (
        play(Method.parse(text), tiny_task(cohort=8), 1)[0].groups[0].weights.params
        for text in ("fedsoft(groups=1, strength=0.3)", "fedprox(mu=0.3)")
    )
    torch.testing.assert_close(ours, theirs)


def test_fedentropy_draws_as_uniform_does_without_values():
    ours, theirs = (
        [report.selected.tolist() for report in play(Method.parse(text), tiny_task(), 3)[1]]
        for text in ("fedentropy(epsilon=0)", "uniform")
    )
    assert ours == theirs
