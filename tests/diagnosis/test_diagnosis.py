"""The diagnosis as a whole: its numbers, its JSON and its words."""

import json
from functools import cache

import numpy as np
import pytest

from fedcohort.core.method import Method
from fedcohort.diagnosis import Diagnosis, diagnose, verdict
from fedcohort.diagnosis.verdict import Divergence
from fedcohort.report.diagnosed import diagnosis_page
from fedcohort.stats import label_distances
from fedcohort.stats.clustering.remembered import forget
from fedcohort.stats.label_groups import Suggestion
from fedcohort.util.errors import UserError

A = np.array([[50, 30, 20], [10, 80, 10], [0, 20, 80], [100, 0, 0]])
B = np.array([np.roll(row, shift) for shift in range(3) for row in ([90, 5, 5], [88, 6, 6], [92, 4, 4])])
KEYS = {
    *(
        "clients",
        "classes",
        "samples",
        "client_names",
        "class_names",
        "smoothing",
        "size_imbalance",
        "coverage",
    ),
    *("wpsi", "psi", "psi_terms", "hellinger", "jensen_shannon", "emd_fedartml", "label_emd"),
    *("suggested_groups", "silhouettes", "verdict", "methods", "notes"),
}


def iid(size: int, clients: int = 40, classes: int = 10) -> np.ndarray:
    return np.random.default_rng(0).multinomial(size, [1 / classes] * classes, size=clients)


@cache
def by_luck(size: int) -> Diagnosis:
    """Of clients that differ by luck alone; a short search for groups is as good as a long one."""
    return diagnose(iid(size), max_groups=4)


def words(diagnosis: Diagnosis) -> tuple[str, str, str]:
    return diagnosis.verdict.skew, diagnosis.verdict.groups, diagnosis.verdict.advice


def test_json_has_the_promised_keys_and_numbers() -> None:
    table = json.loads(json.dumps(diagnose(A, clients=list("wxyz")).to_dict(), allow_nan=False))
    assert set(table) >= KEYS
    assert (table["clients"], table["classes"], table["samples"]) == (4, 3, 400)
    assert table["client_names"] == list("wxyz")
    assert table["class_names"] == ["0", "1", "2"]
    assert table["wpsi"] == pytest.approx(3.742190831763246)
    assert table["psi"] == pytest.approx(label_distances.psi(A).tolist())
    assert table["smoothing"] == {"kind": "eps", "amount": 1e-6}
    assert table["wpsi_laplace"] == pytest.approx(1.5846252714893894)
    assert len(table["verdict"]) == 3


def test_empty_clients_are_null_in_input_order_and_counted() -> None:
    table = diagnose(np.insert(A, 1, 0, axis=0)).to_dict()
    assert table["empty_clients"] == 1
    assert table["clients"] == 5
    assert table["psi"][1] is None
    assert table["psi_terms"][1] == [None] * 3
    assert table["suggested_groups"]["fedlecc"]["labels"][1] is None
    assert table["wpsi"] == pytest.approx(3.742190831763246)
    assert any("without samples" in note and "1" in note for note in table["notes"])


def test_smoothing_is_used_and_recorded() -> None:
    diagnosis = diagnose(A, smoothing="laplace")
    assert diagnosis.wpsi == pytest.approx(1.5846252714893894)
    assert diagnosis.to_dict()["smoothing"] == {"kind": "laplace", "amount": 0.5}


def test_same_seed_same_diagnosis() -> None:
    counts = iid(30, clients=12)
    first = diagnose(counts, seed=5).to_dict()
    forget()  # else the groups are those of before
    assert diagnose(counts, seed=5).to_dict() == first


def test_chance_agrees_with_theory_when_samples_are_large() -> None:
    """Under IID sampling WPSI is near (C-1)(K-1)/N, here 9 * 39 / 80 000."""
    assert by_luck(2000).wpsi_by_chance == pytest.approx(9 * 39 / 80_000, rel=0.1)


def test_near_iid_gets_plain_fedavg() -> None:
    diagnosis = by_luck(500)
    skew, groups, advice = words(diagnosis)
    assert diagnosis.verdict.level == "little"
    assert skew.startswith("Little label skew")
    assert "groups of chance" in groups
    assert "plain fedavg" in advice


def test_small_but_real_differences_are_not_called_chance() -> None:
    """Shares 0.55 and 0.45 of 100 000 samples: WPSI 0.01, five hundred times what chance gives."""
    diagnosis = diagnose([[55_000, 45_000], [45_000, 55_000]] * 3)
    assert diagnosis.verdict.level == "little"
    assert "more than chance" in diagnosis.verdict.groups


def test_small_clients_are_not_called_skewed_by_luck() -> None:
    """Five samples of ten classes: WPSI is about 7, and it would be without any skew."""
    diagnosis = by_luck(5)
    assert diagnosis.wpsi > 5
    assert diagnosis.verdict.level == "little"
    assert "so small" in diagnosis.verdict.skew


def test_small_clients_of_one_class_are_skewed_all_the_same() -> None:
    counts = 5 * np.eye(10, dtype=int).repeat(4, axis=0)
    assert diagnose(counts, max_groups=4).verdict.level == "strong"


def test_clear_groups_get_one_model_each() -> None:
    counts = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
    skew, groups, advice = words(diagnose(counts, classes=["cat", "dog", "cow"]))
    assert skew.startswith("Strong")
    assert "3 groups" in groups
    assert "4 clients, more 'cat'" in groups
    assert "one model per group (clust_psi_pfl)" in advice


def test_groups_that_psi_cannot_see_are_not_left_to_it() -> None:
    _, groups, advice = words(diagnose(B))
    assert "differently" in groups
    assert "ifca, fedgwc, or clust_psi_pfl with signed features" in advice


def test_few_clients_are_not_told_to_choose_among_themselves() -> None:
    """Four hospitals in two pairs, heart disease: signed features find three against one as unsigned ones do,
    fedgwc forms no group of two, and all hospitals can take part in every round."""
    hospitals = [[131, 111], [150, 85], [6, 92], [41, 119]]
    _, groups, advice = words(diagnose(hospitals))
    assert groups.startswith("2 groups stand out")
    assert advice.startswith(
        "Compare one model per group (ifca) with one for all (fedavg), because groups of one"
    )
    assert "; with only 4 clients, let all of them take part in every round;" in advice


def test_models_of_ones_own_are_advised_where_clients_have_the_samples() -> None:
    """Half of the clients have 30 samples or more, or 29; groups of one or two clients are no base."""
    own = "; where clients may have models of their own, compare {}+finetune and local_only too (half of "
    alone = np.diag([30, 30, 30, 29, 29])
    assert words(diagnose(alone))[2].endswith(own.format("fedavg") + "them have 30 samples or more).")
    assert "finetune" not in words(diagnose(np.diag([30, 30, 29, 29, 29])))[2]
    grouped = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
    assert own.format("clust_psi_pfl") in words(diagnose(grouped))[2]
    assert own.format("ifca") in words(diagnose(B))[2]
    small = [[131, 111], [150, 85], [6, 92], [41, 119]]
    assert own.format("fedavg") in words(diagnose(small))[2]


def test_the_methods_that_a_verdict_names_are_methods() -> None:
    """And each of them stands in its advice, but for fedavg, to which others are compared."""
    grouped = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
    expected = {
        ("fedavg", "clust_psi_pfl", "fedlecc", "fedentopt", "clust_psi_pfl+finetune", "local_only"): grouped,
        ("fedavg", "ifca", "fedavg+finetune", "local_only"): [[131, 111], [150, 85], [6, 92], [41, 119]],
        ("fedavg", "fedprox", "scaffold", "fedlc"): np.diag([30, 30, 29, 29, 29]),
    }
    verdicts = {methods: diagnose(counts).verdict for methods, counts in expected.items()}
    lucky = {("fedavg", "fedavg+finetune"): by_luck(40).verdict, ("fedavg",): by_luck(5).verdict}
    for methods, found in (verdicts | lucky).items():
        assert found.methods == methods
        for name in methods[1:]:
            Method.parse(name)
            assert name in found.advice
    signed = diagnose(B).verdict.methods
    assert signed[:4] == ("fedavg", "ifca", "fedgwc", "clust_psi_pfl(signed=true)")
    assert str(Method.parse(signed[3])) == "clust_psi_pfl(signed=True)"


def test_where_labels_are_alike_tuning_shows_what_features_do() -> None:
    for size, shown in ((40, True), (5, False)):
        advice = words(by_luck(size))[2]
        assert advice.startswith("Train one model with plain fedavg")
        assert ("fedavg+finetune shows whether they do" in advice) == shown


def test_a_rare_class_at_one_client_is_neither_skew_nor_a_group() -> None:
    """WPSI is 0.120 because three clients lack 1.5 % of the samples; half a sample each makes it 0.033."""
    rare = [[100, 100, 12], [100, 100, 0], [100, 100, 0], [100, 100, 0]]
    diagnosis = diagnose(rare)
    assert diagnosis.wpsi == pytest.approx(0.120, abs=5e-4)
    assert diagnosis.verdict.level == "little"
    assert "is 0.12 where" in diagnosis.verdict.skew
    assert (
        "with half a sample added to every count it is 0.0331 where chance gives 0.0069"
        in diagnosis.verdict.skew
    )
    assert "too little to part them" in diagnosis.verdict.groups


def test_one_client_beside_all_others_is_no_grouping() -> None:
    diagnosis = diagnose([[50, 50]] * 5 + [[99, 1]])
    assert diagnosis.verdict.level != "little"
    assert diagnosis.suggestions[0].sizes == [5, 1]
    assert diagnosis.verdict.groups.startswith("No clear groups of several clients")


def test_what_is_a_little_more_than_chance_is_not_called_unproven() -> None:
    """WPSI above 0.1, but by less than 0.1 above chance, which never reaches it."""
    diagnosis = diagnose([[19, 23, 16], [10, 15, 34], [7, 13, 39]])
    assert diagnosis.wpsi_by_chance < 0.1 < diagnosis.wpsi < 0.1 + diagnosis.wpsi_by_chance
    assert diagnosis.verdict.skew.startswith("Little label skew: about")
    assert "more than chance" in diagnosis.verdict.groups


def test_skew_without_groups_gets_selection() -> None:
    random = np.random.default_rng(0)
    counts = np.array([random.multinomial(600, random.dirichlet([0.3] * 10)) for _ in range(60)])
    _, groups, advice = words(diagnose(counts, max_groups=6))
    assert groups.startswith("No clear groups")
    assert "fedentopt" in advice


@pytest.mark.parametrize(("share", "level"), [(0.5, "little"), (0.66, "moderate"), (0.8, "strong")])
def test_bands(share: float, level: str) -> None:
    """Half the clients hold ``s`` of class 0, half 1-s: each PSI against the pool of 1/2 is
    (s - 1/2) ln(s / (1 - s)), which is 0, 0.106 and 0.416 here."""
    size = 100_000
    one = round(share * size)
    diagnosis = diagnose([[one, size - one], [size - one, one]] * 3)
    expected = (share - 0.5) * np.log(share / (1 - share))
    assert diagnosis.wpsi == pytest.approx(expected, abs=1e-4)
    assert diagnosis.verdict.level == level


def test_notes_name_absent_and_lonely_classes() -> None:
    notes = diagnose([[5, 5, 0, 1], [5, 9, 0, 0]], classes=["a", "b", "c", "d"]).verdict.notes
    assert any("no client holds: c" in note for note in notes)
    assert any("single client: d" in note for note in notes)


def test_pairs_without_a_sample_are_those_of_clients_and_classes_that_have_some() -> None:
    """One of four; an empty client and an absent class make no pairs."""
    notes = diagnose([[5, 5, 0], [5, 0, 0], [0, 0, 0]]).verdict.notes
    assert any(note.startswith("25% of client-class pairs") for note in notes)


def test_every_verdict_is_three_sentences() -> None:
    for diagnosis in (diagnose(A), diagnose(B), by_luck(5), by_luck(500)):
        for sentence in words(diagnosis):
            assert sentence.endswith(".")
            assert ". " not in sentence


def test_clearest_needs_few_groups_and_a_good_silhouette() -> None:
    suggestions = diagnose(B).suggestions
    assert verdict.clearest(suggestions) is suggestions[1]
    assert verdict.clearest(suggestions[:1]) is None
    mostly_alone = Suggestion("any", "any rule", np.array([0, 0, 1, 2]), 0.9, 0.9)
    assert verdict.clearest([mostly_alone]) is None


@pytest.mark.parametrize(
    ("wpsi", "chance", "level"),
    [
        (7.6, [7.0, 7.0, 7.7], "little"),  # 0.37 above the mean, and yet within what chance reaches
        (7.3, [7.15, 7.2], "moderate"),  # the bands apply to the excess, 0.125
        (7.6, [7.15, 7.2], "strong"),
        (0.09, [0.001, 0.002], "little"),
    ],
)
def test_levels_are_relative_to_chance(wpsi: float, chance: list[float], level: str) -> None:
    assert Divergence(wpsi, np.array(chance)).level == level


@pytest.mark.parametrize(
    ("counts", "names", "message"),
    [
        ([[1, 2], [0, 0]], {}, "two clients"),
        ([[1], [2]], {}, "one class"),
        ([[1, 2], [2, 1]], {"clients": ["a"]}, "1 names for 2 clients"),
        ([[1, 2], [2, 1]], {"classes": ["a", "b", "c"]}, "3 names for 2 classes"),
    ],
)
def test_mistakes_are_named(counts: list, names: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        diagnose(counts, **names)


def test_iid_clients_are_told_apart_where_it_is_known_who_they_are():
    """Five even clients, and two pairs of one-sided ones: CAFA's largest cluster is the even ones."""
    even = [[50, 50, 50], [51, 49, 50], [49, 51, 50], [50, 49, 51], [50, 51, 49]]
    counts = np.array([*even, *[[90, 5, 5]] * 2, *[[5, 5, 90]] * 2])
    found = diagnose(counts, iid=np.arange(9) < 5)
    assert found.iid == {"clusters": 3, "found": 5, "accuracy": 1, "precision": 1, "recall": 1, "f1": 1}
    assert found.to_dict()["iid"]["recall"] == 1
    assert diagnose(counts, iid=np.arange(9) < 4).iid["precision"] == pytest.approx(0.8)
    assert "iid" not in diagnose(counts).to_dict()


def test_silhouettes_say_how_many_groups_there_are() -> None:
    """Three kinds of clients, as data and as a chart whose large point is the number that wins."""
    found = diagnose(np.repeat([[9, 0, 0], [0, 6, 4], [3, 4, 3]], 3, axis=0))
    curve = found.to_dict()["silhouettes"]
    assert list(curve) == ["clust_psi_pfl", "cafa"]
    assert curve["cafa"]["groups"] == [2, 3]
    assert curve["cafa"]["silhouette"][1] == pytest.approx(1)
    assert max(curve["clust_psi_pfl"]["silhouette"]) == pytest.approx(found.suggestions[0].silhouette)
    (tab,) = diagnosis_page(found).tabs
    (card,) = [card for card in tab.cards if card.title == "How many groups"]
    assert card.sentences == ["Best number of groups by clust_psi_pfl: 3 of up to 3, by cafa: 3 of up to 3."]
    assert card.figure is not None
    assert [trace.name for trace in card.figure.data] == ["clust_psi_pfl", "cafa"]
    assert card.figure.data[1].marker.size == (4, 11)


def test_two_clients_have_no_number_of_groups_to_choose() -> None:
    found = diagnose([[9, 0], [0, 9]])
    assert found.to_dict()["silhouettes"] == {}
    (tab,) = diagnosis_page(found).tabs
    assert "How many groups" not in [card.title for card in tab.cards]
