"""What clients reveal of their labels."""

import math

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.errors import UserError
from fedcohort.testing import play, tiny_task

COUNTS = torch.full((400, 10), 1000)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_laplace_noise_of_scale_one_over_epsilon(epsilon):
    """Deviation sqrt(2) / epsilon; 4000 draws of kurtosis 6 estimate it to sqrt(5 / 4 / 4000) = 1.8 %."""
    noise = Privacy("noised", epsilon).reveal(COUNTS, seed=0) - COUNTS
    assert float(noise.std()) == pytest.approx(math.sqrt(2) / epsilon, rel=0.09)
    assert abs(float(noise.mean())) < 5 * math.sqrt(2) / epsilon / math.sqrt(4000)


def test_noise_is_each_clients_own_and_keyed_by_the_seed():
    noised = Privacy("noised", 0.5)
    one = noised.reveal(COUNTS, seed=0)
    assert noised.reveal(COUNTS, seed=0).equal(one)
    assert not noised.reveal(COUNTS, seed=1).equal(one)
    assert not one[0].equal(one[1])
    assert noised.reveal(COUNTS[:3], seed=0).equal(one[:3])  # the others do not matter


def test_counts_below_zero_are_clipped():
    revealed = Privacy("noised", 0.1).reveal(torch.zeros(50, 4, dtype=torch.long), seed=0)
    assert float(revealed.min()) == 0.0
    assert 0.4 < float((revealed == 0).double().mean()) < 0.6


def test_exact_counts_are_exact():
    assert Privacy().reveal(COUNTS, 0).equal(COUNTS.double())


@pytest.mark.parametrize("text", ["fedlecc", "fedentopt", "clust_psi_pfl", "cafa"])
def test_withheld_counts_are_a_sentence(text):
    with pytest.raises(
        UserError, match=f"{text} needs label counts, but privacy.counts is 'withheld': set it"
    ):
        play(Method.parse(text), tiny_task(privacy=Privacy("withheld")), 1)


@pytest.mark.parametrize("text", ["fedavg", "scaffold", "fedgwc"])
def test_other_methods_need_none(text):
    state, _ = play(Method.parse(text), tiny_task(privacy=Privacy("withheld")), 1)
    assert state.round == 1


@pytest.mark.parametrize("text", ["fedlecc", "fedentopt", "clust_psi_pfl", "cafa"])
def test_noised_counts_serve(text):
    state, _ = play(Method.parse(text), tiny_task(privacy=Privacy("noised", 0.1)), 2)
    assert state.round == 2


def test_the_server_sees_only_what_is_revealed():
    task = tiny_task(privacy=Privacy("noised", 0.5))
    seen = task.profile(Method.parse("fedlecc")).counts
    assert not seen.equal(task.federation.counts.double())
    assert tiny_task().profile(Method.parse("fedentopt(epsilon=0.5)")).counts.equal(seen)
