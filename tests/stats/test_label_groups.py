"""The two readings of who belongs together."""

import json

import numpy as np
import pytest

from fedcohort.stats import label_groups
from fedcohort.stats.clustering import kmeans_by_silhouette
from fedcohort.stats.label_groups import psi_features, share_silhouettes, standardise, suggest_groups
from support import REPOSITORY

VECTORS = json.loads((REPOSITORY / "tests/reference_vectors.json").read_text())
A = np.array([[50, 30, 20], [10, 80, 10], [0, 20, 80], [100, 0, 0]])
B = np.array([np.roll(row, shift) for shift in range(3) for row in ([90, 5, 5], [88, 6, 6], [92, 4, 4])])
DUPLICATES = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
BY_SEVERITY = [0, 1, 2] * 3
BY_CLASS = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_features_of_partition_a() -> None:
    np.testing.assert_allclose(standardise(psi_features(A)).features, VECTORS["psi_A_z"], rtol=1e-9)


def test_a_new_client_can_join_the_scaled_features() -> None:
    features = psi_features(A)
    scaled = standardise(features)
    np.testing.assert_allclose((features[2] - scaled.mean) / scaled.sd, scaled.features[2])


def test_constant_columns_stay_at_zero() -> None:
    """0.1 is no binary fraction: its deviation is rounding noise that must not be blown up to 1."""
    for features in (np.full((3, 2), 0.1), psi_features([[1, 2], [10, 20], [3, 6]])):
        np.testing.assert_allclose(standardise(features).features, 0.0, atol=1e-15)


def test_smallest_number_of_groups_wins_a_tie() -> None:
    """Three distinct kinds of clients: 3 groups and all larger numbers score 1."""
    choice = kmeans_by_silhouette(standardise(psi_features(DUPLICATES)).features, None, seed=0)
    two, three, more = VECTORS["dup_sil"]
    assert choice.scores == pytest.approx(
        {2: two, 3: three}
    )  # more groups than kinds repeat the same grouping
    assert three == more
    assert choice.k == 3
    assert choice.labels.tolist() == [0] * 4 + [1] * 3 + [2] * 3


@pytest.mark.parametrize("seed", range(3))
def test_unsigned_features_group_by_severity_and_signed_ones_by_class(seed: int) -> None:
    unsigned = kmeans_by_silhouette(standardise(psi_features(B)).features, None, seed)
    assert [unsigned.scores[2], unsigned.scores[3]] == pytest.approx(VECTORS["B_sil23"])
    assert unsigned.labels.tolist() == BY_SEVERITY
    signed = kmeans_by_silhouette(standardise(psi_features(B, signed=True)).features, None, seed)
    assert signed.scores[3] == pytest.approx(VECTORS["B_signed_sil3"])
    assert signed.labels.tolist() == BY_CLASS


def test_both_readings_side_by_side() -> None:
    """Hellinger space tells that the PSI groups of B mix classes, although their own silhouette is fine."""
    by_psi, by_density = suggest_groups(B, seed=0, max_groups=None)
    assert (by_psi.reading, by_density.reading) == ("clust_psi_pfl", "fedlecc")
    assert by_psi.labels.tolist() == BY_SEVERITY
    assert by_psi.silhouette == pytest.approx(VECTORS["B_sil23"][1])
    assert by_psi.label_silhouette < 0
    assert by_density.labels.tolist() == BY_CLASS
    assert by_density.label_silhouette > 0.9
    assert by_density.sizes == [3, 3, 3]


def test_empty_clients_belong_to_no_group() -> None:
    with_empty = np.vstack([np.zeros((1, 3)), B])
    for suggestion, plain in zip(
        suggest_groups(with_empty, 0, None), suggest_groups(B, 0, None), strict=True
    ):
        assert suggestion.labels[0] == -1
        assert suggestion.labels[1:].tolist() == plain.labels.tolist()
        assert sum(suggestion.sizes) == len(B)


def test_a_sample_is_named_in_very_large_federations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_groups, "EXACT", 5)
    assert suggest_groups(B, 0, None)[1].rule.endswith("of a sample of 5 clients")


def test_the_silhouette_of_every_number_of_groups_is_kept() -> None:
    by_psi, by_density = suggest_groups(DUPLICATES, 0, None)
    assert by_psi.tried == pytest.approx(dict(zip((2, 3), VECTORS["dup_sil"], strict=False)))
    assert by_density.tried == {}
    assert list(suggest_groups(B, 0, 4)[0].tried) == [2, 3, 4]


def test_cafas_silhouettes_are_of_label_shares() -> None:
    """Kinds a = (1, 0, 0), b = (0, .6, .4), c = (.3, .4, .3), of which b and c are nearest.

    Two groups: a's are 1; with |bc| = .37417 a b or c lies 3/5 |bc| = .22450 from its group, and |ab| =
    1.23288, |ac| = .86023 from the other: (4 + 3 (1 - .22450 / 1.23288) + 3 (1 - .22450 / .86023)) / 10.
    """
    assert share_silhouettes(DUPLICATES, 0, None) == pytest.approx({2: 0.86708, 3: 1.0}, abs=1e-5)
    sizes = np.arange(1, 11)[:, None]  # shares do not know them
    assert share_silhouettes(DUPLICATES * sizes, 0, None) == pytest.approx({2: 0.86708, 3: 1.0}, abs=1e-5)
    with_empty = np.vstack([np.zeros((1, 3)), DUPLICATES])
    assert share_silhouettes(with_empty, 0, None) == share_silhouettes(DUPLICATES, 0, None)


def test_large_federations_are_not_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_groups, "SAMPLE", 9)
    assert share_silhouettes(DUPLICATES, 0, None) == {}
