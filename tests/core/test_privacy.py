"""What clients reveal of their labels."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fedcohort.core import disclosure
from fedcohort.core.disclosure import disclose
from fedcohort.core.method import Method
from fedcohort.core.noise import SENSITIVITY, simulated_noise, tidied
from fedcohort.core.profile import Privacy
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import numpy_generator

COUNTS = torch.full((400, 10), 1000)
FEDLECC = Method.parse("fedlecc")


def told(epsilon, seed=0):
    task = tiny_task(privacy=Privacy("noised", epsilon))
    return task.federation, disclose(task.federation, FEDLECC, task.privacy, seed).counts


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_the_noise_is_discrete_laplace_of_scale_two_over_epsilon(epsilon):
    """P(x) = (1 - a) / (1 + a) * a^|x| with a = exp(-epsilon / 2): one sample less here, one more there."""
    noise = simulated_noise(COUNTS, epsilon, 0, "a client")
    a = math.exp(-epsilon / SENSITIVITY)
    edge = int(4 / epsilon)
    share = [(1 - a) / (1 + a) * a ** abs(x) for x in range(-edge, edge + 1)]
    seen = [int((noise == x).sum()) for x in range(-edge, edge + 1)]
    rest = noise.numel() - sum(seen), 1 - sum(share)
    assert chisquare([*seen, rest[0]], np.array([*share, rest[1]]) * noise.numel()).pvalue > 1e-3
    assert noise.dtype == torch.int64


def test_tables_that_are_no_whole_numbers_get_noise_of_the_same_scale():
    """Deviation sqrt(2) * 2 / epsilon; 4000 draws of kurtosis 6 estimate it to sqrt(5 / 4 / 4000) = 1.8 %."""
    noise = simulated_noise(COUNTS.double(), 0.5, 0, "a client")
    assert float(noise.std()) == pytest.approx(math.sqrt(2) * 2 / 0.5, rel=0.09)


def test_noise_is_each_clients_own_and_repeats_with_the_experiment():
    _, one = told(0.5)
    assert told(0.5)[1].equal(one)
    assert not told(0.5, seed=1)[1].equal(one)
    federation, other = told(0.5)
    moved = replace(federation, train=replace(federation.train, x=federation.train.x + 1))
    assert not disclose(moved, FEDLECC, Privacy("noised", 0.5), 0).counts.equal(other)
    many = torch.full((8, 4), 1000)
    assert (
        len({tuple(row.tolist()) for row in disclosure.noised(many, [4000] * 8, "counts", 0.5, 0, "secret")})
        == 8
    )


def test_who_has_no_data_is_not_known_by_its_labels():
    """Client 0 told counts and has no sample; client 2 has samples and told nothing."""
    task = tiny_task(clients=3)
    counts = torch.tensor([[1, 1, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]]).double()
    profile = replace(task.profile(FEDLECC), counts=counts, size=torch.tensor([0, 5, 5]))
    assert profile.known_table("fedlecc", counts=True)[1].tolist() == [1]


def test_answers_at_two_epsilons_do_not_cancel():
    """One draw rescaled by 1/epsilon would: twice the answer at 1 less that at 1/2 would be the truth."""
    federation, fine = told(1.0)
    guess = (2 * fine - told(0.5)[1]).round().clamp(min=0)
    assert not guess.equal(federation.counts.double())
    many = torch.full((8, 500), 1000)
    sizes = federation.train.sizes.tolist()
    draws = [disclosure.noised(many, sizes, "counts", epsilon, 0, "secret") for epsilon in (0.25, 0.5)]
    noise = [(draw - draw.mean(1, keepdim=True)).flatten().numpy() for draw in draws]
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.1  # 4,000 pairs: 0.016 of luck


def test_what_a_report_prints_does_not_give_the_noise():
    """Its readers know the seed, the fingerprint, epsilon and the client's number; the data they lack."""
    federation, seen = told(0.5)
    for secret in (federation.fingerprint(), federation.fingerprint()[:12], ""):
        guess = [
            tidied(row + simulated_noise(row, 0.5, 0, secret, "counts", "0.5", client), int(row.sum()))
            for client, row in enumerate(federation.counts)
        ]
        assert not torch.stack(guess).equal(seen)
    by_seed = numpy_generator(0, "counts", 0).laplace(0, 2 / 0.5, federation.num_classes)
    assert not torch.from_numpy(by_seed).equal(seen[0] - federation.counts[0])


def test_noised_counts_are_told_as_what_is_known_anyway():
    """None is below zero, and together they are the samples that everybody knows of."""
    federation, seen = told(0.1)
    assert float(seen.min()) == 0.0
    torch.testing.assert_close(seen.sum(1), federation.train.sizes.double())
    assert tidied(torch.tensor([-3, -1, 0, -2]), 8).tolist() == [2, 2, 2, 2]
    assert tidied(torch.tensor([-3, 6, 2, 0]), 4).tolist() == [0, 3, 1, 0]


def test_exact_counts_are_exact():
    task = tiny_task()
    assert disclose(task.federation, FEDLECC, Privacy(), 0).counts.equal(task.federation.counts.double())


def test_how_little_is_revealed_can_be_compared():
    none, coarse, fine, all_ = Privacy("withheld"), Privacy("noised", 0.1), Privacy("noised", 1.0), Privacy()
    assert none.strictness > coarse.strictness > fine.strictness > all_.strictness


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
