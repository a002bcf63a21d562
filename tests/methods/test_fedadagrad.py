"""FedAdagrad: v <- v + D^2, x <- x + lr D / (sqrt(v) + tau)."""

import pytest

from fedcohort.methods.fedadagrad import FedAdagrad
from support.toy import play_toy, position, profile_of, two_steps


@pytest.mark.parametrize(
    ("v0", "start", "first", "second"),
    [
        ("tau2", 0.01, (1.2279040654, 0.8690256716), (1.3011557413, 1.0523571342)),
        ("zero", 0.0, (1.23715, 0.8419), (1.3131180218, 1.0373223472)),
    ],
)
def test_two_steps(v0, start, first, second):
    """tau = .1, lr = .3162. From zero, v = .09, .01: .3162 * .3 / .4 = .23715, -.3162 * .1 / .2 = -.1581."""
    part = FedAdagrad(server_lr=0.3162, tau=0.1, v0=v0)
    assert part.init_server(profile_of([[1, 1]]))["v"].tolist() == pytest.approx([start])
    one, two = two_steps(part, start)
    assert one == pytest.approx(first, abs=1e-9)
    assert two == pytest.approx(second, abs=1e-9)


def test_toy_round():
    """D = .6885 - 1 = -.3115 and v = D^2: x = 1 - .1 * .3115 / .3125, whatever the scale of D."""
    (state,) = play_toy("fedadagrad(v0='zero')", (0, 1))
    assert position(state) == pytest.approx(1 - 0.1 * 0.3115 / 0.3125, abs=1e-5)


@pytest.mark.parametrize("text", ["fedadagrad", "fedadam", "fedyogi"])
def test_an_even_mean_is_algorithm_two(text):
    """D = .919 - 1 = -.081 instead of -.3115: m is what the last movement adds to it, from zero."""
    by_samples, evenly = (play_toy(each, (0, 1))[0].groups[0] for each in (text, f"fairavg+{text}"))
    ratio = float(evenly.known("optimiser")["m"] / by_samples.known("optimiser")["m"])
    assert ratio == pytest.approx(0.081 / 0.3115, rel=1e-4)


def test_a_round_without_answers_changes_nothing():
    first, second = play_toy("fedadagrad", (0, 1), ())
    assert position(second) == position(first)
    assert all(
        second.groups[0].known("optimiser")[k].equal(v) for k, v in first.groups[0].known("optimiser").items()
    )
