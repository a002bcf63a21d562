"""A client's answers to letters: the simulation's reference engine, on a federation in which it is alone."""

import torch
from torch import Tensor

from fedcohort.core import statistics
from fedcohort.core.engine import Answer, Order, Trial
from fedcohort.core.flat import Weights
from fedcohort.core.method import Method
from fedcohort.core.parts import Memory, Merge, Recall
from fedcohort.core.profile import Local, Profile
from fedcohort.core.task import Task
from fedcohort.engines.loop import LoopEngine
from fedcohort.flower import wire
from fedcohort.flower.keep import NEVER, Keep
from fedcohort.flower.wire import Letter, read_models


class Refusal(Exception):  # noqa: N818  # an answer, not a mistake
    """The client cannot do what it was asked; ``code`` is all that the server is told."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Worker:
    """One client in one run. In its task, all clients but this one have no data."""

    def __init__(self, method: Method, task: Task, client: int, keep: Keep) -> None:
        self.method, self.task, self.client, self.keep = method, task, client, keep
        self.engine = LoopEngine(task)
        self.alone = torch.tensor([client])

    def answer(self, kind: str, letter: Letter) -> Letter:
        """Refusal where there is no answer."""
        hooks = {
            wire.PROFILE: self.profile,
            wire.LOSS: self.loss,
            wire.SURVEY: self.survey,
            wire.TRAIN: self.train,
            wire.UPDATE: self.update,
            wire.CROSS: self.cross,
            wire.MEMORY: self.memory,
            wire.SCORE: self.score,
        }
        return hooks[kind](letter)

    def profile(self, letter: Letter) -> Letter:
        """Who it is; label counts and summaries only if the method uses them, and as privacy has it."""
        federation, method = self.task.federation, self.method
        told = federation.tell_of([self.client], method, self.task.privacy, self.keep.secret())
        splits = federation.train, federation.validation, federation.test
        facts = {
            "name": federation.clients[self.client],
            "sizes": [int(split.sizes[self.client]) for split in splits],
            "classes": list(federation.classes),
            "shape": list(federation.shape),
            "vocabulary": federation.vocabulary,
        }
        revealed = {name: table[0] for name, table in told.summaries.items()}
        if told.counts is not None and "counts" in method.uses:
            return Letter(facts, {"counts": {"counts": told.counts[0]}, "summaries": revealed})
        return Letter(facts, {"summaries": revealed})

    def loss(self, letter: Letter) -> Letter:
        engine, facts = self.present(letter), letter.facts
        loss = engine.losses(self._trial(engine, letter), facts["samples"], facts["number"])
        return Letter({"loss": float(loss)}, {})

    def survey(self, letter: Letter) -> Letter:
        engine = self.present(letter)
        _, answers = engine.survey(self._trial(engine, letter), self.method.grouping.answer)
        return Letter({}, {"answer": {"answer": answers[0]}})

    def train(self, letter: Letter) -> Letter:
        facts, engine = letter.facts, self.present(letter)
        quota = letter.tensors.get("quota", {}).get("quota")
        mine = self._mine(engine, facts["version"])
        probes = frozenset(facts["probes"])
        order = Order(self.client, letter.tensors["down"], mine, Local(**facts["budget"]), probes, quota)
        trained = engine.train(self.method.objective, [order], facts["number"])
        if not trained:
            raise Refusal(wire.NOTHING)
        (answer,) = trained
        update = {**answer.up, "buffers": answer.buffers}
        if not _finite(*update.values(), *answer.mine.values(), *answer.probes.values()):
            raise Refusal(wire.NOT_FINITE)
        if answer.mine:
            self.keep.remember(answer.mine, facts["number"], facts["version"])
        told = {"steps": answer.steps, "reach": answer.reach, "size": answer.size}
        tensors = {"trace": {"trace": self._trace(answer)}, "probes": answer.probes}
        if self.method.silent:  # it trains for itself alone
            return Letter(told, tensors)
        if facts["judged"]:
            self.keep.hold(update, facts["number"])
            return Letter(told, tensors)
        return Letter(told, {**tensors, "update": update})

    def update(self, letter: Letter) -> Letter:
        update = self.keep.held(letter.facts["number"])
        if update is None:
            raise Refusal(wire.NOTHING)
        return Letter({}, {"update": update})

    def cross(self, letter: Letter) -> Letter:
        engine = self.present(letter)
        table = engine.cross_accuracy(self._trial(engine, letter))
        return Letter({}, {"accuracy": {"accuracy": table[:, 0]}})

    def _trial(self, engine: LoopEngine, letter: Letter) -> Trial:
        """The models that the letter brings, for this client to try."""
        return Trial(read_models(letter), self.alone, self._kept(engine, letter))

    def memory(self, letter: Letter) -> Letter:
        """What its objective remembers; statistics that are its own never leave it."""
        engine = self.present(letter)
        mine = self._mine(engine, letter.facts["version"])
        wanted = self.method.objective.init_client(_profile(engine.task))
        return Letter({}, {"memory": {key: mine[key] for key in wanted}})

    def score(self, letter: Letter) -> Letter:
        """On its test data; if asked, also the loss on its training data, which saves the next poll, and then
        the training of the next round."""
        engine, facts = self.present(letter), letter.facts
        model = self._served(engine, letter)
        kept = self._kept(engine, letter)
        scores = engine.score([(model, self.alone)], kept=kept)
        size, right, loss = (float(column[self.client]) for column in scores[:3])
        told = {"size": int(size), "right": int(right), "loss": loss}
        if facts["poll"]:
            weights = Weights(model["params"], model["buffers"])
            told["train_loss"] = float(engine.losses(Trial([weights], self.alone, kept)))
        tensors: dict[str, Memory] = {}
        if scores.by_class is not None and self.method.privacy(self.task.privacy).counts == "exact":
            rows = [torch.from_numpy(table[self.client]).long() for table in scores.by_class]
            tensors["by_class"] = {"size": rows[0], "right": rows[1]}
        if facts["order"] is None:
            return Letter(told, tensors)
        try:
            trained = self.train(Letter({**facts, **facts["order"]}, letter.tensors))
        except Refusal as refusal:
            trained = Letter({"code": refusal.code}, {})
        return Letter({**told, "trained": trained.facts}, {**tensors, **trained.tensors})

    def _served(self, engine: LoopEngine, letter: Letter) -> Memory:
        """The model that serves this client: its own, one sent for this, or the one it is to train."""
        if letter.facts["version"] is not None:
            return self._mine(engine, letter.facts["version"])
        return letter.tensors.get("model/0") or letter.tensors["down"]

    def present(self, letter: Letter) -> LoopEngine:
        """The engine; once models are merged, that of the merged task."""
        if letter.facts["merge"] is None:
            return self.engine
        if sent := read_models(letter, "encoder"):
            self.keep.store_encoders(sent)
        encoders = self.keep.encoders()
        if encoders is None:
            raise Refusal(wire.NO_ENCODERS)
        return self.engine.merged(encoders, Merge(**letter.facts["merge"]))

    def _mine(self, engine: LoopEngine, version: int) -> Memory:
        if version == NEVER:
            return statistics.blank(self.method.objective, _profile(engine.task))
        mine = self.keep.memory(version)
        if mine is None:
            raise Refusal(wire.FORGOT)
        return mine

    def _kept(self, engine: LoopEngine, letter: Letter) -> Recall | None:
        """Its own statistics, if it is to use models with these."""
        version = letter.facts["statistics"]
        if version is None:
            return None
        mine = self._mine(engine, version)
        return lambda _: mine

    def _trace(self, answer: Answer) -> Tensor:
        """The loss of every step if the method asks for it, else their mean."""
        if "trace" in self.method.uses or not answer.steps:
            return answer.trace
        return answer.trace.mean()[None]


def _profile(task: Task) -> Profile:
    """What this client knows: nothing of the others."""
    own = task.federation
    sizes = own.train.sizes, own.validation.sizes
    return Profile(*sizes, None, own.num_classes, task.model, task.local, task.seed, shape=own.shape)


def _finite(*values: Tensor) -> bool:
    return all(bool(value.isfinite().all()) for value in values)
