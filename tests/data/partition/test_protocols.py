"""What makes each protocol itself."""

import numpy as np
import pytest

from fedcohort.data.partition import partitioner
from fedcohort.data.partition._dealing import apportion, deal_counts, equal_sizes
from fedcohort.data.partition._stock import Stock
from fedcohort.data.partition.dirichlet import cut
from fedcohort.util.errors import UserError
from support.partitions import split_clients

TEN = np.repeat(np.arange(10), 500)
HUNDRED = np.repeat(np.arange(100), 500)


def test_apportion_by_largest_remainder() -> None:
    """5 seats for 10:6:4 are 2.5, 1.5, 1: the tie of the halves is settled at random, never against 4."""
    seen = {
        tuple(apportion(np.array([[10, 6, 4]]), np.array([5]), np.random.default_rng(s))[0])
        for s in range(20)
    }
    assert seen == {(3, 1, 1), (2, 2, 1)}


def test_apportion_gives_nothing_without_weight() -> None:
    got = apportion(np.array([[0, 0], [0, 3]]), np.array([4, 2]), np.random.default_rng(0))
    assert got.tolist() == [[0, 0], [0, 2]]


def test_rows_of_a_class_are_dealt_at_random() -> None:
    """Ten of twenty rows of one class: not the first ten, and others with another seed."""
    counts, labels = np.array([[10], [10]]), np.zeros(20, dtype=np.int64)
    firsts = [set(deal_counts(labels, counts, np.random.default_rng(s))[0].tolist()) for s in (0, 1)]
    assert firsts[0] != firsts[1]
    assert set(range(10)) not in firsts


def test_equal_sizes_use_every_example() -> None:
    assert equal_sizes(10, 3).tolist() == [4, 3, 3]


def test_a_client_of_one_class_takes_one_that_has_enough() -> None:
    """Five wanted of ten and two: never the class of two, unless no class has five."""
    for seed in range(20):
        stock = Stock(np.repeat([0, 1], [10, 2]), np.random.default_rng(seed))
        assert [stock.draw(0, 5).tolist() for _ in range(3)] == [[5, 0], [5, 0], [0, 2]]


def test_cut_spares_full_clients() -> None:
    """Shares .2 .3 .5 with the last client full renormalise to .4 .6 0; of 10 examples that is 4, 6, 0."""
    shares = np.array([0.2, 0.3, 0.5])
    assert cut(shares, np.array([True, True, False]), 10).tolist() == [4, 6, 0]
    assert cut(shares, np.array([False, False, False]), 10).tolist() == [2, 3, 5]  # nobody open: as drawn


def test_dirichlet_keeps_the_minimum_and_skews_with_alpha() -> None:
    counts = {alpha: split_clients(TEN, "dirichlet", 0, clients=20, alpha=alpha) for alpha in (0.1, 100.0)}
    assert all(partition.sizes.min() >= 10 for partition in counts.values())
    classes = {alpha: (partition.counts(TEN) > 5).sum(1).mean() for alpha, partition in counts.items()}
    assert classes[0.1] < 5
    assert classes[100.0] == 10


def test_dirichlet_gives_full_clients_nothing_of_later_classes() -> None:
    """Full: 5000 / 20 = 250 examples. The last client takes what rounding leaves over, full or not."""
    counts = split_clients(TEN, "dirichlet", 0, clients=20, alpha=0.5).counts(TEN)[:-1]
    before = np.cumsum(counts, axis=1) - counts
    assert (before >= 250).any()
    assert not counts[before >= 250].any()


def test_dirichlet_says_after_200_tries_what_to_change() -> None:
    with pytest.raises(UserError, match="in 200 tries: raise 'alpha'"):
        split_clients(np.repeat(np.arange(2), 1000), "dirichlet", 0, clients=100, alpha=0.05)


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet_fedartml"])
def test_tries_come_to_an_end(name: str) -> None:
    with pytest.raises(UserError, match="max_tries: 4294967296 must be between 1 and 10,000"):
        partitioner(name, max_tries=2**32)


def test_an_alpha_too_small_for_the_legacy_generator() -> None:
    """Its gamma draws are all rounded to zero, and their shares are no numbers."""
    with pytest.raises(UserError, match="no Dirichlet draw with alpha=1e-09"):
        split_clients(TEN, "dirichlet_fedartml", 0, clients=7, alpha=1e-9)


def test_clientwise_alpha_is_the_total_mass() -> None:
    """At alpha .5, 100 classes, 500 examples: 3.5 to 4 classes per client expected; ``dirichlet``: 73."""
    partition = split_clients(HUNDRED, "dirichlet_clientwise", 0, clients=100, alpha=0.5)
    assert set(partition.sizes) == {500}
    assert 3.3 < (partition.counts(HUNDRED) > 0).sum(1).mean() < 4.5
    other = split_clients(HUNDRED, "dirichlet", 0, clients=100, alpha=0.5)
    assert 68 < (other.counts(HUNDRED) > 0).sum(1).mean() < 78


def test_clientwise_alpha_zero_is_one_class_each() -> None:
    counts = split_clients(HUNDRED, "dirichlet_clientwise", 0, clients=100, alpha=0).counts(HUNDRED)
    assert ((counts > 0).sum(1) == 1).all()
    assert counts.sum() == len(HUNDRED)


@pytest.mark.parametrize("similarity", [0.0, 0.3, 1.0])
def test_similarity_loses_nothing_unless_asked(similarity: float) -> None:
    labels = TEN[:-3]
    kept = split_clients(labels, "similarity", 0, clients=7, similarity=similarity)
    assert kept.sizes.sum() == len(labels)
    dropped = split_clients(labels, "similarity", 0, clients=7, similarity=similarity, drop_remainder=True)
    assert len(set(dropped.sizes)) == 1
    assert 0 < dropped.provenance["dropped"] < 14


def test_similarity_zero_shuffles_the_clients() -> None:
    counts = split_clients(TEN, "similarity", 0, clients=10, similarity=0).counts(TEN)
    dominant = counts.argmax(1)
    assert sorted(dominant) == list(range(10))
    assert dominant.tolist() != list(range(10))


def test_similarity_sorts_by_label_wherever_the_rows_are() -> None:
    """Labels 0 1 2 0 1 2 ...: a client's run of the sorted rows is one class, a run of rows is all three."""
    labels = np.tile(np.arange(3), 40)
    counts = split_clients(labels, "similarity", 0, clients=3, similarity=0).counts(labels)
    assert sorted(counts.tolist()) == [[0, 0, 40], [0, 40, 0], [40, 0, 0]]


def test_classes_per_client() -> None:
    """Client i owns class i mod 10; five clients of two classes leave classes without owner."""
    counts = split_clients(TEN, "classes_per_client", 0, clients=20, classes=3).counts(TEN)
    assert ((counts > 0).sum(1) == 3).all()
    assert all(counts[i, i % 10] > 0 for i in range(20))
    few = split_clients(TEN, "classes_per_client", 0, clients=5, classes=1)
    assert few.provenance["unowned_classes"] == [5, 6, 7, 8, 9]
    assert few.provenance["dropped"] == 2500


@pytest.mark.parametrize("leftovers", ["drop", "deal"])
def test_partly_iid(leftovers: str) -> None:
    partition = split_clients(TEN, "partly_iid", 1, clients=20, iid=0.25, leftovers=leftovers)
    assert partition.iid is not None
    assert partition.iid.tolist() == [True] * 5 + [False] * 15
    classes = (partition.counts(TEN) > 0).sum(1)
    assert partition.truth is not None
    assert partition.truth.tolist() == [1] * 5 + [0] * 15
    assert (classes[:5] == 10).all()
    assert (classes[5:] <= 4).all()
    assert len(set(partition.sizes)) > 10
    if leftovers == "deal":
        assert partition.provenance["dropped"] <= split_clients(TEN, "partly_iid", 1).provenance["dropped"]


def test_mixed_alpha_draws_the_even_clients_first() -> None:
    partition = split_clients(
        TEN, "mixed_alpha", 0, clients=50, shares=[0.2, 0.4, 0.4], alphas=[0, 1000, 0.5]
    )
    classes = (partition.counts(TEN) > 0).sum(1)
    assert partition.truth is not None
    assert np.bincount(partition.truth).tolist() == [10, 20, 20]
    assert (classes[partition.truth == 0] == 1).all()
    assert (classes[partition.truth == 1] == 10).all()
    assert classes[partition.truth == 2].mean() < 5


def test_mixed_alpha_single_class_clients_stay_so_when_classes_are_short() -> None:
    """10 even clients take about 50 of each class; 90 others want 500 of 450: smaller, never mixed."""
    partition = split_clients(HUNDRED, "mixed_alpha", 0, clients=100, shares=[0.1, 0, 0.9])
    counts = partition.counts(HUNDRED)[partition.truth == 2]
    assert ((counts > 0).sum(1) == 1).all()
    assert 400 < counts.sum(1).min() <= 450 + 50


def test_domains() -> None:
    partition = split_clients(TEN, "domains", 0, clients=10, sigma=0.7, radius=1)
    assert partition.domains is not None
    assert [domain.name for domain in partition.domains] == ["clean"] * 4 + ["noise"] * 3 + ["blur"] * 3
    told = {(domain.name, domain.noise, domain.blur) for domain in partition.domains}
    assert told == {("clean", 0, 0), ("noise", 0.7, 0), ("blur", 0, 1)}
    assert partition.provenance["domains"] == {"clean": 4, "noise": 3, "blur": 3}
    other = split_clients(TEN, "domains", 0, clients=10, clean=0.4, noise=0.5, blur=0.1)
    assert other.provenance["domains"] == {"clean": 4, "noise": 5, "blur": 1}


def test_natural() -> None:
    owner = np.array(["b"] * 5 + ["a"] * 3 + ["c"])
    partition = split_clients(np.array([0, 1, 0] * 3), "natural", owner=owner, min_samples=2)
    assert partition.names == ("a", "b")
    assert [rows.tolist() for rows in partition.owners] == [[5, 6, 7], [0, 1, 2, 3, 4]]
    assert partition.provenance["clients_too_small"] == 1
    three = split_clients(np.array([0, 1, 0] * 3), "natural", owner=owner, min_samples=3)
    assert three.names == ("a", "b")  # three are enough
    many = split_clients(np.arange(50) % 2, "natural", 7, owner=np.arange(50) // 2, max_clients=5)
    assert many.num_clients == 5
    assert many.names != ("0", "1", "2", "3", "4")  # chosen by seed, not the first ones
    with pytest.raises(UserError, match="lower 'min_samples'"):
        split_clients(np.array([0, 1]), "natural", owner=np.array([1, 2]), min_samples=2)


def test_ten_thousand_clients_are_quick() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    partition = split_clients(labels, "dirichlet", 0, clients=10_000, alpha=5, min_size=1)
    assert partition.num_clients == 10_000
