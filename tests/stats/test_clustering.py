"""Clustering: known groupings, brute force, and inputs on which clustering usually stumbles."""

import itertools
import json
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcohort.stats import clustering
from fedcohort.stats.clustering.labels import nearest
from fedcohort.stats.clustering.remembered import KEPT, remembered
from fedcohort.stats.metrics import davies_bouldin, silhouette
from support import REPOSITORY

VECTORS = json.loads((REPOSITORY / "tests/reference_vectors.json").read_text())
INTERACTION = np.array(
    [[0.9, 0.8, 0.3, 0.2], [0.6, 0.7, 0.2, 0.3], [0.4, 0.3, 0.8, 0.6], [0.1, 0.3, 0.7, 0.9]]
)
CAFA = np.array([[0.5, 0.5, 0], [0.48, 0.52, 0], [0.5, 0.48, 0.02], [0, 0.1, 0.9], [0, 0, 1], [0.9, 0.1, 0]])


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def blobs(seed: int = 0, each: int = 8) -> tuple[np.ndarray, list[int]]:
    """Three far clusters in the plane, interleaved so that labels cannot be right by order alone."""
    random = np.random.default_rng(seed)
    truth = [0, 1, 2] * each
    centres = np.array([(0, 0), (10, 0), (0, 10)])
    return centres[truth] + random.normal(size=(3 * each, 2)), truth


def test_relabel_numbers_by_first_appearance_and_frees_noise() -> None:
    assert clustering.relabel([7, 7, -1, 2, -1, 7]).tolist() == [0, 0, 1, 2, 3, 0]
    assert clustering.relabel([-1, -1]).tolist() == [0, 1]
    assert clustering.relabel([]).tolist() == []


def test_cafa_chooses_two_groups() -> None:
    choice = clustering.kmeans_by_silhouette(CAFA, None, seed=0)
    expected = {2: 0.7955619287, 3: 0.7616217143, 4: 0.4691612616, 5: 0.0704416218}
    assert choice.scores == pytest.approx(expected, abs=1e-9)
    assert (choice.k, choice.labels.tolist()) == (2, [0, 0, 0, 1, 1, 0])


def test_scores_are_silhouettes_of_all_rows_repeats_included() -> None:
    points = np.repeat(blobs()[0][:7], [3, 1, 1, 4, 1, 2, 1], axis=0)
    choice = clustering.kmeans_by_silhouette(points, None, seed=0)
    assert choice.scores[choice.k] == pytest.approx(silhouette(points, choice.labels))


@pytest.mark.parametrize(
    ("points", "k"),
    [
        (np.zeros((0, 3)), 1),
        (np.ones((1, 3)), 1),
        (np.eye(2), 1),
        (np.ones((6, 3)), 1),
        (np.full((5, 2), 0.1) + np.arange(5)[:, None] * 1e-17, 1),
        (np.repeat(np.eye(2), 3, axis=0), 2),
    ],
)
def test_degenerate_inputs_have_an_answer(points: np.ndarray, k: int) -> None:
    choice = clustering.kmeans_by_silhouette(points, None, seed=0)
    assert choice.k == k == max(choice.labels.tolist(), default=0) + 1


def test_search_respects_its_bound_and_keeps_the_first_of_equal_maxima() -> None:
    points, truth = blobs()
    assert clustering.kmeans_by_silhouette(points, 2, seed=0).k == 2
    assert max(clustering.kmeans_by_silhouette(points, 5, seed=0).scores) == 5
    assert clustering.kmeans_by_silhouette(points, None, seed=0).labels.tolist() == truth
    assert clustering.kmeans_by_silhouette(points, 6, seed=0, tolerance=2.0).k == 2  # nothing exceeds by 2


def test_kmeans_depends_on_the_seed_alone() -> None:
    points = np.random.default_rng(1).normal(size=(60, 4))
    first, again = (clustering.kmeans_by_silhouette(points, 8, seed=3) for _ in range(2))
    assert first.scores == again.scores
    assert first.labels.tolist() == again.labels.tolist()


def test_kmeans_starts_by_the_seed() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    found = {tuple(clustering.kmeans_groups(points, 8, seed, starts=1).tolist()) for seed in range(5)}
    assert len(found) > 1


def test_kmeans_counts_equal_rows_as_often_as_they_occur() -> None:
    """Every row is nearest to the mean of its own group; with means of the distinct rows some are not."""
    draw = np.random.default_rng(3)
    points = np.repeat(draw.normal(size=(20, 2)), draw.integers(1, 50, 20), axis=0)
    labels = clustering.kmeans_groups(points, 4, seed=0)
    means = np.stack([points[labels == group].mean(axis=0) for group in range(4)])
    assert cdist(points, means).argmin(axis=1).tolist() == labels.tolist()


def test_groups_with_a_capacity_are_those_nearest_to_their_own_means() -> None:
    """Assignment and means are repeated until nothing moves; the first assignment is not there yet."""
    points = np.random.default_rng(3).normal(size=(15, 2))
    labels = clustering.capped_groups(points, 3, 6, seed=0)
    assert np.bincount(labels).max() <= 6
    means = np.stack([points[labels == group].mean(axis=0) for group in range(3)])
    cost = cdist(points, means, "sqeuclidean")
    rows, places = linear_sum_assignment(np.repeat(cost, 6, axis=1))
    assert cost[rows, places // 6].sum() == pytest.approx(cost[np.arange(15), labels].sum())


def test_who_was_not_grouped_joins_the_largest_group() -> None:
    labels = clustering.join_largest(np.array([0, 1, 1]), np.array([0, 2, 3]), 5)
    assert labels.tolist() == [0, 1, 1, 1, 1]


def test_silhouette_over_a_sample_still_finds_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    points, truth = blobs(each=40)
    monkeypatch.setattr(clustering, "SAMPLE", 30)
    assert clustering.kmeans_by_silhouette(points, 6, seed=0).labels.tolist() == truth


def test_kmeans_groups() -> None:
    shares = [[0.9, 0.1, 0], [0.8, 0.2, 0], [0, 0.1, 0.9], [0, 0.2, 0.8], [0.1, 0.8, 0.1]]
    assert clustering.kmeans_groups(shares, 3, seed=0).tolist() == [0, 0, 1, 1, 2]
    assert clustering.kmeans_groups([[1.0], [1.0]], 2, seed=0).tolist() == [0, 0]
    assert clustering.kmeans_groups(shares, 1, seed=0).tolist() == [0] * 5


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_density_clustering_finds_blobs_and_leaves_outliers_alone(metric) -> None:
    points = np.array([[0, 0], [0.1, 0], [5, 5], [0, 0.1], [5, 5.1], [5.1, 5], [50, -50]])
    table = cdist(points, points) if metric == "precomputed" else points
    assert clustering.dbscan_groups(table, eps=1.0, metric=metric).tolist() == [0, 0, 1, 0, 1, 1, 2]
    assert clustering.optics_groups(table, metric=metric).tolist() == [0, 0, 1, 0, 1, 1, 2]


def test_optics_with_duplicates_and_few_points() -> None:
    corners = np.repeat(np.eye(3), [4, 3, 3], axis=0)
    assert clustering.optics_groups(corners).tolist() == [0] * 4 + [1] * 3 + [2] * 3
    assert clustering.optics_groups(np.ones((5, 2))).tolist() == [0] * 5
    assert clustering.optics_groups(np.zeros((4, 4)), metric="precomputed").tolist() == [0] * 4
    assert clustering.optics_groups(np.ones((1, 2))).tolist() == [0]
    assert clustering.optics_groups(np.eye(3), min_samples=5).tolist() == [0, 1, 2]


def test_kmedoids_finds_blobs() -> None:
    points, truth = blobs()
    assert clustering.kmedoids_groups(cdist(points, points), 3).tolist() == truth
    assert clustering.kmedoids_groups(cdist(points, points), 1).tolist() == [0] * 24
    assert clustering.kmedoids_groups(cdist(points[:2], points[:2]), 5).tolist() == [0, 1]


def medoid_cost(distances: np.ndarray, medoids: list[int]) -> float:
    return distances[:, medoids].min(axis=1).sum()


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_no_swap_improves_kmedoids(seed: int, groups: int) -> None:
    points = np.random.default_rng(seed).normal(size=(9, 2))
    distances = cdist(points, points)
    medoids = clustering.find_medoids(distances, groups).tolist()
    assert len(set(medoids)) == groups
    for position, x in itertools.product(range(groups), range(9)):
        swapped = [*medoids[:position], x, *medoids[position + 1 :]]
        assert medoid_cost(distances, swapped) >= medoid_cost(distances, medoids) - 1e-9


def test_upv_distance_of_rows_and_columns() -> None:
    np.testing.assert_allclose(clustering.upv_distance(INTERACTION), VECTORS["upv_rows"], atol=1e-14)
    np.testing.assert_allclose(clustering.upv_distance(INTERACTION.T), VECTORS["upv_cols"], atol=1e-14)


@given(hnp.arrays(np.float64, (5, 5), elements=st.floats(-10, 10)))
@settings(max_examples=30, deadline=None)
def test_upv_distance_is_the_triple_loop(matrix: np.ndarray) -> None:
    slow = np.zeros((5, 5))
    for k, j in itertools.permutations(range(5), 2):
        slow[k, j] = sum((matrix[k, i] - matrix[j, i]) ** 2 for i in range(5) if i not in (k, j))
    np.testing.assert_allclose(clustering.upv_distance(matrix), slow, atol=1e-11)


def test_upv_distance_survives_large_common_offsets() -> None:
    """Rows that differ by 1e-6 on top of 1000: without centring the difference drowns in rounding."""
    matrix = np.full((4, 4), 1000.0)
    matrix[0] += 1e-6
    assert clustering.upv_distance(matrix)[0, 1] == pytest.approx(2e-12, rel=1e-3)


def test_spectral_groups_of_fedgwc_affinity() -> None:
    affinity = np.exp(-0.5 * clustering.upv_distance(INTERACTION.T))
    labels = clustering.spectral_groups(affinity, 2, seed=0)
    assert labels.tolist() == [0, 0, 1, 1]
    assert davies_bouldin(affinity, labels) == pytest.approx(VECTORS["gwc_db_cols"])


def test_spectral_labels_by_kmeans_find_the_same_blocks() -> None:
    split = np.kron(np.eye(2), np.ones((3, 3))) + 0.01
    assert clustering.spectral_groups(split, 2, seed=0, assign="kmeans").tolist() == [0, 0, 0, 1, 1, 1]


def test_more_starts_of_kmeans_are_no_worse_and_sometimes_better() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))

    def spread(starts: int, seed: int) -> float:
        labels = clustering.kmeans_groups(points, 8, seed, starts)
        return sum(((own := points[labels == k]) - own.mean(0)).__pow__(2).sum() for k in range(8))

    once, often = (np.array([spread(starts, seed) for seed in range(10)]) for starts in (1, 20))
    assert often.mean() < once.mean()
    assert clustering.kmeans_by_silhouette(points, 4, 0, starts=1).scores


def test_spectral_groups_at_the_edges() -> None:
    split = np.kron(np.eye(2), np.ones((3, 3)))  # two components: scikit-learn warns about such graphs
    assert clustering.spectral_groups(split, 2, seed=0).tolist() == [0, 0, 0, 1, 1, 1]
    assert clustering.spectral_groups(split, 1, seed=0).tolist() == [0] * 6
    assert clustering.spectral_groups(split, 6, seed=0).tolist() == [0, 1, 2, 3, 4, 5]


def crossing(similarity: np.ndarray, labels: np.ndarray) -> float:
    return similarity[labels[:, None] != labels[None, :]].max()


def test_linkages_disagree_and_single_linkage_is_optimal() -> None:
    """Unit vectors at these angles; the best of all 31 bipartitions has cross similarity at most cos 55°."""
    angle = np.deg2rad([0, 30, 60, 90, 120, 175])
    similarity = np.cos(angle[:, None] - angle[None, :])
    complete, single = clustering.bipartition(similarity), clustering.bipartition(similarity, "single")
    assert complete.tolist() == [0, 0, 0, 1, 1, 1]
    assert single.tolist() == [0, 0, 0, 0, 0, 1]
    np.testing.assert_allclose([crossing(similarity, x) for x in (complete, single)], VECTORS["cfl2"])
    splits = (np.array((0, *rest)) for rest in itertools.product((0, 1), repeat=5) if any(rest))
    best = min(crossing(similarity, split) for split in splits)
    assert best == pytest.approx(VECTORS["cfl2_brute"])
    assert crossing(similarity, single) == pytest.approx(best)


def test_bipartition_of_opposed_updates() -> None:
    update = np.array([(1, 0.1), (1, -0.1), (-1, 0.1), (-1, -0.1)])
    norm = np.linalg.norm(update, axis=1)
    similarity = update @ update.T / np.outer(norm, norm)
    labels = clustering.bipartition(similarity)
    cross = crossing(similarity, labels)
    ours = [np.linalg.norm(update.mean(axis=0)), norm.max(), cross, np.sqrt((1 - cross) / 2)]
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(ours, VECTORS["cfl1"], atol=1e-15)
    assert clustering.bipartition([[1.0]]).tolist() == [0]


def test_optics_on_a_sample_finds_the_groups_of_all() -> None:
    """Six tight groups of 100: half of the points is enough to place the others; an outlier stays alone."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 8)) * 10
    tight = np.repeat(centres, 100, axis=0) + rng.normal(size=(600, 8)) * 0.1
    with pytest.warns(RuntimeWarning, match="OPTICS groups a fixed sample of 300 of 601 clients"):
        labels = clustering.optics_groups(np.vstack([tight, centres[:1] + 50]), min_samples=15, exact=300)
    assert labels.tolist() == [*np.repeat(np.arange(6), 100).tolist(), 6]


def test_optics_on_a_sample_leaves_out_who_is_too_far_from_it() -> None:
    """Half of the points are the sample; wherever a far one stands, in the sample or not, it is alone."""
    rng = np.random.default_rng(0)
    tight = np.repeat(rng.normal(size=(3, 8)) * 10, 60, axis=0) + rng.normal(size=(180, 8)) * 0.1
    for place in range(4):
        table = np.insert(tight, place, tight[0] + 50, axis=0)
        with pytest.warns(RuntimeWarning, match="OPTICS groups a fixed sample"):
            labels = clustering.optics_groups(table, min_samples=10, exact=90)
        assert np.flatnonzero(labels == labels[place]).tolist() == [place]
        assert labels.max() == 3


def test_of_many_points_a_sample_gives_the_centres():
    """Three clumps are found from a third of the points, everybody is in one, and it is told."""
    points = np.random.default_rng(0).normal(size=(300, 2)) + 20 * np.repeat(np.eye(3, 2), 100, axis=0)
    exact = clustering.kmeans_by_silhouette(points, 6, 0)
    with pytest.warns(RuntimeWarning, match="K-means groups a fixed sample of 100 of 300 clients"):
        sampled = clustering.kmeans_by_silhouette(points, 6, 0, exact=100)
    assert exact.k == sampled.k == 3
    assert sampled.labels.tolist() == exact.labels.tolist()


def test_nearest_is_that_of_plain_differences():
    random = np.random.default_rng(1)
    table, targets = random.normal(size=(2500, 3)) + 1e3, random.normal(size=(40, 3)) + 1e3
    found, distance = nearest(table, targets)
    far = np.linalg.norm(table[:, None] - targets[None], axis=2)
    assert (found == far.argmin(1)).all()
    assert distance == pytest.approx(far.min(1))


def test_a_grouping_is_found_once_and_nobody_can_spoil_it() -> None:
    """What differs in a value, a setting or the shape is another question."""
    asked = []

    @remembered
    def group(table: Any, count: int = 2) -> np.ndarray:
        asked.append(table.shape)
        return np.arange(len(table)) % count

    points = [[0.0, 1.0], [2.0, 3.0]]
    group(points)[:] = 7
    assert group(points).tolist() == [0, 1]
    assert asked == [(2, 2)]
    for other in (
        lambda: group([[0.0, 1.0], [2.0, 3.5]]),
        lambda: group(points, 1),
        lambda: group(points, count=3),
    ):
        other()
    group(np.reshape(points, (4, 1)))
    assert len(asked) == 5
    for number in range(KEPT):
        group([[float(number)]])
    group(points)
    assert len(asked) == 6 + KEPT
