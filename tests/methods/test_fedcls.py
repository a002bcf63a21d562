"""FedCLS: leader clustering of 0/1 label vectors by Hamming distance; one client of each cluster in turn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.methods.fedcls import FedCLS, differing
from support.toy import profile_of, round_of

HOLDS = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("tau", "clusters"),
    [
        (0.1, [0, 1, 2, 3, 0, 4]),  # floor(.4) = 0 labels may differ
        (0.25, [0, 0, 1, 1, 0, 2]),  # one
        (0.5, [0, 0, 1, 1, 0, 0]),  # two
        (0.95, [0, 0, 1, 0, 0, 0]),  # three: only 1100 and 0011 differ in four
    ],
)
def test_clusters(tau, clusters):
    memory = FedCLS(tau=tau).init_selector(profile_of(HOLDS))
    assert memory["cluster"].tolist() == clusters


def test_how_many_samples_of_a_class_does_not_matter():
    """(10, 10, 0, 0) and (10, 20, 0, 0) hold the same classes."""
    holds = torch.tensor([[10, 10, 0, 0], [10, 20, 0, 0]]) > 0
    assert differing(holds, holds[0]).tolist() == [0, 0]
    assert FedCLS().init_selector(profile_of([[10, 10, 0, 0], [10, 20, 0, 0]]))["cluster"].tolist() == [0, 0]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 200))
def test_a_cohort_takes_every_cluster_before_it_takes_one_twice(cohort, seed):
    profile = profile_of(HOLDS, seed=seed)
    part = FedCLS(tau=0.25)
    memory = part.init_selector(profile)
    chosen = part.select(memory, round_of(profile, cohort), None).tolist()
    assert len(set(chosen)) == cohort
    clusters = memory["cluster"][chosen].tolist()
    assert len(set(clusters)) == min(3, cohort)
    assert len(set(clusters[:3])) == min(3, cohort)


def test_every_client_of_a_cluster_is_as_likely():
    """All hold the same: one cluster, uniform sampling."""
    part, firsts = FedCLS(), set()
    for seed in range(40):
        profile = profile_of([[1, 1]] * 4, seed=seed)
        firsts.add(int(part.select(part.init_selector(profile), round_of(profile, 1), None)))
    assert firsts == {0, 1, 2, 3}


def test_every_cluster_is_as_likely_to_be_visited_first():
    """Clusters of three clients and of one: a cohort of one is of the second in about half of 40 rounds."""
    profile = profile_of([[1, 0]] * 3 + [[0, 1]])
    part = FedCLS()
    memory = part.init_selector(profile)
    drawn = [int(part.select(memory, round_of(profile, 1, number), None)) for number in range(40)]
    assert 10 <= drawn.count(3) <= 30


def test_complement_adds_whoever_is_farthest():
    """From 1100: 0011 differs in 4. Then 1110, 0111 and 1010 are 1 or 2 from one of the two, 1100 is 0."""
    chosen = FedCLS(complement=True).grow(0, torch.arange(6), torch.tensor(HOLDS) > 0, 3)
    assert chosen.tolist() == [0, 2, 5]
