"""A client's answers to messages: the simulation's reference engine, on a federation of this client alone.

What the client's own policy forbids is refused here, before anything is computed.
"""

import logging
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from fedcohort.core import batchnorm, uploads
from fedcohort.core.adapting import Alone
from fedcohort.core.engine import Answer, ModelTrial, Order, Samples
from fedcohort.core.method import Method
from fedcohort.core.noise import tidied
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Memory, Recall, Round
from fedcohort.core.roles import PROBES
from fedcohort.core.roles.optional import Asks, Polls, Rations
from fedcohort.core.round.merge import plan_of
from fedcohort.core.schema import (
    FACTS,
    answers_of,
    by_class_fields,
    cross_fields,
    memory_fields,
    poll_fields,
    score_fields,
    survey_fields,
    training_fields,
    update_fields,
)
from fedcohort.core.task import Task
from fedcohort.data.preparation import preparation_of
from fedcohort.data.scaling import Scale, ScaleRule
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.flower import messages
from fedcohort.flower.client_store import NEVER, ClientStore
from fedcohort.flower.data_answer import DataAnswer
from fedcohort.flower.fields import write_fields
from fedcohort.flower.messages import Payload, read_models
from fedcohort.flower.policy import CarefulEngine, Policy, Refusal, refuse, whole
from fedcohort.models.flat import Weights
from fedcohort.models.last_layer import completed
from fedcohort.serving.architecture import Architecture
from fedcohort.serving.model import ServedModel
from fedcohort.util.settings import build

log = logging.getLogger("fedcohort.flower")

LATEST = 2**31  # a round after all others


class Handler:
    """One client in one run: the only one of its task."""

    def __init__(
        self,
        method: Method,
        task: Task,
        store: ClientStore,
        policy: Policy,
        reading: Mapping[str, Any],
        model: Mapping[str, Any],
    ) -> None:
        """``reading`` are the run's options for reading the client's data, which the server chose; ``model``
        is the network as the run names it."""
        self.method, self.task, self.store, self.policy = method, task, store, policy
        self.reading, self.model = reading, model
        self.engine = ReferenceEngine(task) if policy.exact else CarefulEngine(task)
        self.alone = torch.tensor([0])
        self.data = DataAnswer(method, task, store, policy, reading)

    def answer(self, kind: str, payload: Payload) -> Payload:
        """By the method that is called as the schema calls the message; Refusal where there is no answer."""
        message = messages.KINDS[kind]
        if message not in answers_of(self.method):
            raise refuse(f"a question for its {message}: {self.method} asks for none")
        answer: Payload = getattr(self, message)(payload)
        return answer

    def profile(self, payload: Payload) -> Payload:
        return self.data.answer()

    def poll(self, payload: Payload) -> Payload:
        engine, number = self.present(payload), whole(payload.facts, "number", 0, LATEST)
        now = Round(number, _profile(engine.task), 0, self.alone, 1)
        selector = self.method.selector
        samples = selector.poll_samples(now) if isinstance(selector, Polls) else None
        if payload.facts.get("samples") != samples:
            raise refuse(
                f"the loss on other than {samples or 'all'} samples: {self.method} measures it there"
            )
        loss = self._loss(engine, self._trial(engine, payload, 1), samples, number)
        return write_fields(poll_fields(), {FACTS: {"loss": loss}})

    def _loss(
        self, engine: ReferenceEngine, trial: ModelTrial, samples: int | None = None, number: int = 0
    ) -> float:
        """On training data: all of them, or as many as the method draws."""
        size = engine.task.data.client(0).size()
        used = size if samples is None else min(size, samples)
        self.policy.check_samples(used, "a loss")
        return self.policy.loss(float(engine.losses(trial, samples, number)), used)

    def survey(self, payload: Payload) -> Payload:
        engine = self.present(payload)
        size = engine.task.data.client(0).size()
        self.policy.check_samples(size, "an answer about models")
        grouping, profile = self.method.grouping, _profile(engine.task)
        most = None
        if grouping.has_own("init_models"):
            most = len(grouping.init_models(grouping.init_grouping(profile), profile))
        trial = self._trial(engine, payload, most)
        if not self.policy.exact:  # the more models, the finer is what the choice of one says
            self.policy.check_samples(size // len(trial.models), f"for each of {len(trial.models)} models")
        assert isinstance(grouping, Asks)  # noqa: S101  # or no survey would be answered
        answer = grouping.answer
        _, answers = engine.survey(trial, lambda losses: self.policy.answer(answer, losses))
        fields = survey_fields(answer, len(trial.models))
        return write_fields(fields, {"answer": {"answer": answers[0]}})

    def training(self, payload: Payload) -> Payload:
        facts, engine = payload.facts, self.present(payload)
        number, version = whole(facts, "number", 0, LATEST), whole(facts, "version", NEVER, LATEST)
        keep = whole(facts, "keep", NEVER, LATEST)
        order = self._order(payload, self._mine(engine, version))
        self._check_order(engine, order)
        trained = engine.train(self.method.objective, [order], number)
        if not trained:
            raise Refusal(messages.NOTHING)
        (answer,) = trained
        update = uploads.record(self.method.transforms, answer.up, answer.buffers)
        if not _finite(*update.values(), *answer.mine.values(), *answer.probes.values()):
            raise Refusal(messages.NOT_FINITE)
        if answer.mine:
            self.store.remember(answer.mine, number, version, keep)
        fields = training_fields(self.method, engine.task.data.num_classes, answer.steps, order.probes)
        told: dict[str, Mapping[str, Any]] = {
            FACTS: {"steps": answer.steps, "size": answer.size},
            "trace": {"trace": self._trace(engine, order, answer)},
            "probes": self._probes(answer),
        }
        if self.method.silent:  # it trains for itself alone
            return write_fields(fields, told)
        if facts["judged"]:
            self.store.hold(update, number)
            return write_fields(fields, told)
        return write_fields(fields + update_fields(update), {**told, "update": update})

    def _order(self, payload: Payload, mine: Memory) -> Order:
        quota = payload.tensors.get("quota", {}).get("quota")
        budget, probes = build(Local, payload.facts["budget"], "budget"), frozenset(payload.facts["probes"])
        transforms = self.method.transforms
        return Order(0, payload.tensors["down"], mine, budget, probes, quota, False, transforms)

    def _check_order(self, engine: ReferenceEngine, order: Order) -> None:
        """Refuses what the method that this client agreed to would not order."""
        if order.quota is not None and not (self.policy.exact and isinstance(self.method.selector, Rations)):
            raise refuse("to train on so many samples of each class: it would tell how many there are")
        if unused := order.probes - self.method.uses.intersection(PROBES):
            raise refuse(f"to tell {', '.join(map(str, unused))} beside training: {self.method} uses none")
        size = engine.size(order)
        steps = order.budget.steps_for(size)
        if steps > engine.task.local.steps_for(size):
            raise refuse("to take more steps than the experiment says")
        if size:
            self.policy.check_samples(min(size, steps * engine.task.local.batch), "training")

    def _probes(self, answer: Answer) -> Memory:
        """What is told beside training."""
        told = dict(answer.probes)
        if "loss_before" in told:
            told["loss_before"] = torch.tensor(self.policy.loss(float(told["loss_before"]), answer.size))
        if "outputs" in told and not self.policy.exact:  # of a model that is sure, how many it calls what
            of = answer.size
            counts = [self.policy.count(of * float(share), of) for share in told["outputs"]]
            told["outputs"] = tidied(torch.tensor(counts), 1).float()
        return told

    def update(self, payload: Payload) -> Payload:
        update = self.store.held(whole(payload.facts, "number", 0, LATEST))
        if update is None:
            raise Refusal(messages.NOTHING)
        return write_fields(update_fields(update), {"update": update})

    def cross(self, payload: Payload) -> Payload:
        engine = self.present(payload)
        held = int(engine.task.data.validation.sizes[0])
        self.policy.check_samples(held, "an accuracy")
        accuracy = engine.cross_accuracy(self._trial(engine, payload))[:, 0]
        told = [self.policy.count(float(each) * held, held) / held for each in accuracy]
        accuracy = accuracy if self.policy.exact else torch.tensor(told)
        return write_fields(cross_fields(len(accuracy)), {"accuracy": {"accuracy": accuracy}})

    def _trial(self, engine: ReferenceEngine, payload: Payload, most: int | None = None) -> ModelTrial:
        """The models that the message brings, for this client to try."""
        models = read_models(payload)
        if not models or (most is not None and len(models) > most):
            raise refuse(f"to try {len(models)} models: {self.method} sends {most or 'some'}")
        return ModelTrial(models, self.alone, self._kept(engine, payload))

    def memory(self, payload: Payload) -> Payload:
        """What its objective remembers; statistics that are its own never leave it."""
        engine = self.present(payload)
        mine = self._mine(engine, whole(payload.facts, "version", NEVER, LATEST))
        wanted = self.method.objective.init_client(_profile(engine.task))
        return write_fields(memory_fields(wanted), {"memory": {key: mine[key] for key in wanted}})

    def evaluation(self, payload: Payload) -> Payload:
        """On its test or validation data; if the method polls, also the loss on its training data, which
        saves the next poll, and then the training of the next round."""
        engine, facts = self.present(payload), payload.facts
        model = self._served(engine, payload)
        kept = self._kept(engine, payload)
        used = self._adapted(engine, model, kept, facts.get("adapt"))
        try:
            self._keep(*used, payload)
        except Exception:  # somebody's own network, or a full disk: the run goes on without
            log.exception("the model that serves this client cannot be kept for use")
        told, by_class = self._scores(engine, *used, _samples(facts))
        fields = score_fields()
        if facts["poll"] and "losses" in self.method.uses:
            weights = Weights(model["params"], model["buffers"])
            told["train_loss"] = self._loss(engine, ModelTrial([weights], self.alone, kept))
            fields += poll_fields(name="train_loss")
        fields += by_class_fields(engine.task.data.num_classes) if by_class else ()
        answer = write_fields(fields, {FACTS: told, **({"by_class": by_class} if by_class else {})})
        if facts["order"] is None:
            return answer
        try:
            trained = self.training(Payload({**facts, **facts["order"]}, payload.tensors))
        except Refusal as refusal:
            trained = Payload({"code": refusal.code}, {})
        return answer.and_also(Payload({"trained": trained.facts}, trained.tensors))

    def _adapted(
        self, engine: ReferenceEngine, model: Memory, kept: Recall | None, how: Mapping[str, Any] | None
    ) -> tuple[Memory, Recall | None]:
        """What this client makes of the model that serves it, with statistics of its own, if it is to make
        anything; not on few samples, for its answers to others would tell of them."""
        if how is None:
            return model, kept
        number, version = whole(how, "number", 0, LATEST), whole(how, "version", NEVER, LATEST)
        order = Order(0, model, self._mine(engine, version), build(Local, how["budget"], "budget"))
        size = engine.size(order)
        agreed = self.method.adaptation.budget(engine.task.local)
        if agreed is None or order.budget.steps_for(size) > agreed.steps_for(size):
            raise refuse("to train its own model, or longer than the experiment says")
        if size < self.policy.min_samples:
            return model, kept
        made = engine.adapt(Alone.of(self.method, engine.task.model), [order], number)
        return (made[0][0], None) if made else (model, kept)

    def _scores(
        self, engine: ReferenceEngine, model: Memory, kept: Recall | None, on: Samples
    ) -> tuple[dict[str, Any], Memory]:
        """Of all test samples and, where that may be told, class by class. Nothing but their number is told
        of few samples."""
        scores = engine.score([(model, self.alone)], kept=kept, on=on)
        size, right, loss = (float(column[0]) for column in scores[:3])
        count = int(size)
        if 0 < count < self.policy.min_samples:
            return {"size": count, "right": None, "loss": None}, {}
        if count and not self.policy.exact:
            right, loss = self.policy.count(right, count), count * self.policy.loss(loss / count, count)
        told = {"size": count, "right": int(right), "loss": loss}
        if scores.tally is None or self.data.level != "exact":
            return told, {}
        return told, scores.tally.of_one(engine.task.data.num_classes)

    def _served(self, engine: ReferenceEngine, payload: Payload) -> Memory:
        """The model that serves this client: its own, one sent for this, or the one it is to train."""
        if payload.facts["version"] is not None:
            return self._mine(engine, whole(payload.facts, "version", NEVER, LATEST))
        return payload.tensors.get("model/0") or payload.tensors["down"]

    def _keep(self, model: Memory, kept: Recall | None, payload: Payload) -> None:
        """The model that serves this client stays here, ready for use."""
        data, settings = self.task.data, {key: value for key, value in self.model.items() if key != "name"}
        rule: ScaleRule = self.reading.get("scale", "federated")
        rule = "client" if rule == "federated" and data.scale is None else rule
        preparation, scaling = preparation_of(data, rule), None
        if not data.vocabulary:
            own = data.own_scale and Scale(*(table[0] for table in data.own_scale))
            scaling = data.scale or own or Scale.plain(data.shape[0])
        weights = batchnorm.worn(Weights(model["params"], model["buffers"]), kept and kept(0))
        encoders = self.store.encoders() if payload.facts["merge"] else None
        plain = Architecture(self.model["name"], settings, data.shape, data.vocabulary)
        fits, network = plain.holding(self.task.model, weights, encoders or (), data.num_classes)
        words = f"client {data.clients[0]}"
        self.store.keep_served(ServedModel(network, fits, data.classes, preparation, scaling, words))

    def present(self, payload: Payload) -> ReferenceEngine:
        """The engine; once models are merged, that of the merged task."""
        if payload.facts["merge"] is None:
            return self.engine
        plan = plan_of(self.method.grouping, LATEST)
        if plan is None or payload.facts["merge"] != plan._asdict():
            raise refuse(f"to merge models: {self.method} does not, or not so")
        if sent := read_models(payload, "encoder"):
            self.store.store_encoders([completed(self.task.model, encoder) for encoder in sent])
        encoders = self.store.encoders()
        if encoders is None:
            raise Refusal(messages.NO_ENCODERS)
        return self.engine.merged(encoders, plan)

    def _mine(self, engine: ReferenceEngine, version: int) -> Memory:
        if version == NEVER:
            return uploads.blank(self.method, _profile(engine.task))
        mine = self.store.memory(version)
        if mine is None:
            raise Refusal(messages.FORGOT)
        return mine

    def _kept(self, engine: ReferenceEngine, payload: Payload) -> Recall | None:
        """Its own statistics, if it is to use models with these."""
        if payload.facts["statistics"] is None:
            return None
        mine = self._mine(engine, whole(payload.facts, "statistics", NEVER, LATEST))
        return lambda _: mine

    def _trace(self, engine: ReferenceEngine, order: Order, answer: Answer) -> Tensor:
        """The loss of every step if the method asks for it, else their mean. Nothing caps the loss of one
        sample there: unless all may be known, the loss before the first step is told instead."""
        if "trace" in self.method.uses or not answer.steps:
            return self.policy.steps(answer.trace, answer.size, self.task.local)
        if self.policy.exact:
            return answer.trace.mean()[None]
        began = order.down if "params" in order.down else order.mine
        kept = (lambda _: order.mine) if engine.keeps else None
        trial = ModelTrial([Weights(began["params"], began["buffers"])], self.alone, kept)
        return torch.tensor([self._loss(engine, trial)])


def _profile(task: Task) -> Profile:
    """What this client knows: nothing of the others."""
    own = task.data
    sizes = own.train.sizes, own.validation.sizes
    return Profile(*sizes, None, own.num_classes, task.model, task.local, task.seed, shape=own.shape)


def _samples(facts: Mapping[str, Any]) -> Samples:
    """Those by which a server wants a model to be scored."""
    on: Any = facts.get("on")
    if on not in get_args(Samples):
        raise refuse("to score a model by other than test or validation samples")
    return on


def _finite(*values: Tensor) -> bool:
    return all(bool(value.isfinite().all()) for value in values)
