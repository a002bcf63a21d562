"""Metrics against hand-computed values and scikit-learn."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, roc_auc_score

from fedcohort.stats import metrics
from support import REPOSITORY

VECTORS = json.loads((REPOSITORY / "tests/reference_vectors.json").read_text())
SQUARE = [(0, 0), (0, 1), (4, 0), (4, 1)]
SHARES = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.34, 0.33, 0.33], [0.3, 0.35, 0.35]]
PAIRS = [0, 0, 1, 1]


def test_silhouette_and_davies_bouldin_of_two_pairs() -> None:
    assert metrics.silhouette(SQUARE, PAIRS) == pytest.approx(VECTORS["sil"])
    assert metrics.davies_bouldin(SQUARE, PAIRS) == pytest.approx(VECTORS["db"])


def test_a_point_alone_scores_0_and_has_no_scatter() -> None:
    points, labels = [(0, 0), (0, 1), (10, 0)], [0, 0, 1]
    assert metrics.silhouette(points, labels) == pytest.approx(VECTORS["sil_singleton"])
    assert metrics.davies_bouldin(points, labels) == pytest.approx(VECTORS["db_singleton"])


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_group_scores_need_groups(labels: list[int]) -> None:
    assert math.isnan(metrics.silhouette(SQUARE, labels))
    assert math.isnan(metrics.davies_bouldin(SQUARE, labels))


def test_coincident_centroids_have_no_davies_bouldin_index() -> None:
    """Diagonals of a square share their centre; scikit-learn would return 0, the best score there is."""
    assert math.isnan(metrics.davies_bouldin([(0, 0), (1, 1), (0, 1), (1, 0)], PAIRS))
    one_class_each = np.eye(4)
    assert math.isnan(metrics.wadb(one_class_each, PAIRS))
    assert metrics.was(one_class_each, PAIRS) == 0


def test_a_shape_is_the_shares_in_descending_order() -> None:
    assert metrics.shapes([[0.1, 0.7, 0.2], [0.5, 0.0, 0.5]]).tolist() == [[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]]


def test_wasserstein_adjusted_scores_compare_shapes() -> None:
    assert metrics.was(SHARES, PAIRS) == pytest.approx(VECTORS["was"])
    assert metrics.wadb(SHARES, PAIRS) == pytest.approx(VECTORS["wadb"])
    assert metrics.silhouette(SHARES, PAIRS) == pytest.approx(VECTORS["sil_plain"])
    assert metrics.davies_bouldin(SHARES, PAIRS) == pytest.approx(VECTORS["db_plain"])


def test_shape_distance_under_both_published_scalings() -> None:
    one, other = metrics.shapes(SHARES)[:2]
    distance = np.linalg.norm(one - other)
    np.testing.assert_allclose([distance / 3, distance / math.sqrt(3)], VECTORS["was_d01_eq7_eq38"])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=7, unique=True), st.data()
)
@settings(max_examples=40, deadline=None)
def test_weighted_silhouette_is_the_silhouette_of_repeated_points(points: list, data) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(points), max_size=len(points))))
    weights = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(points), max_size=len(points))))
    table = np.array(points, dtype=float)
    plain = metrics.silhouette(np.repeat(table, weights, axis=0), np.repeat(labels, weights))
    ours = metrics.weighted_silhouette(cdist(table, table), labels, weights.astype(float))
    if len(set(labels.tolist())) == 1:
        assert ours == -math.inf
    elif not math.isnan(plain):
        assert ours == pytest.approx(plain, abs=1e-9)


def test_rand_is_not_adjusted() -> None:
    assert metrics.rand([0, 0, 1, 1], [0, 0, 0, 1]) == pytest.approx(VECTORS["rand"])
    one_group = [0] * 100
    assert metrics.rand(one_group, [0] * 50 + [1] * 50) == pytest.approx(VECTORS["rand_1cl_50_50"])
    thirds = [0] * 40 + [1] * 30 + [2] * 30
    assert metrics.rand(one_group, thirds) == pytest.approx(VECTORS["rand_1cl_40_30_30"])
    assert metrics.adjusted_rand(one_group, thirds) == pytest.approx(0)
    assert metrics.adjusted_rand([2, 2, 0], [0, 0, 1]) == 1


def test_accuracy_across_clients() -> None:
    accuracy, size = [0.9, 0.5, 1.0, 0.6], [100, 50, 10, 40]
    ours = [
        metrics.global_accuracy(accuracy, size),
        metrics.global_accuracy(accuracy, [1] * 4),
        metrics.accuracy_deviation(accuracy),
        metrics.accuracy_deviation_sd(accuracy),
    ]
    np.testing.assert_allclose(ours, VECTORS["acc"])


def test_clients_without_test_samples_are_left_out() -> None:
    assert metrics.global_accuracy([0.5, np.nan, 1.0], [10, 0, 0]) == 0.5
    assert metrics.accuracy_deviation([0.5, np.nan]) == 0.5
    assert metrics.accuracy_deviation_sd([0.5, np.nan]) == 0
    assert math.isnan(metrics.global_accuracy([np.nan], [0]))
    assert math.isnan(metrics.accuracy_deviation([]))
    assert math.isnan(metrics.accuracy_deviation_sd([np.nan]))


def test_balanced_accuracy_is_mean_recall() -> None:
    """8 of class 0 right, 1 of 2 of class 1 right: (1 + 1/2)/2. Weighting classes by their training share
    instead, Σπ·correct / Σπ·n, would favour the frequent one: (6.4 + 0.2)/(6.4 + 0.4)."""
    correct, total, prior = np.array([8, 1]), np.array([8, 2]), np.array([0.8, 0.2])
    favouring = (prior @ correct) / (prior @ total)
    np.testing.assert_allclose([metrics.balanced_accuracy(correct, total), favouring], VECTORS["bal"])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_scores_of_classes_agree_with_scikit_learn(answers: list[tuple[int, int]]) -> None:
    truth, guess = np.array(answers).T
    total, named = np.bincount(truth, minlength=4), np.bincount(guess, minlength=4)
    correct = np.bincount(truth[truth == guess], minlength=4)
    nothing = np.zeros(4)
    total, named, correct = (np.stack([each, nothing]) for each in (total, named, correct))
    ours = [metrics.balanced_accuracy(correct, total), metrics.macro_f1(correct, total, named)]
    theirs = [balanced_accuracy_score(truth, guess), f1_score(truth, guess, average="macro")]
    assert [own[0] for own in ours] == pytest.approx(theirs)
    assert metrics.majority(total)[0] == pytest.approx(np.mean(truth == np.bincount(truth).argmax()))
    assert all(math.isnan(own[1]) for own in (*ours, metrics.majority(total)))


def test_f1_counts_both_who_is_missed_and_who_is_named_in_vain() -> None:
    """Two of three found, once in vain: 2 * 2 / (3 + 3). The other class: nobody found, 0."""
    assert metrics.macro_f1([2, 0], [3, 1], [3, 1]) == pytest.approx((4 / 6 + 0) / 2)


def in_bins(label: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(place[label == own], minlength=place.max() + 1) for own in (0, 1)])


@given(st.lists(st.booleans(), min_size=2, max_size=40), st.randoms())
@settings(max_examples=60, deadline=None)
def test_rankings_without_ties_are_scored_as_by_scikit_learn(sought: list[bool], draw) -> None:
    label, place = np.array(sought, dtype=int), np.array(draw.sample(range(99), len(sought)))
    ours = metrics.ranking_scores(in_bins(label, place))
    if len(set(sought)) < 2:
        assert all(map(math.isnan, ours))
    else:
        assert ours == pytest.approx((roc_auc_score(label, place), average_precision_score(label, place)))


@pytest.mark.parametrize(
    "samples",
    [
        [(1, 0), (0, 0), (0, 0), (1, 0), (1, 0)],
        [(1, 1), (0, 1), (1, 1), (0, 0), (1, 0)],
        [(0, 2), (0, 2), (1, 2), (1, 1), (0, 0)],
    ],
)
def test_ties_count_as_the_mean_of_all_their_orders(samples: list[tuple[int, int]]) -> None:
    label, place = np.array(samples, dtype=int).T
    orders = [np.lexsort((order, place)).argsort() for order in itertools.permutations(range(len(samples)))]
    each = [(roc_auc_score(label, own), average_precision_score(label, own)) for own in orders]
    assert metrics.ranking_scores(in_bins(label, place)) == pytest.approx(np.mean(each, axis=0))
    assert metrics.ranking_scores(in_bins(label, place))[0] == pytest.approx(roc_auc_score(label, place))


def test_rounds_to_target() -> None:
    accuracy = [0.10, 0.35, 0.52, 0.48, 0.55, 0.61, 0.60, 0.63]
    ours = [
        metrics.rounds_to_target(accuracy, 0.5),
        metrics.rounds_to_target(accuracy, 0.5, consecutive=3),
        metrics.rounds_to_target(accuracy, 0.5, window=3),
    ]
    assert ours == VECTORS["rtt"]
    assert metrics.rounds_to_target(accuracy, 0.5, rounds=range(0, 80, 10)) == 20
    assert metrics.rounds_to_target(accuracy, 0.7) == math.inf
    assert metrics.rounds_to_target(accuracy, 0.61) == 6  # reached is enough
    assert metrics.rounds_to_target(accuracy[:2], 0.1, consecutive=3) == math.inf
    assert metrics.rounds_to_target(accuracy[:3], 0.1, consecutive=2, window=3) == math.inf
    assert metrics.rounds_to_target([], 0.1) == math.inf
    assert metrics.rounds_to_target([np.nan, 0.9], 0.5) == 2


def test_cohort_entropy() -> None:
    assert metrics.cohort_entropy([[10, 0, 5, 20], [0, 10, 5, 0]]) == pytest.approx(VECTORS["cohortH"])
    assert metrics.cohort_entropy([[10, -7], [0, 10]]) == pytest.approx(
        1
    )  # privacy noise below 0 counts as 0
    assert metrics.cohort_entropy([5, 0]) == 0
    assert metrics.cohort_entropy([[0, 0], [0, 0]]) == 0


def test_traffic_in_megabytes() -> None:
    """An MLP 784-200-200-10; FedConcat's phases for LeNet-5 with 5 encoders, 100 clients, cohorts of 10."""
    mlp = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    ours = [mlp, metrics.megabytes(mlp), metrics.megabytes(mlp, transfers=2 * 10 * 150)]
    np.testing.assert_allclose(ours, VECTORS["comm_mlp"])
    lenet, encoder, head = 62_006, 61_156, 5 * 84 * 10 + 10
    phases = [
        metrics.megabytes(lenet, transfers=2 * 10 * 500),
        metrics.megabytes(lenet, transfers=2 * 10 * 480),
        metrics.megabytes(encoder, transfers=100 * 5),
        metrics.megabytes(head, transfers=2 * 10 * 500),
    ]
    np.testing.assert_allclose(phases, VECTORS["fedconcat_MB"])


def test_expected_pair_updates() -> None:
    """Settings of FedGWC's experiments (rounds, cohort, clients), and a large one."""
    settings_ = [
        (20_000, 10, 100),
        (3_000, 40, 400),
        (1_000, 10, 823),
        (2_000, 10, 2714),
        (1_000, 100, 10_000),
    ]
    ours = [metrics.expected_pair_updates(*setting) for setting in settings_]
    np.testing.assert_allclose(ours, VECTORS["gwc_coverage"])
    assert math.isnan(metrics.expected_pair_updates(10, 1, 1))


def test_binary_scores_of_the_published_case():
    """CAFA's Table II, case 1: all five IID clients found, and one of the fifteen others with them."""
    truth = np.arange(20) < 5
    scores = metrics.binary_scores(np.arange(20) < 6, truth)
    assert scores == pytest.approx({"accuracy": 0.95, "precision": 5 / 6, "recall": 1.0, "f1": 10 / 11})
    assert metrics.binary_scores(np.zeros(20), truth)["precision"] == 0
