"""Whose BatchNorm statistics are used: ``local.bn``.

The network begins with BatchNorm, so what it measures depends on the examples alone: a step on a batch of
mean m moves the running mean from r to .9 r + .1 m. Clients 0, 1 and 2 have examples of mean 1, 5 and 3.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.core import batchnorm, evaluate
from fedcohort.core.engine import ModelTrial
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.round.loop import start, step
from fedcohort.core.state import State, pack, unpack
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat, Weights
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import run
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import Cohorts

MEANS, SIZES = (1.0, 5.0, 3.0), (10, 30, 20)


def normed_task(bn: str, steps: int = 1, **conditions: object) -> Task:
    """Half of a client's examples lie one above its mean, half one below: these are its two classes."""
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
    y = torch.arange(len(owner)) % 2
    x = (torch.tensor(MEANS)[owner] + 2.0 * y - 1)[:, None]
    rows = [(owner == client).nonzero().flatten() for client in range(3)]
    split = Split.of(x, y, rows)
    federation = Federation(split, split, split, ("low", "high"), ("a", "b", "c"), None, {})
    model = Flat(lambda: nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, 2)))
    local = Local(lr=0.1, steps=steps, batch=100, bn=bn)  # type: ignore[arg-type]
    return Task(federation, model, local, cohort=3, **conditions)  # type: ignore[arg-type]


def rounds(task: Task, *cohorts: tuple[int, ...], text: str = "fedavg") -> list[State]:
    method = Method.of(Cohorts(cohorts), *Method.parse(text).parts[1:])
    profile, states = task.profile(method), []
    state = start(method, task, profile)
    for _ in cohorts:
        state, _ = step(method, state, task, profile, ReferenceEngine(task))
        states.append(state)
    return states


def common_mean(state: State) -> float:
    return float(state.groups[0].weights.buffers[0])


def own_means(state: State) -> dict[int, float]:
    return {client: float(memory["buffers"][0]) for client, memory in state.clients.items()}


def test_averaged_statistics_go_on_from_round_to_round():
    """Shares of clients 0 and 1 are 1/4 and 3/4: .1 (1 / 4 + 15 / 4) = .4, then .36 + .4."""
    first, second = rounds(normed_task("average"), (0, 1), (0, 1))
    assert common_mean(first) == pytest.approx(0.4)
    assert common_mean(second) == pytest.approx(0.76)
    assert not second.clients


def test_fresh_statistics_are_those_of_one_round():
    """The second round begins at zero again: clients 1 and 2 have 3/5 and 2/5, .1 (3 + 6 / 5) = .42."""
    first, second = rounds(normed_task("fresh"), (0, 1), (1, 2))
    assert common_mean(first) == pytest.approx(0.4)
    assert common_mean(second) == pytest.approx(0.42)
    assert not second.clients


def test_local_statistics_stay_with_their_client():
    """Client 1 trains twice: .5, then .45 + .5. The model's stay as they began."""
    first, second = rounds(normed_task("local"), (0, 1), (1, 2))
    assert own_means(first) == pytest.approx({0: 0.1, 1: 0.5})
    assert own_means(second) == pytest.approx({0: 0.1, 1: 0.95, 2: 0.3})
    for state in (first, second):
        assert state.groups[0].weights.buffers.tolist() == [0, 1, 0]


def test_own_statistics_tell_classes_apart_where_inputs_are_shifted():
    """What is high for client 0 (2) is low for client 1 (4): one threshold cannot serve both."""
    reached = {}
    for bn in ("average", "local"):
        task = replace(normed_task(bn, steps=10), local=Local(lr=0.5, steps=10, batch=100, bn=bn))
        result = run("fedavg", task, rounds=20)
        reached[bn] = result.metrics["personal.worst_accuracy"]
    assert reached["local"] == 1
    assert reached["average"] == 0.5


def test_parameters_do_not_care_in_the_first_round():
    """In training BatchNorm uses the batch alone, so whose statistics are kept changes evaluation only."""
    after = [rounds(normed_task(bn), (0, 1), (1, 2))[-1] for bn in ("average", "local", "fresh")]
    for other in after[1:]:
        assert torch.equal(other.groups[0].weights.params, after[0].groups[0].weights.params)


def test_who_is_lost_keeps_what_it_had():
    class Breaks(ReferenceEngine):
        def train(self, *args):
            first, *others = super().train(*args)
            return [first._replace(up={"delta": first.up["delta"] * torch.nan}), *others]

    task, method = normed_task("local"), Method.of(Cohorts(((0, 1),)))
    profile = task.profile(method)
    state, report = step(method, start(method, task, profile), task, profile, Breaks(task))
    assert report.rejected.tolist() == [0]
    assert own_means(state) == pytest.approx({1: 0.5})


def by_hand(task: Task, weights: Weights, buffers: Tensor, client: int) -> tuple[float, float]:
    """Mean loss and accuracy of an ordinary module with these statistics on a client's examples."""
    module = task.model.module_with(weights._replace(buffers=buffers))
    rows = task.federation.train.rows(client)
    logits, y = module(task.federation.train.x[rows]).detach(), task.federation.train.y[rows]
    return float(nn.functional.cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine, lambda task: BatchedEngine(task, "cpu")])
def test_a_client_uses_every_model_with_its_own_statistics(engine):
    """Polled, surveyed, compared and evaluated; client 2 never trained and has a mean of 0 and a variance
    of 1."""
    task = normed_task("local", steps=5)
    (state,) = rounds(task, (0, 1))
    weights, worker, everybody = state.groups[0].weights, engine(task), torch.arange(3)
    own = [state.clients[0]["buffers"], state.clients[1]["buffers"], torch.tensor([0.0, 1.0, 0.0])]
    expected = [by_hand(task, weights, own[client], client) for client in range(3)]
    losses, accuracy = (torch.tensor(column) for column in zip(*expected, strict=True))
    kept = batchnorm.kept(task, state.clients)
    torch.testing.assert_close(worker.losses(ModelTrial([weights], everybody, kept)), losses)
    other = weights._replace(params=-weights.params)
    both = ModelTrial([other, weights], everybody, kept)
    _, told = worker.survey(both, lambda each: each.mean(1))
    torch.testing.assert_close(told[:, 1], losses)
    torch.testing.assert_close(worker.cross_accuracy(both)[1], accuracy)
    scores = worker.score(evaluate.serving(Method.parse("fedavg"), state), kept=kept)
    np.testing.assert_allclose(scores.accuracy, accuracy)
    np.testing.assert_allclose(scores.loss / scores.size, losses, rtol=1e-5)
    with_the_models = worker.losses(ModelTrial([weights], everybody))
    assert (with_the_models[:2] - losses[:2]).abs().min() > 0.01  # whose they are makes a difference
    assert with_the_models[2] == pytest.approx(float(losses[2]))


def test_the_loss_before_training_is_that_of_the_own_statistics():
    task = normed_task("local", steps=5)
    first, _ = rounds(task, (0, 1), (0, 1), text="qfedavg")
    engine, seen = ReferenceEngine(task), []

    class Watched(ReferenceEngine):
        def train(self, *args):
            answers = super().train(*args)
            seen.extend(answers)
            return answers

    method = Method.of(Cohorts(((0, 1),)), Method.parse("qfedavg").averaging)
    step(method, first, task, task.profile(method), Watched(task))
    kept = batchnorm.kept(task, first.clients)
    expected = engine.losses(ModelTrial([first.groups[0].weights], torch.arange(2), kept))
    torch.testing.assert_close(torch.stack([a.probes["loss_before"] for a in seen]), expected)


def test_adaptation_goes_on_with_the_own_statistics():
    """Every client takes one more step: .9 r + .1 m from its own r."""
    task, method = normed_task("local"), Method.parse("fedavg")
    (state,) = rounds(task, (0, 1))
    _, mine = evaluate.adapt(method, state, task, task.profile(method), ReferenceEngine(task))
    assert {client: float(memory["buffers"][0]) for client, memory in mine.items()} == pytest.approx(
        {0: 0.09 + 0.1, 1: 0.45 + 0.5, 2: 0.3}
    )
    rows = evaluate.adapted_rows(method, state, task, task.profile(method), ReferenceEngine(task))
    assert {row.metric for row in rows} >= {"accuracy", "loss"}


class Watched(ReferenceEngine):
    """Notes the running mean with which each client tries a model."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.seen: dict[str, dict[int, float]] = {}

    def note(self, what, clients, kept):
        self.seen[what] = {client: float(kept(client)["buffers"][0]) for client in clients}

    def losses(self, trial, samples=None, number=0):
        self.note("poll", trial.clients.tolist(), trial.kept)
        return super().losses(trial, samples, number)

    def survey(self, trial, answer):
        self.note("survey", trial.clients.tolist(), trial.kept)
        return super().survey(trial, answer)

    def cross_accuracy(self, trial):
        self.note("cross", trial.clients.tolist(), trial.kept)
        return super().cross_accuracy(trial)

    def score(self, models, ahead=None, kept=None, on="test"):
        self.note("score", torch.cat([members for _, members in models]).tolist(), kept)
        return super().score(models, ahead, kept, on)


def test_the_loop_asks_for_the_statistics_of_the_time():
    """Before a round those of the one before, after it and after adaptation those of a step more."""
    task, method = normed_task("local"), Method.parse("fedlecc+cafa+ifca(groups=1)")
    (state,) = rounds(task, (0, 1))
    state = replace(start(method, task, task.profile(method)), clients=state.clients)
    engine, profile = Watched(task), task.profile(method)
    step(method, state, task, profile, engine)
    before, after = {0: 0.1, 1: 0.5, 2: 0.0}, {0: 0.19, 1: 0.95, 2: 0.3}
    assert engine.seen["poll"] == pytest.approx(before)
    assert engine.seen["survey"] == pytest.approx(before)
    assert engine.seen["cross"] == pytest.approx(after)
    evaluate.evaluation_rows(method, state, task, task.profile(method), engine, clients=False)
    assert engine.seen["score"] == pytest.approx(before)
    evaluate.adapted_rows(method, state, task, profile, engine)
    assert engine.seen["score"] == pytest.approx(after)


def test_local_statistics_are_not_sent():
    """4 parameters and 3 buffers of 4 bytes; two clients train, a poll of FedLECC asks all three."""
    for bn, model in (("average", 28), ("fresh", 28), ("local", 16)):
        (state,) = rounds(normed_task(bn), (0, 1))
        data, up = 3 * 5 * 8, model + 20  # of three clients, once; and what is told beside an update
        assert (state.bytes_up, state.bytes_down) == (data + 2 * up, 2 * model)
        task = normed_task(bn, seed=1)
        polled = play(Method.parse("fedlecc"), replace(task, cohort=2), 1)[0]
        counts = 3 * 2 * 8
        assert (polled.bytes_up, polled.bytes_down) == (data + counts + 2 * up + 3 * 8, 3 * model)
        compared = play(Method.parse("cafa"), replace(task, cohort=2), 1)[0]
        assert compared.bytes_down == 2 * model + 2 * model  # and each other's model


EVERYWHERE = ["scaffold", "fedlecc", "cafa", "ifca(groups=2)", "fedsoft(groups=2)", "qfedavg", "local_only"]
EVERYWHERE += [
    "cfl(eps1=9.0, eps2=0.0, ancestors=True)",
    "fedcor(warmup=0, interval=1, first_iterations=5, iterations=5)",
]


def blobs(bn: str) -> Task:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))

    plain = tiny_task(local=Local(lr=0.1, epochs=2, batch=8, bn=bn))  # type: ignore[arg-type]
    return replace(plain, model=Flat(build))


@pytest.mark.parametrize("bn", ["local", "fresh"])
@pytest.mark.parametrize("text", EVERYWHERE)
def test_engines_agree_and_runs_resume(text, bn):
    task, method = blobs(bn), Method.parse(text)
    begun, _ = play(method, task, 2)
    restored = unpack({key: value.clone() for key, value in pack(begun).items()})
    reference, _ = play(method, task, 1, begun)
    assert_same(play(method, task, 1, restored)[0], reference, f"{text} resumed")
    halfway, _ = play(method, task, 2, engine=PoolEngine(task))
    for engine in (PoolEngine(task), BatchedEngine(task, "cpu")):  # which leaves BatchNorm to the pool
        state, _ = play(method, task, 1, halfway, engine)
        assert (state.bytes_up, state.bytes_down) == (reference.bytes_up, reference.bytes_down)
        ours, theirs = pack(state), pack(reference)
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            if "/selector/" in key:  # FedCor's fit takes rounding far
                continue
            torch.testing.assert_close(value, theirs[key], rtol=1e-4, atol=1e-5, msg=key)


def test_without_batch_norm_there_is_nothing_to_keep():
    plain, other = (
        play(Method.parse("scaffold"), tiny_task(local=Local(lr=0.1, bn=bn)))[0]
        for bn in ("average", "local")
    )  # type: ignore[arg-type]
    assert_same(plain, other, "a model without statistics")


def test_data_in_one_place_have_one_set_of_statistics():
    """Everybody is served by it, also clients that hold no training data any more."""
    ours, usual = (play(Method.parse("centralised"), blobs(bn))[0] for bn in ("local", "average"))
    assert_same(ours, usual, "centralised")


def test_merged_networks_are_refused():
    sentence = "fedconcat and local.bn = 'local' cannot be combined: .*use 'average' or 'fresh'"
    with pytest.raises(UserError, match=sentence):
        play(Method.parse("fedconcat(groups=2, rounds=1)"), blobs("local"), 1)
    play(Method.parse("fedconcat(groups=2, rounds=1)"), blobs("fresh"), 2)


def test_a_setting_of_the_experiment():
    assert Experiment.of({"method": "fedavg", "local": {"bn": "fresh"}}).local.bn == "fresh"
    with pytest.raises(UserError, match=r"local\.bn: 'mine' is not 'average' or 'local' or 'fresh'"):
        Experiment.of({"method": "fedavg", "local": {"bn": "mine"}})
