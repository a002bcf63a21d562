"""FedLECC: clusters ranked by mean loss; from each of the top J the ceil(m / J) clients of highest loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.method import Method
from fedcohort.methods.fedlecc import FedLECC
from fedcohort.testing import play, tiny_task
from support.toy import profile_of, round_of, updates_of

CLUSTERS = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
LOSSES = torch.tensor([1, 0.8, 0.6, 2, 1, 0.7, 1.4, 1.2, 0.9, 0.5], dtype=torch.float64)
TEN = profile_of([[1, 1]] * 10)
NEVER = torch.full((10,), torch.inf)


def select(
    part: FedLECC, cohort: int, losses: torch.Tensor | None = LOSSES, **memory: torch.Tensor
) -> list[int]:
    memory = {"cluster": CLUSTERS, "loss": NEVER, **memory}
    return part.select(memory, round_of(TEN, cohort), losses).tolist()


@pytest.mark.parametrize(
    ("top", "cohort", "quota", "chosen"),
    [
        (2, 5, "fill", [3, 4, 6, 7, 8]),  # z = 3: both of cluster 1, three of cluster 3
        (2, 6, "fill", [3, 4, 6, 7, 8, 0]),  # one short: the next cluster in rank gives its worst
        (3, 4, "fill", [3, 4, 6, 7]),  # z = 2, and the walk stops at m
        (3, 4, "balanced", [3, 4, 6, 0]),  # quotas 2, 1, 1
        (4, 9, "fill", [3, 4, 6, 7, 8, 0, 1, 2, 5]),  # all but client 9
        (9, 3, "fill", [3, 6, 0]),  # J is capped at m: one each of the three worst clusters
    ],
)
def test_worked_example(top, cohort, quota, chosen):
    """Mean losses of the clusters are .8, 1.5, .7, 1, so they rank 1, 3, 0, 2."""
    assert select(FedLECC(clusters_per_round=top, quota=quota), cohort) == chosen


def test_by_default_as_many_clusters_as_clients_are_wanted():
    assert select(FedLECC(), 3) == [3, 6, 0]
    assert select(FedLECC(), 6) == [3, 4, 6, 7, 0, 1]  # J = 4 clusters, z = 2


def test_noise_is_a_cluster_or_does_not_train():
    """Client 5 is alone, and cluster 2 has mean .7: it is fourth of four, or is not there."""
    assert select(FedLECC(clusters_per_round=4), 10) == [3, 4, 6, 7, 8, 0, 1, 2, 5, 9]
    assert select(FedLECC(clusters_per_round=4, noise="drop"), 10) == [3, 4, 6, 7, 8, 9, 0, 1, 2]
    alone = torch.arange(10)
    assert select(FedLECC(noise="drop"), 2, cluster=alone) == select(FedLECC(), 2, cluster=alone) == [3, 6]


def test_pick_goes_back_to_the_top_clusters_when_the_others_are_used_up():
    """J = 1 of two clusters, m = 3: one short quota is z = 3 of cluster [7], then [4, 5]."""
    assert FedLECC().pick([[7], [4, 5]], 3, 1) == [7, 4, 5]
    assert FedLECC(quota="balanced").pick([[1, 2, 3, 4], [5]], 4, 2) == [1, 2, 5, 3]


def test_auto_takes_the_clusters_whose_labels_together_look_like_all():
    """Clusters a, b, c of two clients each, ranked in this order; m = 2.

    J = 1 trains both of a, labels (16, 4, 0); J = 2 one of a and one of b, labels (8, 2, 10). All hold
    (20, 14, 26): H² = 1 - (√(.8 x .3333) + √(.2 x .2333)) = .2676 and 1 - (√.1333 + √.0233 + √.2167) = .0166.
    """
    counts = np.array([[8, 2, 0], [8, 2, 0], [0, 0, 10], [4, 0, 6], [0, 5, 5], [0, 5, 5]])
    assert FedLECC().pick_alike([[0, 1], [2, 3], [4, 5]], 2, counts) == [0, 2]
    alone = np.array([[1, 1, 1], [1, 1, 1], [3, 0, 0], [3, 0, 0], [0, 3, 0], [0, 3, 0], [0, 0, 3], [0, 0, 3]])
    assert FedLECC().pick_alike([[0, 1], [2, 3], [4, 5], [6, 7]], 2, alone) == [
        0,
        1,
    ]  # J = 1 is just like all


def test_auto_prefers_more_clusters_when_labels_do_not_decide():
    same = np.full((6, 3), 5)
    ranked = [[0, 1], [2, 3], [4, 5]]
    assert FedLECC().pick_alike(ranked, 3, same) == FedLECC().pick(ranked, 3, 3) == [0, 2, 4]
    assert FedLECC().pick_alike([], 3, same) == []
    assert FedLECC().pick_alike([[0], [1]], 2, np.zeros((2, 3))) == [0, 1]  # noise may leave no label


def test_auto_runs_and_is_spelt_out():
    method = Method.parse("fedlecc(clusters_per_round='auto')")
    assert str(method) == "fedlecc(clusters_per_round='auto')"
    _, reports = play(method, tiny_task(), 2)
    assert all(len(report.answered) == 4 for report in reports)


def test_ties_fall_to_the_lowest_number():
    assert select(FedLECC(), 3, torch.ones(10)) == [0, 3, 5]


def test_differences_below_the_tolerance_are_ties():
    losses = torch.ones(10, dtype=torch.float64)
    losses[1] += 1e-14
    assert select(FedLECC(clusters_per_round=1), 2, losses) == [0, 1]


def test_a_loss_that_is_not_a_number_is_missing_not_highest():
    """Without client 3, cluster 1 has mean 1 (client 4), as cluster 3 has: the tie goes to client 4's."""
    losses = LOSSES.clone()
    losses[3] = torch.nan
    assert select(FedLECC(clusters_per_round=2), 4, losses) == [4, 6, 7, 0]
    assert select(FedLECC(), 3, torch.full((10,), torch.nan)) == []


def test_polling_asks_every_member_and_last_seen_asks_nobody():
    now = round_of(TEN, 3)
    assert FedLECC().candidates({}, now).tolist() == list(range(10))
    assert FedLECC(loss_source="last_seen").candidates({}, now) is None


def test_last_seen_starts_with_the_unseen_in_random_order():
    """All losses are infinite: the tie is drawn, so low numbers do not always go first."""
    part = FedLECC(loss_source="last_seen")
    firsts = set()
    for seed in range(30):
        now = round_of(replace(TEN, seed=seed), 2)
        firsts.add(int(part.select({"cluster": CLUSTERS, "loss": NEVER}, now, None)[0]))
    assert len(firsts) > 5


def test_last_seen_prefers_the_unseen_then_the_highest_loss():
    seen = LOSSES.clone()
    seen[8] = torch.inf
    chosen = select(FedLECC(loss_source="last_seen", clusters_per_round=1), 2, None, loss=seen)
    assert chosen == [8, 6]


def test_last_seen_remembers_the_mean_loss_of_the_steps():
    trace = torch.tensor([[1.0, 2.0], [3.0, torch.nan]])
    memory = {"cluster": CLUSTERS, "loss": NEVER}
    after = FedLECC(loss_source="last_seen").observe(memory, round_of(TEN, 2), updates_of([1, 4], trace))
    assert after["loss"][[1, 4]].tolist() == [1.5, 3.0]
    assert after["loss"][[0, 2, 3]].isinf().all()
    assert memory["loss"].isinf().all()  # a hook does not write into what it was given
    assert FedLECC().observe(memory, round_of(TEN, 2), updates_of([1, 4], trace)) is memory


@pytest.mark.parametrize("clustering", ["optics", "dbscan", "kmedoids"])
def test_clusters_are_those_of_the_label_counts(clustering):
    """Three clients of each of two kinds; whoever holds nothing is alone."""
    counts = [[90, 10, 0], [89, 11, 0], [91, 9, 0], [0, 10, 90], [0, 11, 89], [0, 9, 91], [0, 0, 0]]
    part = FedLECC(clustering=clustering, medoids=2)
    cluster = part.init_selector(profile_of(counts))["cluster"].tolist()
    assert cluster[0] == cluster[1] == cluster[2] != cluster[3] == cluster[4] == cluster[5]
    assert cluster[6] not in cluster[:6]


def test_both_sources_run_and_only_polling_pays_for_it():
    """A poll sends the model to everybody and a number back: 8 clients instead of 4 receive it."""
    polled, _ = play(Method.parse("fedlecc"), tiny_task(), 1)
    cheap, _ = play(Method.parse("fedlecc(loss_source='last_seen')"), tiny_task(), 1)
    assert polled.bytes_down == 2 * cheap.bytes_down
    assert polled.bytes_up - cheap.bytes_up == 8 * 8


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 8)),
    st.sampled_from(["fill", "balanced"]),
)
def test_pick_always_fills_the_cohort(sizes, cohort, top, quota):
    """Distinct clients, as many as wanted or all there are."""
    clients = iter(range(sum(sizes)))
    ranked = [[next(clients) for _ in range(size)] for size in sizes]
    chosen = FedLECC(quota=quota).pick(ranked, cohort, top)
    assert len(chosen) == len(set(chosen)) == min(cohort, sum(sizes))
    for cluster in ranked:  # inside a cluster always the worst first
        taken = [client in chosen for client in cluster]
        assert taken == sorted(taken, reverse=True)


def test_losses_alone_take_the_highest_of_all_and_ask_for_no_labels():
    """2, 1.4 and 1.2, of two clusters; a federation that withholds its counts is one cluster, too."""
    part, withheld = FedLECC(guide="losses"), replace(TEN, counts=None)
    memory = part.init_selector(withheld)
    assert part.uses() == {"losses"}
    assert part.select(memory, round_of(withheld, 3), LOSSES).tolist() == [3, 6, 7]


def test_clusters_alone_are_drawn_and_so_are_their_clients():
    """Of clusters of 3, 2, 1 and 4 clients each is first in a quarter of the rounds, and of the last each of
    its four clients is in a quarter of these; nobody is asked for a loss."""
    part = FedLECC(guide="clusters", clusters_per_round=1)
    memory = {"cluster": CLUSTERS, "loss": NEVER}
    assert part.uses() == {"counts"}
    assert part.candidates(memory, round_of(TEN, 1)) is None
    rounds = [part.select(memory, round_of(TEN, 1, number), None) for number in range(2000)]
    drawn = torch.cat(rounds).bincount(minlength=10) / 2000
    assert torch.zeros(4).index_add(0, CLUSTERS, drawn).tolist() == pytest.approx([0.25] * 4, abs=0.04)
    assert drawn[6:].tolist() == pytest.approx([0.0625] * 4, abs=0.025)


def test_clusters_alone_are_whole_clusters():
    """J = 2 and m = 4: two of each of two clusters, if they have so many."""
    part = FedLECC(guide="clusters", clusters_per_round=2)
    memory = {"cluster": torch.arange(10) // 5, "loss": NEVER}
    chosen = part.select(memory, round_of(TEN, 4), None)
    assert (chosen // 5).bincount().tolist() == [2, 2]


@pytest.mark.parametrize("clustering", ["optics", "dbscan", "kmedoids"])
def test_clusters_of_features_given_labels(clustering):
    """Six clients with the same labels; three see every feature four deviations higher."""
    key = torch.Generator().manual_seed(0)
    part = FedLECC(summary="P(X|y)", clustering=clustering, radius=0.5, medoids=2)
    y = torch.arange(40) % 2
    tables = [part.summarise(torch.randn(40, 5, generator=key) + 4 * (k // 3), y, 2) for k in range(6)]
    profile = replace(profile_of([[20, 20]] * 6), summaries={"fedlecc": torch.stack(tables)})
    assert part.uses() == {"summary", "losses"}
    assert part.init_selector(profile)["cluster"].tolist() == [0, 0, 0, 1, 1, 1]
    assert replace(part, summary="P(y)").init_selector(profile)["cluster"].unique().numel() == 1
