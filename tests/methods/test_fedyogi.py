"""FedYogi: v <- v - (1 - beta2) D^2 sign(v - D^2)."""

import pytest
import torch

from fedcohort.methods.fedyogi import FedYogi
from support.toy import profile_of, round_of, two_steps, updates_of


@pytest.mark.parametrize(
    ("v0", "start", "first", "second"),
    [
        ("tau2", 1e-4, (1.0007207592, 0.9995857864), (1.0015779104, 0.9999046742)),
        ("zero", 0.0, (1.00075, 0.9995), (1.0016389364, 0.9998399187)),
    ],
)
def test_two_steps(v0, start, first, second):
    """lr = .001, tau = .01, beta = (.9, .99): from zero, .001 * .03 / .04 = .00075, -.001 * .01 / .02."""
    one, two = two_steps(FedYogi(server_lr=0.001, tau=0.01, v0=v0), start)
    assert one == pytest.approx(first, abs=1e-9)
    assert two == pytest.approx(second, abs=1e-9)


def test_a_large_second_moment_shrinks_by_the_square_not_by_a_share():
    """v = 1, D = .1: Adam would go to .99 + .0001; Yogi subtracts .01 * .01 only."""
    memory = {"m": torch.zeros(1), "v": torch.ones(1), "steps": torch.tensor(0)}
    now = round_of(profile_of([[1, 1]]), 1)
    _, after = FedYogi().step(torch.zeros(1), torch.tensor([0.1]), memory, updates_of([]), now)
    assert after["v"].tolist() == pytest.approx([1 - 0.0001])


@pytest.mark.parametrize(("v0", "start"), [("tau2", 0.01), ("zero", 0.0)])
def test_the_start_of_the_second_moment(v0, start):
    memory = FedYogi(tau=0.1, v0=v0).init_server(profile_of([[1, 1]]))
    assert memory["v"].tolist() == pytest.approx([start])


def test_the_standard_correction():
    """Step 1: sqrt(1 - .99) / (1 - .9) = 1; step 2: sqrt(1 - .9801) / (1 - .81) = .7424598 times as far."""
    plain, corrected = (
        two_steps(FedYogi(server_lr=0.001, tau=0.01, v0="zero", bias=bias), 0.0)
        for bias in ("none", "standard")
    )
    assert corrected[0] == plain[0]
    for own, other, start in zip(corrected[1], plain[1], plain[0], strict=True):
        assert own - start == pytest.approx(0.7424597884 * (other - start), rel=1e-6)
