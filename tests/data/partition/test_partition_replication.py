"""Partitions published code draws from a seed, number by number.

Values were computed with fedartml 0.1.34 (Dirichlet) and with the similarity protocol of the Clust-PSI-PFL
authors, on labels 0..9 with 100 examples each and 5 clients.
"""

import numpy as np
import pytest

from support.partitions import split_clients

LABELS = np.repeat(np.arange(10), 100)


@pytest.mark.parametrize(
    ("alpha", "seed", "sizes", "first"),
    [
        (0.1, 0, [209, 238, 265, 267, 21], [0, 13, 99, 0, 0, 0, 0, 97, 0, 0]),
        (0.5, 0, [242, 181, 215, 211, 151], [1, 18, 74, 37, 20, 6, 7, 79, 0, 0]),
        (100, 0, [193, 209, 196, 204, 198], [21, 21, 17, 18, 20, 21, 22, 17, 17, 19]),
        (0.1, 42, [166, 214, 202, 241, 177], [0, 0, 63, 0, 0, 0, 3, 7, 93, 0]),
        (0.5, 42, [198, 197, 207, 209, 189], [0, 0, 40, 18, 10, 0, 29, 19, 57, 25]),
        (100, 42, [188, 193, 203, 209, 207], [21, 19, 19, 19, 22, 18, 16, 19, 17, 18]),
    ],
)
def test_dirichlet_as_fedartml(alpha: float, seed: int, sizes: list[int], first: list[int]) -> None:
    partition = split_clients(LABELS, "dirichlet_fedartml", seed, clients=5, alpha=alpha)
    assert partition.sizes.tolist() == sizes
    assert partition.counts(LABELS)[0].tolist() == first


@pytest.mark.parametrize(
    ("similarity", "first"),
    [
        (0, [100, 100, 0, 0, 0, 0, 0, 0, 0, 0]),
        (0.03, [98, 97, 0, 0, 1, 1, 0, 1, 1, 1]),
        (0.5, [66, 53, 10, 9, 12, 12, 9, 15, 7, 7]),
        (1, [18, 15, 17, 26, 23, 20, 22, 23, 16, 20]),
    ],
)
def test_similarity_as_its_authors(similarity: float, first: list[int]) -> None:
    partition = split_clients(LABELS, "similarity", 42, clients=5, similarity=similarity, legacy=True)
    assert partition.sizes.tolist() == [200] * 5
    assert partition.counts(LABELS)[0].tolist() == first


def test_a_fedartml_retry_moves_on_by_one_seed_step_per_class() -> None:
    """A retry continues at seed + 100 C, so it equals a fresh draw from that seed when that one succeeds."""
    for seed in range(200):
        partition = split_clients(LABELS, "dirichlet_fedartml", seed, clients=5, alpha=0.1)
        if partition.provenance["retries"] == 1:
            break
    again = split_clients(LABELS, "dirichlet_fedartml", seed + 1000, clients=5, alpha=0.1)
    assert again.provenance["retries"] == 0
    assert [rows.tolist() for rows in partition.owners] == [rows.tolist() for rows in again.owners]
