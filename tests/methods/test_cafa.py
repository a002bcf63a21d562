"""CAFA: a model weighs the size of its cluster times its accuracy on the cohort's validation data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedcohort.core.engine import ModelTrial
from fedcohort.core.method import Method
from fedcohort.core.round.groups import aggregate
from fedcohort.core.state import Group
from fedcohort.core.task import Task
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.federation import Federation, Split
from fedcohort.data.partition import partitioner
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.cafa import CAFA
from fedcohort.models.flat import Flat, Weights
from fedcohort.runs.run import run
from fedcohort.stats.clustering import kmeans_by_silhouette
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import Cohorts, position, profile_of, round_of, toy_task, updates_of

COUNTS = [[50, 50, 0], [48, 52, 0], [50, 48, 2], [0, 10, 90], [0, 0, 100], [90, 10, 0]]
ACCURACY = torch.tensor([[0.8, 0.6, 0.1], [0.5, 0.9, 0.2], [0.1, 0.1, 1.0]])
HELD = torch.tensor([10, 20, 10])
PROFILE = profile_of(COUNTS)


def weights(part: CAFA, accuracy: torch.Tensor = ACCURACY, held: torch.Tensor = HELD) -> list[float]:
    updates = updates_of([0, 2, 4][: len(held)], cross=accuracy, cross_size=held)
    return part.weights(part.init_server(PROFILE), updates, round_of(PROFILE, 3)).tolist()


def test_the_silhouette_chooses_two_clusters():
    """Clients 3 and 4 (mostly the third class) stand apart: shares 4/6 and 2/6, over all clients."""
    frequencies = np.array(COUNTS) / 100
    scores = kmeans_by_silhouette(frequencies, None, seed=0).scores
    expected = {2: 0.7955619287, 3: 0.7616217143, 4: 0.4691612616, 5: 0.0704416218}
    assert scores == pytest.approx(expected, abs=1e-9)
    share = CAFA().init_server(PROFILE)["share"]
    assert share.tolist() == pytest.approx([4 / 6, 4 / 6, 4 / 6, 2 / 6, 2 / 6, 4 / 6])


def test_worked_round():
    """Clients 0, 2, 4 answer. A = (.525, .625, .325), for example (.8 * 10 + .6 * 20 + .1 * 10) / 40.

    Times the shares (2/3, 2/3, 1/3): (.35, .41667, .10833) / .875.
    """
    w = weights(CAFA())
    assert w == pytest.approx([0.4, 0.4761904762, 0.1238095238])
    assert np.dot(w, [1.38, 0.458, 2]) == pytest.approx(1.0177142857)


def test_without_its_own_validation_data():
    """A = (13/30, .35, .1), for example (.6 * 20 + .1 * 10) / 30; with the shares (.52, .42, .06)."""
    assert weights(CAFA(own=False)) == pytest.approx([0.52, 0.42, 0.06])


def test_models_that_are_never_right_fall_back_to_the_shares():
    assert weights(CAFA(), torch.zeros(3, 3)) == pytest.approx([0.4, 0.4, 0.2])


def test_a_client_without_validation_data_scores_nobody():
    """Column 1 is unknown: A = (.45, .35, .55) from columns 0 and 2."""
    accuracy = ACCURACY.clone()
    accuracy[:, 1] = torch.nan
    expected = np.array([0.45 * 2, 0.35 * 2, 0.55]) / (0.45 * 2 + 0.35 * 2 + 0.55)
    assert weights(CAFA(), accuracy, torch.tensor([10, 0, 10])) == pytest.approx(expected.tolist())


@pytest.mark.parametrize("own", [True, False])
def test_a_cohort_of_one_has_all_the_weight(own):
    assert weights(CAFA(own=own), torch.tensor([[0.7]]), torch.tensor([10])) == [1.0]


@pytest.mark.parametrize("counts", [[[3, 1], [1, 3]], [[10, 20]] * 5, [[4, 4]]], ids=["two", "equal", "one"])
def test_without_clusters_all_shares_are_equal(counts):
    assert CAFA().init_server(profile_of(counts))["share"].tolist() == [1.0] * len(counts)


def test_an_empty_client_is_no_part_of_any_share():
    share = CAFA().init_server(profile_of([*COUNTS, [0, 0, 0]]))["share"]
    assert share[:6].tolist() == pytest.approx([4 / 6, 4 / 6, 4 / 6, 2 / 6, 2 / 6, 4 / 6])


def test_a_fixed_number_of_clusters():
    """Three: {0, 1, 2}, {3, 4} and {5}."""
    share = CAFA(clusters=3).init_server(PROFILE)["share"]
    assert share.tolist() == pytest.approx([3 / 6, 3 / 6, 3 / 6, 2 / 6, 2 / 6, 1 / 6])


def test_it_needs_validation_data():
    with pytest.raises(UserError, match=r"split\.validation"):
        CAFA().check(profile_of(COUNTS, held_out=0))


def test_sizes_play_no_role_and_the_round_uses_these_weights():
    """A real round: the model moves by the weights of the cross-accuracies that the engine measured."""
    task: Task = tiny_task(cohort=3)
    method = Method.parse("cafa")
    state, (report,) = play(method, task, 1)
    plain, _ = play(Method.parse("fedavg"), task, 1)
    assert len(report.answered) == 3
    assert not state.groups[0].weights.params.equal(plain.groups[0].weights.params)
    one, _ = play(method, tiny_task(cohort=1), 1)
    same, _ = play(Method.parse("fedavg"), tiny_task(cohort=1), 1)
    assert one.groups[0].weights.params.equal(same.groups[0].weights.params)


class Told(ReferenceEngine):
    """Clients 0, 1, 2 measure what the test says."""

    def cross_accuracy(self, trial):  # type: ignore[no-untyped-def]
        assert trial.clients.tolist() == [0, 1, 2]
        return ACCURACY


def test_a_round_moves_by_the_table_and_by_validation_samples():
    """2, 1 and 1 validation samples, whatever the clients train on; all labels are one, so clusters are too.

    A = (.8 * 2 + .6 + .1, .5 * 2 + .9 + .2, .1 * 2 + .1 + 1) / 4 = (2.3, 2.1, 1.3) / 4; deltas .38, -.542, 0.
    """
    task = toy_task()
    train, held = task.federation.train, [torch.arange(2), torch.tensor([12]), torch.tensor([42])]
    validation = Split.of(train.x, train.y, held)
    task = replace(task, federation=replace(task.federation, validation=validation))
    method = Method.of(Cohorts(((0, 1, 2),)), CAFA())
    state, _ = play(method, task, 1, engine=Told(task))
    assert position(state) == pytest.approx(1 + (2.3 * 0.38 - 2.1 * 0.542) / 5.7, abs=1e-6)


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine, BatchedEngine])
def test_a_row_is_a_model_and_a_column_a_client(engine):
    """Two models that always answer the first class, on a client that holds only it and one that never."""
    x, y = torch.rand(8, 3), torch.tensor([0] * 4 + [1] * 4)
    split = Split.of(x, y, [torch.arange(4), torch.arange(4, 8)])
    task = Task.of(Federation(split, split, split, ("a", "b"), ("0", "1"), None, {}), "logistic")
    first = Weights(torch.cat([torch.zeros(6), torch.tensor([1.0, 0.0])]), torch.zeros(0))
    table = engine(task).cross_accuracy(ModelTrial([first, first], torch.tensor([0, 1])))
    assert table.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_the_largest_cluster_is_taken_for_iid():
    """Eq. 7: of {0, 1, 2, 5} and {3, 4} the first; of equals that of the first client; no empty client."""
    part = CAFA()
    assert part.iid(part.init_server(PROFILE)).tolist() == [True, True, True, False, False, True]
    part = CAFA(clusters=2)
    pairs = profile_of([[9, 1], [1, 9], [8, 2], [2, 8], [0, 0]])
    assert part.iid(part.init_server(pairs)).tolist() == [True, False, True, False, False]


def test_a_run_tells_how_well_iid_clients_were_found():
    """Six IID clients of twelve; a restored run whose memory holds no clusters says nothing."""
    data = load("synthetic", samples=3000, classes=10, features=4)
    deal = partitioner("partly_iid", clients=12, iid=0.5)
    task = Task.of(federate(data, deal, SplitPlan(validation=0.2), 0), "logistic", cohort=3)
    assert task.federation.iid.tolist() == [True] * 6 + [False] * 6
    result = run("cafa", task, 1)
    part = CAFA()
    found = part.iid(part.init_server(task.profile(Method.parse("cafa"))))
    right = (found == task.federation.iid).float().mean()
    assert result.metrics["iid_accuracy"] == pytest.approx(float(right))
    assert result.metrics["iid_recall"] == pytest.approx(float(found[:6].float().mean()))
    assert part.iid({"share": torch.ones(12)}) is None
    assert "iid_f1" not in run("fedavg", task, 1).metrics


def test_one_factor_alone():
    """Shares 2/3, 2/3, 1/3 alone: (.4, .4, .2). A = (.525, .625, .325) alone: over 1.475."""
    assert weights(CAFA(variant="cbcc")) == pytest.approx([0.4, 0.4, 0.2])
    expected = [0.525 / 1.475, 0.625 / 1.475, 0.325 / 1.475]
    assert weights(CAFA(variant="abfa")) == pytest.approx(expected)


def test_one_factor_alone_asks_for_half():
    assert CAFA(variant="cbcc").uses() == {"counts"}
    CAFA(variant="cbcc").check(profile_of(COUNTS, held_out=0))
    assert CAFA(variant="abfa").uses() == {"validation", "cross_accuracy"}
    CAFA(variant="abfa").init_server(replace(PROFILE, counts=None))


def test_statistics_are_averaged_by_the_same_weights():
    """Statistics 1 and 3 of two clients of one cluster, with 10 and 30 samples: 2 by weights, else 2.5."""
    model = Flat(lambda: nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, 2)))
    profile = replace(profile_of([[5, 5], [15, 15]]), model=model)
    buffers = torch.stack([model.init(0).buffers * 0 + value for value in (1.0, 3.0)])
    updates = updates_of([0, 1], size=torch.tensor([10, 30]), buffers=buffers)
    updates = replace(updates, up={"delta": torch.zeros(2, model.num_params)})
    for bn, expected in (("weights", 2.0), ("samples", 2.5)):
        method = Method.parse(f"cafa(variant='cbcc', bn='{bn}')")
        group = Group(model.init(0), {}, {"averaging": method.averaging.init_server(profile)})
        after = aggregate(method, group, updates, round_of(profile, 2)).weights.buffers
        assert after[~model.counters].tolist() == pytest.approx([expected] * int((~model.counters).sum()))
