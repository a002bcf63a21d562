"""HACCS: clusters drawn by theta = rho (1 - latency / slowest) + (1 - rho) loss share; the quickest client
trains."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcohort.core.latency import latencies
from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.methods.haccs import HACCS, cluster_means
from fedcohort.stats.histograms import BINS, histogram_distances
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import profile_of, round_of, updates_of

LATENCY = torch.tensor([2, 4, 10, 6, 8, 4], dtype=torch.float64)
LOSS = torch.tensor([1, 0.6, 2, 1, 1.5, 0.4], dtype=torch.float64)
CLUSTERS = torch.tensor([0, 0, 1, 1, 1, 2])
SIX = profile_of([[1, 1]] * 6)
MEMORY = {"cluster": CLUSTERS, "latency": LATENCY, "loss": torch.full((6,), torch.nan)}


@pytest.mark.parametrize(
    ("rho", "odds"),
    [(0.5, (0.433551198, 0.261437908, 0.305010893)), (0.95, (0.543968549, 0.024829299, 0.431202152))],
)
def test_odds(rho, odds):
    """Mean latencies 3, 8, 4: tau = .625, 0, .5. Mean losses .8, 1.5, .4 of 2.7.

    rho = .5: theta = (.3125 + .148148, .277778, .25 + .074074), which sums to 1.0625.
    """
    theta = HACCS(rho=rho).odds(torch.tensor([3.0, 8, 4]).double(), torch.tensor([0.8, 1.5, 0.4]).double())
    assert (theta / theta.sum()).tolist() == pytest.approx(odds, abs=1e-8)


def test_a_cluster_that_is_used_up_is_drawn_no_more():
    """All weight on the cluster of one client: the others follow, and everybody is chosen once."""
    for seed in range(5):
        key = torch.Generator().manual_seed(seed)
        assert HACCS().draw(torch.tensor([1, 2]), torch.tensor([1.0, 0.0]), 3, key) == [0, 1, 1]


def test_quasi_random_gives_each_cluster_its_whole_share_first():
    """theta shares .5, .3, .2 of four clients: 2, 1 and 0 are certain, the last one is drawn."""
    for seed in range(20):
        key = torch.Generator().manual_seed(seed)
        odds = torch.tensor([0.5, 0.3, 0.2])
        drawn = HACCS(quasi_random=True).draw(torch.tensor([3, 2, 1]), odds, 4, key)
        assert drawn[:3] == [0, 0, 1]
        assert drawn[3] in (0, 1, 2)


def test_each_draw_takes_the_quickest_client_that_is_left():
    """Cluster 1 has clients 2, 3, 4 of latency 10, 6, 8; cluster 0 clients 0, 1 of latency 2, 4."""

    class Drawn(HACCS):
        def draw(self, *_):
            return [1, 0, 1]

    assert Drawn().select(MEMORY, round_of(SIX, 3), LOSS).tolist() == [3, 0, 4]


def test_select_uses_polled_losses():
    """rho = 0 and all loss in cluster 2: its only client is always first."""
    losses = torch.zeros(6)
    losses[5] = 1.0
    for number in range(5):
        assert int(HACCS(rho=0).select(MEMORY, round_of(SIX, 1, number), losses)) == 5


def test_before_any_loss_is_known_all_clusters_have_the_same():
    odds = HACCS(rho=0).odds(torch.tensor([3.0, 8, 4]), torch.full((3,), torch.nan))
    assert odds.tolist() == pytest.approx([1 / 3] * 3)
    part = HACCS(loss_source="last_seen")
    assert part.candidates(MEMORY, round_of(SIX, 2)) is None
    after = part.observe(MEMORY, round_of(SIX, 2), updates_of([1], torch.tensor([[1.0, 3.0]])))
    assert after["loss"][1] == 2


def test_a_cluster_is_known_by_the_mean_of_its_clients():
    """Losses 1 and 3 in cluster 0, 5 in cluster 1, none in cluster 2: a large cluster is no worse served."""
    means = cluster_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 3)
    assert means.tolist() == pytest.approx([2.0, 5.0, torch.nan], nan_ok=True)


def test_degenerate_odds_are_even():
    """rho = 1 and equal latencies, or losses of zero."""
    same = torch.full((3,), 2.0)
    assert HACCS(rho=1).odds(same, same).tolist() == pytest.approx([1 / 3] * 3)
    assert HACCS(rho=0).odds(same, torch.zeros(3)).tolist() == pytest.approx([1 / 3] * 3)
    assert HACCS().odds(torch.zeros(3), same).tolist() == pytest.approx([1 / 6] * 3)


def test_speeds():
    """Of 20 clients of one step each and transfer 1: 12 take 2, four 4, three 8, one 16."""
    profile = profile_of([[1, 1]] * 20)
    latency = latencies(profile, 1)
    assert sorted(latency.tolist()) == [2.0] * 12 + [4.0] * 4 + [8.0] * 3 + [16.0]
    assert latency.equal(latencies(profile, 1))
    assert latencies(profile, 0, varied=False).tolist() == [1.0] * 20


def test_clusters_by_label_and_noise_alone():
    counts = [[90, 10, 0], [89, 11, 0], [91, 9, 0], [0, 10, 90], [0, 11, 89], [0, 9, 91], [0, 0, 0]]
    cluster = HACCS().init_selector(profile_of(counts))["cluster"].tolist()
    assert cluster[0] == cluster[1] == cluster[2] != cluster[3] == cluster[4] == cluster[5]
    assert cluster[6] not in cluster[:6]


def test_distances_of_summaries():
    """Label 0: Hellinger of (8, 2, 0) and (2, 8, 0) is .4472136; a label held by one of two counts 1, by
    none not at all."""
    table = np.array([[[8, 2, 0], [0, 0, 0]], [[2, 8, 0], [0, 0, 0]], [[8, 2, 0], [0, 5, 5]]], dtype=float)
    distances = histogram_distances(table)
    assert distances[0, 1] == pytest.approx(0.447213595)
    assert distances[0, 2] == pytest.approx(1 / 2)
    assert distances[1, 2] == pytest.approx((0.447213595 + 1) / 2)


def test_an_example_weighs_one_in_its_summary():
    """So that one example more or less changes the table by 1, as it changes label counts."""
    x = torch.tensor([[0.0, 0.999], [0.51, 0.51], [-3.0, 7.0]])
    table = HACCS().summarise(x, torch.tensor([1, 0, 1]), 3)
    assert table.shape == (3, BINS)
    assert table.sum(1).tolist() == [1, 2, 0]
    assert table[0, 13] == 1  # below 0.51 lies 69.5 % of a standard normal: the 14th of 20 bins
    assert table[1, [0, 9, 16, BINS - 1]].tolist() == [0.5] * 4  # -3, 0 (the median itself), 0.999 and 7


def test_clients_are_told_apart_by_features_of_the_same_label():
    """Same labels, two kinds of features: P(y) sees one kind of client, P(X|y) two."""
    part = HACCS(summary="P(X|y)")
    y = torch.zeros(40, dtype=torch.long)
    key = torch.Generator().manual_seed(0)
    tables = [
        part.summarise(torch.rand(40, 5, generator=key) * 0.4 + 0.5 * (client % 2), y, 2)
        for client in range(8)
    ]
    profile = replace(profile_of([[40, 0]] * 8), summaries={"haccs": torch.stack(tables)})
    cluster = part.init_selector(profile)["cluster"]
    assert not set(cluster[::2].tolist()) & set(cluster[1::2].tolist())
    assert len(set(HACCS().init_selector(profile)["cluster"].tolist())) == 1


def test_summaries_are_revealed_like_label_counts():
    text, task = "haccs(summary='P(X|y)')", tiny_task()
    method = Method.parse(text)
    exact = task.profile(method).summaries["haccs"]
    counts = task.federation.counts.double()
    torch.testing.assert_close(exact.sum(2), counts)
    noised = replace(task, privacy=Privacy("noised", 1.0)).profile(method).summaries["haccs"]
    assert noised.shape == exact.shape
    assert not noised.equal(exact)
    assert (noised >= 0).all()
    with pytest.raises(UserError, match=r"needs a summary.*'exact' or 'noised'"):
        play(method, replace(task, privacy=Privacy("withheld")), 0)
    assert play(method, task, 0)[0].bytes_up == 8 * 8 * (5 + 4 * BINS)


@pytest.mark.parametrize("options", ["summary='P(X|y)'", "loss_source='last_seen'", "quasi_random=True"])
def test_options_run(options):
    _, reports = play(Method.parse(f"haccs({options})"), tiny_task(), 3)
    assert all(len(report.answered) == 4 for report in reports)
