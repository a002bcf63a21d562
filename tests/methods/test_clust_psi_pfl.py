"""Clust-PSI-PFL: K-means on standardised PSI terms, as many groups as the silhouette likes, a model each."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.methods.clust_psi_pfl import ClustPsiPfl
from fedcohort.stats.clustering import kmeans_by_silhouette
from fedcohort.stats.label_groups import psi_features, side_by_side, standardise
from fedcohort.testing import play
from fedcohort.util.errors import UserError
from support.toy import profile_of

A = np.array([[50, 30, 20], [10, 80, 10], [0, 20, 80], [100, 0, 0]])
B = np.array([np.roll(row, turn) for turn in range(3) for row in ([90, 5, 5], [88, 6, 6], [92, 4, 4])])
TIED = np.array([[100, 0, 0]] * 4 + [[0, 60, 40]] * 3 + [[30, 40, 30]] * 3)
BY_CLASS = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_features_of_partition_a():
    """P = (.4, .325, .275). A missing class adds P ln(P / eps): for client 2, .4 ln(.4 / 1e-6) = 5.1597."""
    features = psi_features(A)
    assert features[:, 0] == pytest.approx([0.04819929, 1.02078785, 5.78099224, 8.11878394])
    assert features[2, 1:] == pytest.approx([5.15968893, 0.06068824, 0.56061508])
    assert features[3, 1:] == pytest.approx([0.54977354, 4.12476465, 3.44424575])
    z = standardise(features).features
    assert z[0] == pytest.approx([-1.10921567, -0.72104135, -0.66849679, -0.73646963])


def test_partition_a_groups():
    """The silhouette prefers {0, 1}, {2}, {3}: 0 and 1 deviate little, 2 and 3 each in its way."""
    choice = kmeans_by_silhouette(standardise(psi_features(A)).features, None, 0)
    assert choice.scores[3] > choice.scores[2]
    assert ClustPsiPfl().groups_of(A, 0).tolist() == [0, 0, 1, 2]


def test_the_papers_features_group_by_severity():
    """Nine clients, three dominated by each class. Terms do not tell too many of a class from too few,

    so the groups are {0, 3, 6}, {1, 4, 7}, {2, 5, 8}: equally skewed, each mixing all three classes.
    """
    choice = kmeans_by_silhouette(standardise(psi_features(B)).features, None, 0)
    assert choice.scores[2] == pytest.approx(0.577558943457376)
    assert choice.scores[3] == pytest.approx(0.5884172898656241)
    assert ClustPsiPfl().groups_of(B, 0).tolist() == [0, 1, 2] * 3


def test_signed_features_group_by_class():
    choice = kmeans_by_silhouette(standardise(psi_features(B, signed=True)).features, None, 0)
    assert choice.scores[3] == pytest.approx(0.4987270748120081)
    assert ClustPsiPfl(signed=True).groups_of(B, 0).tolist() == BY_CLASS


def test_tied_silhouettes_go_to_the_fewest_groups():
    """Three kinds of identical clients: s(2) = .687, and from three groups on s = 1; three it is."""
    features = psi_features(TIED)
    assert features[[0, 4, 7], 0] == pytest.approx([6.720792428126358, 6.750430785864603, 0.1540868488433037])
    choice = kmeans_by_silhouette(standardise(features).features, None, 0)
    assert choice.scores[2] == pytest.approx(0.6872497923267262)
    assert choice.scores[3] == pytest.approx(1.0)
    assert ClustPsiPfl().groups_of(TIED, 0).tolist() == [0] * 4 + [1] * 3 + [2] * 3


def test_the_most_groups_tried():
    assert ClustPsiPfl(max_groups=2).groups_of(TIED, 0).max() == 1


@pytest.mark.parametrize("clients", [1, 2, 6])
def test_identical_clients_are_one_group(clients):
    assert ClustPsiPfl().groups_of(np.array([[30, 20, 10]] * clients), 0).tolist() == [0] * clients


def test_an_empty_client_is_served_by_the_largest_group():
    counts = np.insert(TIED, 5, 0, axis=0)
    group = ClustPsiPfl().init_grouping(profile_of(counts))["group"].tolist()
    assert group == [0, 0, 0, 0, 1, 0, 1, 1, 2, 2, 2]


def test_the_gate_knows_chance():
    """IID sampling gives a WPSI of about (C-1)(K-1)/N: .0178 for ten classes and 100 clients of 500."""
    iid = np.random.default_rng(0).multinomial(500, [0.1] * 10, size=100)
    assert ClustPsiPfl().is_stable(iid)
    assert not ClustPsiPfl().is_stable(B)
    small = np.random.default_rng(0).multinomial(
        12, [0.25] * 4, size=40
    )  # chance alone: .24, above the usual .1
    assert ClustPsiPfl(smoothing="laplace").is_stable(small)


def test_the_paper_splits_iid_clients_and_the_gate_does_not():
    iid = np.random.default_rng(0).multinomial(500, [0.1] * 10, size=30)
    assert ClustPsiPfl().groups_of(iid, 0).max() >= 1
    assert ClustPsiPfl(gate=True).groups_of(iid, 0).max() == 0


def federation_of(counts: np.ndarray) -> Federation:
    """Random examples with these label counts."""
    owner, label = (np.repeat(index, counts.ravel()) for index in np.indices(counts.shape).reshape(2, -1))
    x = torch.randn(len(owner), 3, generator=torch.Generator().manual_seed(0))
    rows = [np.flatnonzero(owner == client) for client in range(len(counts))]
    split = Split.of(x, torch.from_numpy(label), rows)
    names = tuple(str(client) for client in range(len(counts)))
    return Federation(split, split, split, tuple("abc"), names, None, {})


def test_gated_on_iid_clients_it_is_fedavg_bit_for_bit():
    task = Task.of(federation_of(np.full((6, 3), 8)), "logistic", cohort=3)
    ours, _ = play(Method.parse("clust_psi_pfl(gate=True)"), task, 3)
    theirs, _ = play(Method.parse("fedavg"), task, 3)
    assert len(ours.groups) == 1
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


def test_each_group_is_its_own_fedavg():
    """Group 1's model is what FedAvg would make of its clients alone, all of them training."""
    counts = TIED // 5
    ours, _ = play(Method.parse("clust_psi_pfl"), Task.of(federation_of(counts), "logistic", cohort=1.0), 2)
    alone = counts.copy()
    alone[[0, 1, 2, 3, 7, 8, 9]] = 0
    full, part = federation_of(counts), federation_of(alone)
    x = torch.cat([full.train.x[full.train.rows(client)] for client in (4, 5, 6)])
    same = Split(x, part.train.y, part.train.index, part.train.offsets)
    task = Task.of(Federation(same, same, same, part.classes, part.clients, None, {}), "logistic", cohort=1.0)
    theirs, _ = play(Method.parse("fedavg"), task, 2)
    torch.testing.assert_close(ours.groups[1].weights.params, theirs.groups[0].weights.params)


def shifted_federation(shift: float = 1.5) -> Federation:
    """Ten clients with the same labels; the examples of the last four lie ``shift`` higher."""
    federation = federation_of(np.full((10, 3), 20))
    x, high = federation.train.x.clone(), [federation.train.rows(client) for client in range(6, 10)]
    x[torch.cat(high)] += shift
    split = Split(x, federation.train.y, federation.train.index, federation.train.offsets)
    return Federation(split, split, split, federation.classes, federation.clients, None, {})


def test_attributes_tell_clients_apart_that_labels_cannot():
    task = Task.of(shifted_federation(), "logistic", cohort=5)
    for text, groups in (("clust_psi_pfl", [0] * 10), ("clust_psi_pfl(features=4)", [0] * 6 + [1] * 4)):
        state, _ = play(Method.parse(text), task, 0)
        assert state.grouping["group"].tolist() == groups


def test_the_gate_looks_at_attributes_too():
    part = "clust_psi_pfl(features=4, gate=True)"
    same, other = (
        play(Method.parse(part), Task.of(shifted_federation(shift), "logistic"), 0)[0] for shift in (0, 2)
    )
    assert len(same.groups) == 1
    assert len(other.groups) > 1


def test_bins_are_quantiles_of_a_standard_normal_and_an_example_weighs_one():
    """Quartiles at -.6745, 0 and .6745, a bound belongs to the bin below; two attributes weigh half each."""
    table = ClustPsiPfl(features=4).summarise(torch.tensor([[-1.0, 0.0], [0.5, 9.0]]), torch.zeros(2), 2)
    assert table.tolist() == [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]]
    assert table.sum() == 2


def test_the_summary_is_paid_for_and_withheld_with_the_counts():
    """3 classes and 3 attributes of 4 bins, 8 bytes each, from ten clients, beside five numbers of each."""
    task = Task.of(shifted_federation(), "logistic", cohort=5)
    method = Method.parse("clust_psi_pfl(features=4)")
    assert play(method, task, 0)[0].bytes_up == 10 * 8 * (5 + 3 + 3 * 4)
    assert play(Method.parse("clust_psi_pfl"), task, 0)[0].bytes_up == 10 * 8 * (5 + 3)
    with pytest.raises(UserError, match="clust_psi_pfl needs"):
        play(method, replace(task, privacy=Privacy("withheld")), 0)
    with pytest.raises(UserError, match="features=1 is one bin for all"):
        play(Method.parse("clust_psi_pfl(features=1)"), task, 0)


def test_two_parts_can_each_have_their_summary():
    task = Task.of(shifted_federation(), "logistic", cohort=5)
    profile = task.profile(Method.parse("haccs(summary='P(X|y)')+clust_psi_pfl(features=4)"))
    assert {name: tuple(table.shape) for name, table in profile.summaries.items()} == {
        "haccs": (10, 3, 20),
        "clust_psi_pfl": (10, 3, 4),
    }


def test_quantity_groups_by_size():
    """Six clients with the same shares, three of them ten times as large."""
    counts = np.array([[30, 20, 10]] * 3 + [[300, 200, 100]] * 3)
    assert ClustPsiPfl().groups_of(counts, 0).tolist() == [0] * 6
    assert ClustPsiPfl(quantity=True).groups_of(counts, 0).tolist() == [0] * 3 + [1] * 3


def test_kinds_of_features_weigh_the_same():
    """Ten columns of one kind have together the variance of the one column of the other: 1."""
    random = np.random.default_rng(0)
    wide, narrow = random.normal(size=(50, 10)), random.normal(size=(50, 1))
    both = side_by_side(wide, narrow)
    assert both[:, :10].var(axis=0).sum() == pytest.approx(1)
    assert both[:, 10].var() == pytest.approx(1)
    assert side_by_side(wide) == pytest.approx(standardise(wide).features)


def test_newcomers_are_placed_by_the_centre_of_a_group():
    """One like a member of a group whose members are all alike is no way off its centre, however many."""
    part = ClustPsiPfl()
    group = torch.from_numpy(part.groups_of(TIED, 0))
    distances = part.place(group, torch.from_numpy(TIED), torch.from_numpy(TIED[[0, 4, 7]]))
    assert distances is not None
    assert distances.diagonal().tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    assert (distances + torch.eye(3)).min() > 0.5


@pytest.mark.parametrize(("sampling", "trained"), [("all", 1), ("group", 3)])
def test_a_cohort_of_everybody_or_of_each_group(sampling, trained):
    """One of ten clients, or of groups of four, three and three as many as one each."""
    task = Task.of(federation_of(TIED), "logistic", cohort=1)
    state, (report,) = play(Method.parse(f"clust_psi_pfl(sampling='{sampling}')"), task, 1)
    assert len(state.groups) == 3
    assert len(report.selected) == trained


def test_each_group_draws_from_its_members_and_learns_of_them_alone():
    """All of ten train, everyone for its own group, whose selector remembers the losses of its members."""
    task = Task.of(federation_of(TIED), "logistic", cohort=10)
    method = Method.parse("clust_psi_pfl(sampling='group')+fedlecc(loss_source='last_seen')")
    state, (report,) = play(method, task, 1)
    assert sorted(report.selected.tolist()) == list(range(10))
    for number, group in enumerate(state.groups):
        known = group.selector["loss"].isfinite()
        assert known.equal(state.grouping["group"] == number)
