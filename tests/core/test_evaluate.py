"""The scopes of evaluation, on a federation small enough to count by hand.

An example is one of three signs (a one-hot vector), the model a 3 x 3 table of logits: ``identity`` answers a
sign with its own class, ``shifted`` with the class before it. Test samples, as sign -> label:

======== =============================== ================= =================
client   test samples                    right: identity   right: shifted
======== =============================== ================= =================
0        0->0  0->0  0->0  2->1          3 of 4            1 of 4 (2->1)
1        2->2  2->0                      1 of 2            0 of 2
2        none                            -                 -
3        1->0                            0 of 1            1 of 1
======== =============================== ================= =================
"""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedcohort.core import evaluate
from fedcohort.core.evaluate import ANSWERS, SCOPES, Row
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy
from fedcohort.core.round.loop import Report
from fedcohort.core.state import Group, State
from fedcohort.core.task import Task
from fedcohort.data import Federation, Split, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Weights
from fedcohort.runs.run import Evaluation, final_metrics, run
from fedcohort.testing import tiny_task
from fedcohort.testing.tiny import play
from fedcohort.util.errors import UserError

SURE = 2.0  # the logit of the answer; the others are 0
TEST = [[(0, 0), (0, 0), (0, 0), (2, 1)], [(2, 2), (2, 0)], [], [(1, 0)]]
TRAIN = [[(0, 1), (1, 1), (2, 2)], [(2, 0)], [(1, 1)], [(1, 0), (1, 0)]]

identity = torch.eye(3) * SURE
shifted = identity.roll(-1, dims=0)  # row = class, column = sign: class 0 answers sign 1


def split(samples: list[list[tuple[int, int]]]) -> Split:
    flat = [pair for client in samples for pair in client]
    x, y = torch.eye(3)[[sign for sign, _ in flat]], torch.tensor([label for _, label in flat])
    ends = np.cumsum([0, *map(len, samples)])
    return Split.of(x, y, [np.arange(a, b) for a, b in pairwise(ends)])


def federation(truth: Tensor | None = None, train: list[list[tuple[int, int]]] = TRAIN) -> Federation:
    names = ("north", "east", "south", "west")
    return Federation(
        split(train), split([[]] * 3 + [[(0, 0)]]), split(TEST), ("a", "b", "c"), names, truth, {}
    )


def task_of(data: Federation, local: Local | None = None) -> Task:
    return Task.of(data, lambda: nn.Linear(3, 3, bias=False), cohort=4, local=local or Local())


def group_of(table: Tensor) -> Group:
    return Group(Weights(table.flatten(), torch.zeros(0)), {}, {})


def state_of(*tables: Tensor, group: tuple[int, ...] = (0, 0, 0, 0), **rest: object) -> State:
    grouping = {"group": torch.tensor(group)}
    return State(7, tuple(map(group_of, tables)), grouping, **rest)  # type: ignore[arg-type]


def measured(state: State, method: str = "fedavg", data: Federation | None = None) -> dict[str, float]:
    task = task_of(data or federation())
    parsed = Method.parse(method)
    rows, _ = evaluate.evaluation_rows(
        parsed, state, task, task.profile(parsed), ReferenceEngine(task), clients=False
    )
    assert {row.round for row in rows} == {7}
    return final_metrics(rows)


def test_one_model() -> None:
    """``identity`` gives the right answer to 4 of 7 samples: (3, 1, -, 0) of (4, 2, -, 1)."""
    got = measured(state_of(identity))
    right = math.log(1 + 2 * math.exp(-SURE))  # the loss of a right answer; a wrong one costs SURE more
    expected = {
        "global.accuracy": 4 / 7,
        "global.accuracy[a]": 3 / 5,
        "global.accuracy[b]": 0,
        "global.accuracy[c]": 1,
        "global.named[a]": 3 / 7,
        "global.named[b]": 1 / 7,
        "global.named[c]": 3 / 7,
        "global.majority": 5 / 7,
        "global.balanced_accuracy": (3 / 5 + 0 + 1) / 3,
        "global.macro_f1": (6 / 8 + 0 + 2 / 4) / 3,
        "global.samples": 7,
        "global.loss": right + 3 / 7 * SURE,
        "personal.accuracy": (3 / 4 + 1 / 2 + 0) / 3,
        "personal.balanced_accuracy": ((1 + 0) / 2 + (1 + 0) / 2 + 0) / 3,
        "personal.balanced_accuracy_by_size": (4 * (1 + 0) / 2 + 2 * (1 + 0) / 2 + 1 * 0) / 7,
        "personal.majority": (3 / 4 + 1 / 2 + 1) / 3,
        "personal.macro_f1": ((1 + 0 + 0) / 3 + (0 + 2 / 3) / 2 + 0) / 3,
        "personal.worst_accuracy": 0,
        "personal.loss": right + (1 / 4 + 1 / 2 + 1) / 3 * SURE,
        "ad": (1 / 4 + 1 / 2 + 1) / 3,
        "sdad": math.sqrt((1 / 16 + 1 / 4 + 1) / 3 - (7 / 12) ** 2),
        "groups": 1,
    }
    assert got == pytest.approx(expected)


def test_every_answer_to_a_class_is_counted_for_each_group() -> None:
    """East and west have ``shifted``, which answers 2->2 with b, 2->0 with b and 1->0 with a."""
    task, method = task_of(federation()), Method.parse("fedavg")
    state = state_of(identity, shifted, group=(0, 1, 0, 1))
    known = method, state, task, task.profile(method)
    _, each = evaluate.evaluation_rows(*known, ReferenceEngine(task), clients=True)
    told = {(row.group, row.metric): row.value for row in each if row.scope == "answers"}
    assert told == {
        ("0", "answers[0][0]"): 3,
        ("0", "answers[1][2]"): 1,
        ("1", "answers[0][0]"): 1,
        ("1", "answers[0][1]"): 1,
        ("1", "answers[2][1]"): 1,
    }


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
def test_numbers_of_classes_are_those_of_scikit_learn(engine: type[ReferenceEngine]) -> None:
    """For all of them from the same answers; AUROC and average precision as exact as their bins."""
    for classes in (2, 3):
        task, method = several_classes(classes), Method.parse("fedavg")
        state, _ = play(method, task, 3)
        rows, _ = evaluate.evaluation_rows(method, state, task, task.profile(method), engine(task), False)
        got, test = final_metrics(rows), task.data.test
        logits = task.model.logits(state.groups[0].weights, test.x[test.index])
        label, said = test.y[test.index].numpy(), logits.argmax(1).numpy()
        assert got["global.macro_f1"] == pytest.approx(sk.f1_score(label, said, average="macro"))
        assert got["global.balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(label, said))
        assert got["global.majority"] == pytest.approx(np.bincount(label).max() / len(label))
        recall = sk.recall_score(label, said, average=None)
        for name, each in (("accuracy", recall), ("named", np.bincount(said) / len(said))):
            assert [got[f"global.{name}[{c}]"] for c in task.data.classes] == pytest.approx(each.tolist())
        assert ("global.auroc" in got) == ("global.average_precision" in got) == (classes == 2)
        if classes == 2:
            score = torch.softmax(logits, 1)[:, 1].detach().numpy()
            assert got["global.auroc"] == pytest.approx(sk.roc_auc_score(label, score), abs=1e-3)
            precise = sk.average_precision_score(label, score)
            assert got["global.average_precision"] == pytest.approx(precise, abs=1e-3)
            assert 0.6 < got["global.auroc"] < 0.99  # or it would say little


def several_classes(classes: int) -> Task:
    """Overlapping blobs, so that answers are neither all right nor all wrong."""
    data = load("synthetic", samples=1500, classes=classes, features=6, spread=2.5, seed=3)
    dealt = federate(data, partitioner("dirichlet", clients=5, alpha=1.0), seed=1)
    return Task.of(dealt, "logistic", cohort=5, local=Local(lr=0.05))


def test_each_group_is_served_by_its_own_model() -> None:
    """East and west get ``shifted``: (3, 0, -, 1) right of (4, 2, -, 1)."""
    got = measured(state_of(identity, shifted, group=(0, 1, 0, 1)))
    assert got["global.accuracy"] == pytest.approx(4 / 7)
    assert got["personal.accuracy"] == pytest.approx((3 / 4 + 0 + 1) / 3)
    assert got["groups"] == 2


def test_a_personal_model_serves_its_client_and_the_common_start_the_others() -> None:
    """Only west has trained alone: (3, 1, -, 1) right of (4, 2, -, 1)."""
    west = {3: {"params": shifted.flatten(), "buffers": torch.zeros(0)}}
    assert measured(state_of(identity, clients=west), "local_only")["global.accuracy"] == pytest.approx(5 / 7)
    assert measured(state_of(identity, clients=west))["global.accuracy"] == pytest.approx(4 / 7)
    north = {0: {"params": identity.flatten(), "buffers": torch.zeros(0)}}  # answered once
    assert measured(state_of(shifted, clients=north), "local_only")["global.accuracy"] == pytest.approx(4 / 7)


def test_a_personal_model_counts_as_one_of_those_that_serve() -> None:
    """West has its own and the others the common one; then everybody has one."""
    own = {client: {"params": shifted.flatten(), "buffers": torch.zeros(0)} for client in range(4)}
    assert measured(state_of(identity, clients={3: own[3]}), "local_only")["groups"] == 2
    assert measured(state_of(identity, clients=own), "local_only")["groups"] == 4
    assert measured(state_of(identity, clients=own), "scaffold")["groups"] == 1  # it serves nobody with them


def test_without_any_test_sample_nothing_is_claimed() -> None:
    data = federation()
    nobody = replace(data.test, index=data.test.index[:0], offsets=torch.zeros(5, dtype=torch.int64))
    got = measured(state_of(identity), data=replace(data, test=nobody))
    of_global = ("global.accuracy", "global.accuracy[a]", "global.balanced_accuracy")
    of_clients = ("personal.accuracy", "personal.worst_accuracy", "ad", "sdad")
    assert all(math.isnan(got[key]) for key in (*of_global, *of_clients))


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
def test_networks_never_see_an_empty_batch(engine: type[ReferenceEngine]) -> None:
    """Client 2 has no test sample and a model of its own; ``view(len(x), -1)`` of nothing is an error."""

    class Reshaping(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.view(len(x), -1))

    task = Task.of(federation(), lambda: Reshaping(3, 3), cohort=1.0)
    assert run("local_only", task, 1, engine=engine).metrics["global.accuracy"] >= 0


def test_rows_of_clients_name_client_and_group() -> None:
    task = task_of(federation())
    state = state_of(identity, shifted, group=(0, 1, 0, 1))
    method = Method.parse("fedavg")
    rows, each = evaluate.evaluation_rows(
        method, state, task, task.profile(method), ReferenceEngine(task), clients=True
    )
    mine = {(row.client, row.group, row.metric): row.value for row in each if row.client}
    assert mine[("north", "0", "accuracy")] == 3 / 4
    assert mine[("north", "0", "test_size")] == 4
    assert mine[("west", "1", "accuracy")] == 1
    assert math.isnan(mine[("south", "0", "accuracy")])
    assert len(mine) == 8
    assert "personal.accuracy" in final_metrics(rows)
    assert final_metrics(rows)["personal.accuracy"] == pytest.approx(7 / 12)  # not the last client's


def test_groups_are_compared_with_the_truth() -> None:
    """Groups 0101 and truth 0011 agree on the pairs (0, 3) and (1, 2): 2 of 6.

    Adjusted for chance: no pair is together in both, 2 * 2 / 6 are expected, at most 2 possible:
    (0 - 2/3) / (2 - 2/3) = -1/2.
    """
    truth = torch.tensor([0, 0, 1, 1])
    got = measured(state_of(identity, shifted, group=(0, 1, 0, 1)), data=federation(truth))
    assert got["rand"] == pytest.approx(2 / 6)
    assert got["adjusted_rand"] == pytest.approx(-1 / 2)
    assert "rand" not in measured(state_of(identity, shifted, group=(0, 1, 0, 1)))


def test_groups_are_compared_with_the_labels() -> None:
    """Label shares by size are (1, 0, 0) in group 0 and (1/2, 1/2, 0) in group 1: perfectly apart."""
    train = [[(0, 0)], [(0, 0), (1, 2)], [(2, 1), (2, 1)], [(1, 1), (1, 2)]]
    got = measured(state_of(identity, shifted, group=(0, 1, 0, 1)), data=federation(train=train))
    assert got["was"] == pytest.approx(1)
    assert got["wadb"] == pytest.approx(0)
    mixed = measured(state_of(identity, shifted, group=(0, 0, 1, 1)), data=federation(train=train))
    assert mixed["was"] < 0
    assert "was" not in measured(state_of(identity))
    train[3] = []  # then client 1 is alone in its group and scores 0
    empty = measured(state_of(identity, shifted, group=(0, 1, 0, 1)), data=federation(train=train))
    assert empty["was"] == pytest.approx(2 / 3)


def test_adapted_is_one_more_local_budget() -> None:
    """By hand: a full-batch step of each client from the model that serves it, at the round's rate."""
    local = Local(lr=8.0, decay=0.5, decay_every=7, batch=10)  # after 7 rounds: 4.0
    task, state = task_of(federation(), local), state_of(identity, shifted, group=(0, 1, 0, 1))
    method = Method.parse("fedavg")
    engine, profile = ReferenceEngine(task), task.profile(method)
    adapted, _ = evaluate.adapt(method, state, task, profile, engine)
    models = {int(client): w["params"] for w, client in adapted}
    right = []
    for client, served in enumerate([identity, shifted, identity, shifted]):
        x, y = task.federation.train.examples(client)
        table = served.clone().requires_grad_()
        F.cross_entropy(x @ table.T, y).backward()
        expected = (served - 4.0 * table.grad).detach()
        torch.testing.assert_close(models[client].reshape(3, 3), expected)
        x, y = task.federation.test.examples(client)
        right.append(((x @ expected.T).argmax(1) == y).float().mean().item())
    rows = evaluate.adapted_rows(method, state, task, profile, engine)
    got = final_metrics(rows)
    named = (
        "accuracy",
        "majority",
        "balanced_accuracy",
        "balanced_accuracy_by_size",
        "macro_f1",
        "worst_accuracy",
        "loss",
        "ad",
        "sdad",
    )
    assert set(got) == {f"adapted.{metric}" for metric in named}
    assert got["adapted.ad"] == pytest.approx(1 - np.mean([right[0], right[1], right[3]]))
    own = [row.value for row in rows if row.client and row.metric == "accuracy"]
    assert [own[0], own[1], own[3]] == pytest.approx([right[0], right[1], right[3]])
    assert all((row.scope, row.group) == ("adapted", "01"[i // 2 % 2]) for i, row in enumerate(rows[9:]))
    assert got["adapted.accuracy"] == pytest.approx(np.mean([right[0], right[1], right[3]]))
    assert got["adapted.accuracy"] != pytest.approx((3 / 4 + 0 + 1) / 3)  # or nothing was adapted


def test_who_cannot_adapt_keeps_its_model() -> None:
    """West has test samples and nothing to train on: its one answer stays that of ``shifted``."""
    train = [*TRAIN[:3], []]
    task = task_of(federation(train=train), Local(lr=1e-9))
    state = state_of(identity, shifted, group=(0, 1, 0, 1))
    method = Method.parse("fedavg")
    rows = evaluate.adapted_rows(method, state, task, task.profile(method), ReferenceEngine(task))
    assert final_metrics(rows)["adapted.accuracy"] == pytest.approx((3 / 4 + 0 + 1) / 3)


def test_everybody_s_samples_find_out_what_a_model_does_not_know() -> None:
    """By hand: three clients are served by one model, one by another, and each answers all test samples."""
    task, state = task_of(federation()), state_of(identity, shifted, group=(0, 0, 1, 0))
    method = Method.parse("fedavg")
    rows = evaluate.everybody_rows(method, state, task, task.profile(method), ReferenceEngine(task))
    every = [task.federation.test.examples(client) for client in range(4)]
    x, y = (torch.cat(parts) for parts in zip(*every, strict=True))
    known = [((x @ table.T).argmax(1) == y).double().mean().item() for table in (identity, shifted)]
    lost = [F.cross_entropy(x @ table.T, y).item() for table in (identity, shifted)]
    expected = {
        f"everybody.{metric}": 3 / 4 * one + 1 / 4 * other
        for metric, (one, other) in (("accuracy", known), ("loss", lost))
    }
    assert known[0] != known[1]
    assert final_metrics(rows) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["local_only", "fedconcat(groups=2, rounds=2)", "fedavg+finetune"])
def test_models_of_every_kind_answer_everybody(method: str) -> None:
    """A client's own model, merged ones, and models that clients train further: each knows less of others."""
    told = run(method, tiny_task(), 3, Evaluation(everybody=True)).metrics
    assert 0 < told["everybody.accuracy"] <= 1
    own_advantage = told["global.accuracy"] - told["everybody.accuracy"]
    assert own_advantage > 0.05 if "concat" not in method else abs(own_advantage) < 1e-6


def test_one_model_knows_of_everybody_what_it_knows_of_all() -> None:
    task, asked = task_of(federation(), Local(lr=2.0)), Evaluation(everybody=True)
    told = run("fedavg", task, 3, asked).metrics
    assert told["everybody.accuracy"] == pytest.approx(told["global.accuracy"])
    assert told["everybody.loss"] == pytest.approx(told["global.loss"])
    assert not any(key.startswith("everybody") for key in run("fedavg", task, 3).metrics)


def test_rows_of_a_round() -> None:
    """North, east and west were asked: labels 1 1 2, 0 and 0 0. East did not answer, west sent nonsense."""
    ids = [torch.tensor(clients) for clients in ([0, 1, 3], [0], [1], [3])]
    report = Report(6, *ids, loss=0.5)
    state = state_of(identity, shifted, group=(0, 1, 0, 1), bytes_up=10, bytes_down=20)
    task = task_of(federation())
    rows = evaluate.round_rows(
        Method.parse("fedavg"), report, state, task, task.profile(Method.parse("fedavg"))
    )
    got = final_metrics(rows)
    entropy = -(3 / 6 * math.log2(3 / 6) + 2 / 6 * math.log2(2 / 6) + 1 / 6 * math.log2(1 / 6))
    told = {"cohort": 3, "lost": 1, "rejected": 1, "train_loss": 0.5, "bytes_up": 10, "bytes_down": 20}
    assert got == pytest.approx({**told, "cohort_entropy": entropy})
    trained = [(row.client, row.group, row.value) for row in rows if row.scope == "cohort"]
    assert trained == [("north", "0", 1.0), ("east", "1", 0.0), ("west", "1", 0.0)]


def test_labels_of_who_is_declined_are_not_the_cohorts() -> None:
    """Without west, whose labels are 0 0, those of north and east are left: 1 1 2 and 0."""
    selected, one, nobody = torch.tensor([0, 1, 3]), torch.tensor([3]), torch.tensor([], dtype=torch.long)
    report = Report(6, selected, selected, nobody, nobody, loss=0.5, declined=one)
    method, task = Method.parse("fedavg"), task_of(federation())
    state = state_of(identity, shifted, group=(0, 1, 0, 1))
    got = final_metrics(evaluate.round_rows(method, report, state, task, task.profile(method)))
    assert got["declined"] == 1
    assert got["cohort_entropy"] == pytest.approx(1.5)


def test_a_run_ends_with_the_mean_entropy_of_its_cohorts() -> None:
    rows = run("fedavg", replace(task_of(federation()), cohort=1), 4).rows
    each = [row.value for row in rows if row.metric == "cohort_entropy"]
    assert len(set(each)) > 1
    assert final_metrics(rows)["mean_cohort_entropy"] == pytest.approx(sum(each) / 4)


@pytest.mark.parametrize("counts", ["withheld", "noised"])
def test_nothing_is_computed_from_labels_that_nobody_told(counts: str) -> None:
    """With one client a round, the cohort's entropy would be each client's own; groups by label likewise."""
    task = replace(task_of(federation()), privacy=Privacy(counts, 0.1))
    both, wanted = (replace(task, privacy=Privacy()), task), Evaluation(adapted=True, everybody=True)
    true, told = (run("fedavg", each, 4, wanted).rows for each in both)
    entropies = [[row.value for row in rows if row.metric == "cohort_entropy"] for rows in (true, told)]
    assert len(entropies[0]) == 4
    assert entropies[1] == [] if counts == "withheld" else entropies[1] != entropies[0]
    assert {row.scope for row in true} - {row.scope for row in told} == {ANSWERS}
    of_no_class = {"accuracy", "loss", "samples", "worst_accuracy", "test_size", "ad", "sdad"}
    assert {row.metric for row in told if row.scope in SCOPES} == of_no_class
    method, state = Method.parse("fedavg"), state_of(identity, shifted, group=(0, 1, 0, 1))
    grouped = [
        evaluate.evaluation_rows(method, state, each, each.profile(method), ReferenceEngine(each), False)[0]
        for each in both
    ]
    by_labels = [{r.metric: r.value for r in rows if r.metric in ("was", "wadb")} for rows in grouped]
    assert by_labels[0].keys() == {"was", "wadb"}
    assert by_labels[1] == {} if counts == "withheld" else by_labels[1] != by_labels[0]


def test_when_to_evaluate_and_the_first_round_at_the_target() -> None:
    task = task_of(federation(), Local(lr=2.0))
    every = run("fedavg", task, 5, Evaluation(every=1))
    curve = {row.round: row.value for row in every.rows if row.key == "global.accuracy"}
    assert list(curve) == [1, 2, 3, 4, 5]
    target = max(curve.values())
    first = min(number for number, value in curve.items() if value >= target)
    some = run("fedavg", task, 5, Evaluation(every=2, target=target))
    seen = [row.round for row in some.rows if row.key == "global.accuracy"]
    assert seen == [2, 4, 5]  # the last round always is
    reached = [number for number in seen if curve[number] >= target]
    assert some.metrics["rounds_to_target"] == (reached[0] if reached else math.inf)
    assert run("fedavg", task, 5, Evaluation(target=target)).metrics["rounds_to_target"] == first
    assert run("fedavg", task, 2, Evaluation(target=1.0)).metrics["rounds_to_target"] == math.inf
    assert "rounds_to_target" not in every.metrics
    assert not any(key.startswith("adapted") for key in every.metrics)


def test_clients_accuracies_are_kept_as_often_as_asked_and_change_nothing_else() -> None:
    task = task_of(federation(), Local(lr=2.0))
    plain = run("fedavg", task, 5, Evaluation(every=2))
    often = run("fedavg", task, 5, Evaluation(every=2, clients_every=4))
    of_clients = [row for row in often.rows if row.client and row.key == "personal.accuracy"]
    assert sorted({row.round for row in of_clients}) == [4, 5]
    assert {row.client for row in of_clients if row.round == 4} == set(task.federation.clients)
    (mean,) = [r.value for r in often.rows if r.overall and r.key == "personal.accuracy" and r.round == 4]
    assert mean == pytest.approx(np.nanmean([row.value for row in of_clients if row.round == 4]))
    before = list(map(repr, plain.rows))
    assert [text for row in often.rows if (text := repr(row)) in before] == before
    with pytest.raises(UserError, match=r"multiple of evaluate\.every"):
        Evaluation(every=2, clients_every=3)


def test_keys_name_the_scope_of_every_accuracy() -> None:
    assert Row(1, "global", "", "", "accuracy", 0.5).key == "global.accuracy"
    assert Row(1, "adapted", "", "", "loss", 0.5).key == "adapted.loss"
    assert Row(1, "fairness", "", "", "ad", 0.5).key == "ad"


def test_centralised_adapts_nobody_else() -> None:
    """All rows are at client 0: the others' test samples are still answered, by the common model."""
    task = task_of(federation(), Local(lr=1e-9))
    result = run("centralised", task, 1, Evaluation(adapted=True))
    assert result.metrics["adapted.accuracy"] == pytest.approx(result.metrics["personal.accuracy"])


def test_results_tell_how_many_clients_trained_a_round():
    """FedConcat-ID calls all eight clients in the first round, and four in the second."""
    result = run("fedconcat(inferred=True, noise=10, rounds=1)", tiny_task(), 2)
    assert result.metrics["clients_per_round"] == 6
    assert run("clust_psi_pfl", tiny_task(), 2).metrics["clients_per_round"] == 4
