"""Distances against published values, brute force and each other."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import wasserstein_distance

from fedcohort.stats import label_distances
from fedcohort.stats.label_distances import (
    coverage,
    emd_fedartml,
    hellinger,
    hellinger_matrix,
    hellinger_points,
    hellinger_to_pool,
    jensen_shannon,
    label_emd,
    pooled,
    proportions,
    psi,
    psi_signed_terms,
    psi_terms,
    size_imbalance,
    wpsi,
)
from fedcohort.util.errors import UserError
from support import REPOSITORY

VECTORS = json.loads((REPOSITORY / "tests/reference_vectors.json").read_text())
A = np.array([[50, 30, 20], [10, 80, 10], [0, 20, 80], [100, 0, 0]])
B = np.array([np.roll(row, shift) for shift in range(3) for row in ([90, 5, 5], [88, 6, 6], [92, 4, 4])])
DUPLICATES = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
SUMMARIES = [wpsi, hellinger, jensen_shannon, emd_fedartml, label_emd]

federations = hnp.arrays(
    np.int64, st.tuples(st.integers(2, 6), st.integers(2, 5)), elements=st.integers(0, 60)
).filter(lambda counts: (counts.sum(axis=1) > 0).all())
quick = settings(max_examples=40, deadline=None)


def test_psi_of_partition_a() -> None:
    np.testing.assert_allclose(psi(A), VECTORS["psi_A"], rtol=1e-12)
    np.testing.assert_allclose(psi_terms(A), VECTORS["psi_A_class"], rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "vector"),
    [
        ({}, "wpsi_A"),
        ({"eps": 1e-4}, "wpsi_A_eps1e-4"),
        ({"eps": 1e-3}, "wpsi_A_eps1e-3"),
        ({"smoothing": "laplace"}, "wpsi_A_laplace.5"),
        ({"smoothing": "laplace", "pseudo_count": 1.0}, "wpsi_A_laplace1"),
    ],
)
def test_wpsi_depends_on_the_smoothing(options: dict, vector: str) -> None:
    assert wpsi(A, **options) == pytest.approx(VECTORS[vector], rel=1e-12)


def test_psi_of_other_partitions() -> None:
    np.testing.assert_allclose(psi(DUPLICATES)[[0, 4, 7]], VECTORS["dup_psi"], rtol=1e-12)
    assert wpsi(DUPLICATES) == pytest.approx(VECTORS["dup_wpsi"], rel=1e-12)
    assert wpsi(B) == pytest.approx(VECTORS["B_wpsi"], rel=1e-12)


def test_larger_clients_weigh_more() -> None:
    """40 samples with shares (.75, .25) and 10 with (.2, .8): the pool is (.64, .36), not the mean of both.

    PSI: .11 ln(.75 / .64 * .36 / .25) = .0575573 and .44 ln(.64 / .2 * .8 / .36) = .8631298; by samples
    .8 * .0575573 + .2 * .8631298 = .2186718. Label distances .22 and .88, by samples .352.
    """
    counts = [[30, 10], [2, 8]]
    np.testing.assert_allclose(pooled(counts), [0.64, 0.36])
    np.testing.assert_allclose(psi(counts, eps=0.0), [0.0575573, 0.8631298], atol=1e-7)
    assert wpsi(counts, eps=0.0) == pytest.approx(0.2186718, abs=1e-7)
    assert label_emd(counts) == pytest.approx(0.352)


def test_psi_forgets_the_direction_and_signed_terms_keep_it() -> None:
    """Rotations of (90, 5, 5) pool to 1/3, so client 0 deviates by 0.9 upwards and by 0.05 downwards."""
    counts = [[90, 5, 5], [5, 90, 5], [5, 5, 90]]
    np.testing.assert_allclose(psi_terms(counts, eps=0.0)[0, :2], VECTORS["psi_sign_blind"], rtol=1e-12)
    up, down = VECTORS["psi_sign_blind"]
    np.testing.assert_allclose(psi_signed_terms(counts, eps=0.0)[0], [up, -down, -down], rtol=1e-12)


@pytest.mark.parametrize(
    ("counts", "vector"),
    [
        (A, "fa_A"),
        ([[90, 10], [10, 90]], "fa_2"),
        (np.eye(3), "fa_onehot3"),
        ([[1, 0]] * 5 + [[0, 1]] * 5, "fa_onehot10x2"),
    ],
)
def test_values_of_fedartml(counts: np.ndarray, vector: str) -> None:
    ours = [jensen_shannon(counts), hellinger(counts), emd_fedartml(counts)]
    np.testing.assert_allclose(ours, VECTORS[vector], rtol=1e-12, atol=1e-12)


def test_three_hellinger_summaries_differ() -> None:
    pairs = hellinger_matrix(proportions(A))[np.triu_indices(4, 1)]
    ours = [pairs.mean(), hellinger(A), hellinger_to_pool(A).mean()]
    np.testing.assert_allclose(ours, VECTORS["hd_variants_A"], rtol=1e-12)


def test_label_emd() -> None:
    assert label_emd(A) == pytest.approx(VECTORS["label_emd_A"], rel=1e-12)
    assert label_emd(np.eye(2)) == pytest.approx(1.0)


@quick
@given(federations)
def test_hellinger_closed_form_is_the_root_mean_square_of_all_pairs(counts: np.ndarray) -> None:
    matrix = hellinger_matrix(proportions(counts))
    pairs = matrix[np.triu_indices(len(counts), 1)]
    assert hellinger(counts) == pytest.approx(np.sqrt((pairs**2).mean()), abs=1e-12)
    points = hellinger_points(counts)
    np.testing.assert_allclose(np.linalg.norm(points[0] - points, axis=1), matrix[0], atol=1e-12)
    assert matrix.max() <= 1 + 1e-12


@quick
@given(federations)
def test_emd_fast_form_is_scipy_on_all_pairs(counts: np.ndarray) -> None:
    pairs = itertools.combinations(proportions(counts), 2)
    slow = np.sqrt(np.mean([wasserstein_distance(one, other) for one, other in pairs]))
    assert emd_fedartml(counts) == pytest.approx(slow, abs=1e-7)


@quick
@given(federations, st.randoms(use_true_random=False))
def test_names_of_clients_and_classes_do_not_matter(counts: np.ndarray, random) -> None:
    clients, classes = list(range(counts.shape[0])), list(range(counts.shape[1]))
    random.shuffle(clients)
    random.shuffle(classes)
    for measure in SUMMARIES:
        assert measure(counts[clients][:, classes]) == pytest.approx(measure(counts), abs=1e-7)


@quick
@given(federations)
def test_bounds(counts: np.ndarray) -> None:
    assert (psi_terms(counts) >= 0).all()
    assert (psi_terms(counts, "laplace") >= 0).all()
    assert 0 <= hellinger(counts) <= 1 + 1e-12
    assert 0 <= jensen_shannon(counts) <= 1 + 1e-12
    assert 0 <= emd_fedartml(counts) <= 1
    assert 0 <= label_emd(counts) <= 2
    assert 0 <= size_imbalance(counts).gini < 1
    assert size_imbalance(counts).ratio >= 1


@quick
@given(federations)
def test_empty_clients_and_absent_classes_change_nothing(counts: np.ndarray) -> None:
    more = np.zeros((len(counts) + 1, counts.shape[1] + 1), dtype=np.int64)
    more[1:, 1:] = counts
    for measure in [wpsi, hellinger, jensen_shannon, label_emd]:
        assert measure(more) == pytest.approx(measure(counts), abs=1e-9)
    assert wpsi(more, "laplace") == pytest.approx(wpsi(counts, "laplace"), abs=1e-9)
    assert size_imbalance(more) == size_imbalance(counts)
    assert np.isnan(psi(more)[0])
    assert np.isnan(coverage(more)[0])
    np.testing.assert_allclose(coverage(more)[1:], coverage(counts))


def test_identical_clients_have_no_distance() -> None:
    same = [[3, 1, 2]] * 4
    assert [hellinger(same), jensen_shannon(same), emd_fedartml(same), label_emd(same)] == [0, 0, 0, 0]
    assert wpsi(same) == pytest.approx(0, abs=1e-12)
    assert not hellinger_matrix(proportions(same)).any()


@pytest.mark.parametrize("measure", [hellinger, jensen_shannon, emd_fedartml])
def test_one_client_is_at_no_distance(measure) -> None:
    assert measure([[3, 4], [0, 0]]) == 0


def test_size_imbalance_and_coverage() -> None:
    """Sizes 1, 3, 6: mean pairwise gap (2+5+3)*2/9 over twice the mean 10/3 gives 1/3."""
    counts = [[1, 0, 0], [1, 2, 0], [6, 0, 0]]
    assert size_imbalance(counts).gini == pytest.approx(1 / 3)
    assert size_imbalance(counts).ratio == 6
    np.testing.assert_allclose(coverage(counts), [0.5, 1.0, 0.5])  # nobody holds the third class


def test_large_federation_needs_no_square_matrix() -> None:
    """50 000 clients: a K x K matrix of floats would take 20 GB."""
    counts = np.random.default_rng(0).multinomial(20, [0.1] * 10, size=50_000)
    assert all(np.isfinite(measure(counts)) for measure in SUMMARIES)


@pytest.mark.parametrize(
    ("counts", "message"),
    [([1, 2], "a row per client"), ([[1, -1], [1, 1]], "clip"), ([[1, np.nan], [1, 1]], "NaN")],
)
def test_mistakes_are_named(counts: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pooled(counts)


def test_unknown_smoothing_is_refused() -> None:
    with pytest.raises(UserError, match="laplace"):
        label_distances.psi_terms(A, "laplac")  # type: ignore[arg-type]
