"""FedConcat: groups by labels, then one layer on all groups' features."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Memory, Merge, Trained, View
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import step
from fedcohort.core.round.merge import features, merged_task, side_by_side
from fedcohort.core.state import State, pack, unpack
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.fedconcat import FedConcat
from fedcohort.models.flat import Flat, Weights
from fedcohort.runs.run import run
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import profile_of, round_of

SHARES = np.array([[0.9, 0.1, 0], [0.8, 0.2, 0], [0, 0.1, 0.9], [0, 0.2, 0.8], [0.1, 0.8, 0.1]])
MB = 1e6


def task_of(x: Tensor, y: Tensor, clients: int, model: object, **conditions: object) -> Task:
    """Consecutive examples, dealt evenly."""
    split = Split.of(x, y, list(torch.arange(len(y)).chunk(clients)))
    names = tuple(str(client) for client in range(clients))
    classes = tuple(str(label) for label in range(int(y.max()) + 1))
    return Task.of(Federation(split, split, split, classes, names, None, {}), model, **conditions)  # type: ignore[arg-type]


def test_groups_by_labels():
    memory = FedConcat(groups=3).init_grouping(profile_of(100 * SHARES))
    assert memory["group"].tolist() == [0, 0, 1, 1, 2]


def test_fewer_clients_or_kinds_than_groups():
    assert FedConcat().init_grouping(profile_of([[9, 1], [1, 9]]))["group"].tolist() == [0, 1]
    assert FedConcat().init_grouping(profile_of([[5, 5]] * 4))["group"].tolist() == [0] * 4


def test_no_group_beyond_its_capacity():
    """Eight clients hold one kind of labels and two another: at most 1.2 * 10 / 2 = 6 may share a group.

    Two of the eight must leave; those nearest to the other kind cost least.
    """
    first = [[100 - k, k] for k in range(8)]
    group = FedConcat(groups=2, capacity=1.2).init_grouping(profile_of([*first, [5, 95], [4, 96]]))["group"]
    assert group.tolist() == [0] * 6 + [1] * 4
    alike = FedConcat(groups=2, capacity=1.2).init_grouping(profile_of([[5, 5]] * 10))["group"]
    assert alike.bincount().max() <= 6


def test_a_capacity_between_two_numbers_is_the_smaller():
    """Eleven clients in two groups, 1.2 * 11 / 2 = 6.6: at most 6, not 7. At capacity 1, 5.5 cannot hold all:
    at most 6."""
    counts = profile_of([[100 - k, k] for k in range(9)] + [[5, 95], [4, 96]])
    for capacity in (1.2, 1.0):
        group = FedConcat(groups=2, capacity=capacity).init_grouping(counts)["group"]
        assert group.bincount().tolist() == [6, 5]


def test_one_group_is_fedavg_until_the_layer_on_top():
    ours, theirs = (
        play(Method.parse(text), tiny_task(), 2)[0].groups[0].weights.params
        for text in ("fedconcat(groups=1, rounds=3)", "fedavg")
    )
    assert ours.equal(theirs)


def test_the_joined_layer_adds_up_logits():
    """Heads W1 = [[1, 2], [3, 4], [5, 6]] and W1 + 6, h = (1, 1 | 2, 0): 3 + 14 + .1 + .4 = 17.5, ..."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 3))

    first = torch.arange(1.0, 7)
    nothing = torch.zeros(2)  # the encoders answer the same to everything
    encoders = [
        Weights(torch.cat([nothing, torch.tensor(h), heads, torch.tensor(b)]), torch.zeros(0))
        for h, heads, b in (([1.0, 1.0], first, [0.1, 0.2, 0.3]), ([2.0, 0.0], first + 6, [0.4, 0.5, 0.6]))
    ]
    task = task_of(torch.zeros(3, 1), torch.arange(3), 1, build)
    merged = merged_task(task, encoders, Merge(3))
    assert merged.federation.train.x[0].tolist() == [1, 1, 2, 0]
    logits = merged.model.logits(side_by_side(task.model, encoders), merged.federation.train.x[:1])
    assert logits[0].tolist() == pytest.approx([17.5, 25.7, 33.9])
    apart = sum(task.model.logits(weights, torch.zeros(1, 1)) for weights in encoders)
    torch.testing.assert_close(logits, apart)


def test_features_are_those_of_evaluation():
    """BatchNorm with mean 0 and variance 1 leaves them as they are, whatever the batch."""
    model = Flat(lambda: nn.Sequential(nn.BatchNorm1d(2, eps=0), nn.Linear(2, 3)))
    x = torch.tensor([[5.0, 7.0], [5.0, 9.0]])
    torch.testing.assert_close(features(model, model.init(0), x), x)


def test_all_examples_are_encoded_however_many_at_a_time():
    x, model = torch.arange(14.0).view(7, 2), Flat(lambda: nn.Linear(2, 3))
    model.together = 3
    torch.testing.assert_close(features(model, Weights(torch.ones(9), x[:0]), x), x)


def test_megabytes_of_the_published_setting():
    """LeNet-5 (62,006 numbers, 61,156 without its last layer, 84 features), 10 of 100 clients, 5 groups.

    480 rounds of whole models, all encoders to everybody once, 500 rounds of a 420 x 10 layer. The paper
    counts models; here each of the ten tells 20 bytes with its update.
    """
    labels = torch.arange(100) % 5 * 2  # five kinds of clients
    labels[0] = 9
    task = task_of(torch.rand(100, 3, 32, 32), labels, 100, "lenet5", cohort=10)
    method = Method.parse("fedconcat(rounds=1, groups=5)")
    profile, engine = task.profile(method), ReferenceEngine(task)
    once = play(method, task, 0)[0]
    first = play(method, task, 1)[0]
    second, _ = step(method, first, task, profile, engine)
    third, _ = step(method, second, task, profile, engine)

    def between(a: State, b: State) -> int:
        return b.bytes_up + b.bytes_down - a.bytes_up - a.bytes_down - 10 * 20

    top = between(second, third)
    handed_over = between(first, second) - top
    nothing = play(Method.parse("fedavg"), task, 0)[0]
    assert len(first.groups) == 5
    assert 480 * between(once, first) / MB == pytest.approx(2381.0304)
    assert handed_over / MB == pytest.approx(122.312)
    assert 500 * top / MB == pytest.approx(168.4)
    fedavg = play(Method.parse("fedavg"), task, 1)[0]
    assert 500 * between(nothing, fedavg) / MB == pytest.approx(2480.24)


def test_the_phases():
    """Two rounds of groups, then one model whose encoders no longer move; a restart goes on as before."""
    method, task = Method.parse("fedconcat(rounds=2, groups=2)"), tiny_task()
    before, _ = play(method, task, 2)
    assert len(before.groups) == 2
    assert before.encoders == ()
    after, _ = play(method, task, 2, before)
    assert len(after.groups) == 1
    assert after.groups[0].weights.params.numel() == 2 * 8 * 4 + 4
    for encoder, group in zip(after.encoders, before.groups, strict=True):
        assert encoder.params.equal(group.weights.params)
    restored = unpack(pack(after))
    assert_same(play(method, task, 2, restored)[0], play(method, task, 6)[0], "a restart after the merger")


def test_the_learning_rate_starts_anew_with_the_layer_on_top():
    """Halved every second round: .1, .1, .05 for the groups, and again .1, .1, .05 for the layer."""
    task = tiny_task(local=Local(lr=0.1, decay=0.5, decay_every=2, batch=8))
    seen: list[set[float]] = []

    class Watched(ReferenceEngine):
        def train(self, objective, orders, number):  # type: ignore[no-untyped-def]
            seen.append({order.budget.lr for order in orders})
            return super().train(objective, orders, number)

    method = Method.parse("fedconcat(rounds=3, groups=2)")
    play(method, task, 6, engine=Watched(task))
    assert seen == [{0.1}, {0.1}, {0.05}] * 2


def test_servers_know_the_learning_rate_that_started_anew():
    """Halved every second round, from round 3 on: round 5 is the first with half."""
    local = Local(lr=0.1, decay=0.5, decay_every=2)
    profile = replace(profile_of([[1, 1]]), local=local, began=3)
    assert [round_of(profile, 1, number).lr for number in (3, 4, 5)] == [0.1, 0.1, 0.05]


def test_a_run_that_ends_before_the_merger_says_so():
    task = tiny_task()
    with pytest.warns(RuntimeWarning, match="fedconcat merges its groups' models after 3 rounds, and 3 are"):
        run("fedconcat(rounds=3, groups=2)", task, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("fedconcat(rounds=3, groups=2)", task, 4)
        run("fedavg", task, 1)


def test_the_layer_on_top_takes_three_steps_and_averages_evenly():
    """Clients of 10 and 30 samples move it by d_0 and d_1: it moves by their plain mean."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    split = Split.of(x, torch.arange(40) % 2, [torch.arange(10), torch.arange(10, 40)])
    federation = Federation(split, split, split, ("a", "b"), ("0", "1"), None, {})
    task = Task.of(federation, "mlp", {"widths": [3]}, cohort=2, local=Local(batch=8))
    method = Method.parse("fedconcat(rounds=1, groups=2, top='joined')")
    moves: list[Tensor] = []

    class Watched(ReferenceEngine):
        def train(self, objective, orders, number):  # type: ignore[no-untyped-def]
            answers = super().train(objective, orders, number)
            moves[:] = [answer.up["delta"] for answer in answers]
            assert number == 0 or [answer.steps for answer in answers] == [3, 3]
            return answers

    before = play(method, task, 1, engine=Watched(task))[0]
    after = play(method, task, 1, before, engine=Watched(task))[0]
    start = side_by_side(task.model, [group.weights for group in before.groups]).params
    torch.testing.assert_close(after.groups[0].weights.params, start + (moves[0] + moves[1]) / 2)


@dataclass(frozen=True)
class Remembering(Objective):
    """Every client remembers where it began, and insists on a memory as long as its model."""

    name: ClassVar[str] = "remembering"

    def init_client(self, profile: Profile) -> Memory:
        return {"begun": torch.zeros(profile.model.num_params)}

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        assert view.mine["begun"].shape == begun.params.shape
        return {"delta": trained.weights.params - begun.params}, {"begun": begun.params}


def test_what_clients_remember_of_a_groups_model_is_forgotten_with_it():
    method = Method.of(Remembering(), FedConcat(groups=2, rounds=1))
    state, _ = play(method, tiny_task(cohort=8), 3)
    assert {mine["begun"].shape for mine in state.clients.values()} == {state.groups[0].weights.params.shape}


def test_labels_are_inferred_from_answers_to_noise():
    """Two clients know only class 0 and two only class 1; after one round of all, two groups."""
    x = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0] * 10 + [1] * 10 + [0] * 10 + [1] * 10)
    task = task_of(x, y, 4, "logistic", cohort=1, local=Local(lr=0.5, epochs=5, batch=5))
    method = Method.parse("fedconcat(groups=2, inferred=True, noise=50)")
    assert "counts" not in method.uses
    first, (report,) = play(method, task, 1)
    assert sorted(report.selected.tolist()) == [0, 1, 2, 3]
    assert first.grouping["group"].tolist() == [0, 1, 0, 1]
    _, (report,) = play(method, task, 1, first)
    assert len(report.selected) == 1


def test_inferred_labels_are_probabilities():
    """Logits (ln 3, 0) and (0, 0) to everything: shares (3/4, 1/4) and (1/2, 1/2)."""
    task = task_of(torch.rand(4, 3), torch.arange(4) % 2, 2, "logistic")
    profile = task.profile(Method.parse("fedconcat(inferred=True)"))
    heads = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    params = torch.cat([torch.zeros(2, 6), heads], 1)
    shares = FedConcat(inferred=True, noise=5).infer(params, torch.zeros(2, 0), profile)
    torch.testing.assert_close(shares, torch.tensor([[0.75, 0.25], [0.5, 0.5]]))


def test_noise_is_the_experiments_own():
    """The same seed asks the same, another seed something else."""
    task = task_of(torch.rand(4, 3), torch.arange(4) % 2, 2, "logistic")
    profile = task.profile(Method.parse("fedconcat(inferred=True)"))
    params = torch.arange(8.0)[None]
    once, again, other = (
        FedConcat(inferred=True, noise=5).infer(params, torch.zeros(1, 0), replace(profile, seed=seed))
        for seed in (1, 1, 2)
    )
    assert once.equal(again)
    assert not once.equal(other)


@pytest.mark.parametrize(("sampling", "selected"), [("all", 1), ("group", 2)])
def test_cohorts_of_everybody_or_of_each_group(sampling, selected):
    x, y = torch.rand(40, 3), torch.tensor([0] * 20 + [1] * 20)
    task = task_of(x, y, 4, "logistic", cohort=1)
    _, (report,) = play(Method.parse(f"fedconcat(groups=2, sampling='{sampling}')"), task, 1)
    assert len(report.selected) == selected


def test_a_network_without_a_last_layer_is_refused():
    task = task_of(
        torch.rand(4, 3), torch.arange(4) % 2, 2, lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    )
    with pytest.raises(UserError, match="ends with ReLU"):
        play(Method.parse("fedconcat"), task, 0)
