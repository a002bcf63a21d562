"""FedAdam: Adam at the server, with the mean movement in place of the negative gradient."""

import pytest

from fedcohort.methods.fedadam import FedAdam
from support.toy import play_toy, position, profile_of, two_steps


@pytest.mark.parametrize(
    ("options", "start", "first", "second"),
    [
        ({}, 1e-6, (1.0009672273, 0.9990949717), (1.0021058389, 0.9995658574)),
        ({"v0": "zero"}, 0.0, (1.0009677419, 0.9990909091), (1.0021068991, 0.9995622372)),
        ({"v0": "zero", "bias": "standard"}, 0.0, (1.0009677419, 0.9990909091), (1.0018135204, 0.9994408512)),
        ({"v0": "zero", "bias": "flower"}, 0.0, (1.0007185095, 0.9993250366), (1.0014429453, 0.999624773)),
    ],
    ids=["paper", "from zero", "keras", "flower"],
)
def test_two_steps(options, start, first, second):
    """lr = tau = .001, beta = (.9, .99): from zero m = .03, sqrt(v) = .03, so .001 * .03 / .031 = .00096774.

    The standard correction is sqrt(1 - .99) / (1 - .9) = 1 at the first step and shows at the second; Flower
    is one step ahead: sqrt(1 - .99^2) / (1 - .9^2) = .74247.
    """
    one, two = two_steps(FedAdam(server_lr=0.001, tau=0.001, **options), start)
    assert one == pytest.approx(first, abs=1e-9)
    assert two == pytest.approx(second, abs=1e-9)


def test_the_correction_counts_steps_that_were_taken():
    """Without answers there is no step: rounds (cohort, nobody, cohort) end where two rounds do."""
    gap = play_toy("fedadam(bias='standard', v0='zero')", (0, 1), (), (1, 2))[-1]
    straight = play_toy("fedadam(bias='standard', v0='zero')", (0, 1), (1, 2))[-1]
    assert position(gap) == position(straight)
    assert int(gap.groups[0].known("optimiser")["steps"]) == 2


@pytest.mark.parametrize(("v0", "start"), [("tau2", 0.01), ("zero", 0.0)])
def test_the_start_of_the_second_moment(v0, start):
    memory = FedAdam(tau=0.1, v0=v0).init_server(profile_of([[1, 1]]))
    assert memory["v"].tolist() == pytest.approx([start])
