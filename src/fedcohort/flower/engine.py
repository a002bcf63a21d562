"""The engine whose clients are on other machines: what the round loop asks of it becomes letters."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.merge import merged_task
from fedcohort.core.method import Method
from fedcohort.core.parts import Ids, Memory, Merge, Objective
from fedcohort.core.task import Task
from fedcohort.engines import Answer, Order, Scores, Served
from fedcohort.errors import UserError
from fedcohort.flower import wire
from fedcohort.flower.away import Away, Kept
from fedcohort.flower.expect import (
    Expected,
    told_accuracy,
    told_answer,
    told_memory,
    told_number,
    told_scores,
    update_shapes,
)
from fedcohort.flower.keep import NEVER
from fedcohort.flower.nodes import Nodes
from fedcohort.flower.post import Silence
from fedcohort.flower.wire import Letter, write_models

log = logging.getLogger("fedcohort.flower")

EMPTY = 3  # rounds without any answer before a run is given up


class FlowerEngine:
    """Asks real clients. Whatever they answer is checked here; who answers nonsense has not answered."""

    def __init__(self, nodes: Nodes, method: Method, task: Task, run: Mapping[str, Any]) -> None:
        self.nodes, self.method, self.task = nodes, method, task
        self.run = {"merge": None, **run}  # facts that every letter holds
        self.encoders: dict[str, Memory] = {}  # as letters hold them
        self.has_encoders: set[int] = set()
        self.afresh: set[int] = set()  # clients that lost their memory: they start again
        self.empty = 0  # rounds in a row that nobody answered
        self.silent: dict[int, Silence] = {}  # who did not answer the last question
        self._expected: dict[int, Expected] = {}  # answers to the last orders
        self._polled: dict[int, tuple[Tensor, float]] = {}  # params and loss, from the last evaluation
        self._merged: tuple[Sequence[Weights], FlowerEngine] | None = None

    @property
    def messages(self) -> int:
        return self.nodes.post.sent

    def memories(self, versions: Mapping[int, int]) -> Away:
        """What a State holds of clients' memories."""
        return Away(versions, self._fetch)

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "FlowerEngine":
        if self._merged is None or self._merged[0] is not encoders:
            task = merged_task(self.task, encoders, plan)
            engine = FlowerEngine(self.nodes, self.method, task, {**self.run, "merge": plan._asdict()})
            engine.encoders = write_models(encoders, "encoder")
            self._merged = encoders, engine
        return self._merged[1]

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        self._expected = self._expect(objective, orders)
        letters = {order.client: self._order(order, number) for order in orders}
        replies = self._ask(wire.TRAIN, letters, number)
        answers = []
        for client, expected in self._expected.items():
            if client in replies:
                answer = self._noted(expected.read(replies[client]))
                if expected.order.mine and not answer.refused:
                    answer = answer._replace(mine=Kept(number, dict))
                    self.afresh.discard(client)
                answers.append(answer)
            elif self.silent[client].code in (wire.NOT_FINITE, wire.UNREADABLE):
                answers.append(expected.nothing(self.silent[client].why))
        if orders and not orders[0].judged:
            self._count_empty(answers)
        return answers

    def collect(self, answers: Sequence[Answer], number: int) -> list[Answer]:
        letters = {answer.client: self._letter(answer.client, {"number": number}) for answer in answers}
        replies = self._ask(wire.UPDATE, letters, number)
        there = (answer for answer in answers if answer.client in replies)
        complete = [self._noted(self._expected[a.client].complete(a, replies[a.client])) for a in there]
        self._count_empty(complete)
        return complete

    def losses(self, weights: Weights, clients: Ids, samples: int | None = None, number: int = 0) -> Tensor:
        known = {
            client: loss
            for client, (params, loss) in self._polled.items()
            if samples is None and params is weights.params
        }
        facts = {"samples": samples, "number": number}
        models = write_models([weights])
        letters = {c: self._letter(c, facts, models) for c in clients.tolist() if c not in known}
        for client, reply in self._ask(wire.LOSS, letters, number).items():
            known[client] = told_number(reply, "loss")
        return torch.tensor([known.get(client, float("nan")) for client in clients.tolist()])

    def survey(
        self, models: Sequence[Weights], clients: Ids, answer: Callable[[Tensor], Tensor]
    ) -> tuple[Ids, Tensor]:
        """Clients know what to answer: it is their method's."""
        pattern = answer(torch.zeros(len(models), 1))
        written = write_models(models)
        letters = {client: self._letter(client, {}, written) for client in clients.tolist()}
        told: dict[int, Tensor] = {}
        for client, reply in self._ask(wire.SURVEY, letters).items():
            try:
                size = int(self.task.federation.train.sizes[client])
                told[client] = told_answer(reply, pattern, len(models) - 1 if pattern.dim() == 0 else size)
            except ValueError as error:
                self._note(client, f"is refused: {error}")
        there = torch.tensor(sorted(told), dtype=torch.long)
        answers = [told[client] for client in there.tolist()]
        return there, torch.stack(answers) if answers else pattern.new_zeros(0, *pattern.shape)

    def cross_accuracy(self, models: Sequence[Weights], clients: Ids) -> Tensor:
        written = write_models(models)
        letters = {client: self._letter(client, {}, written) for client in clients.tolist()}
        replies = self._ask(wire.CROSS, letters)
        table = torch.full((len(models), len(clients)), torch.nan)
        for column, client in enumerate(clients.tolist()):
            if client in replies:
                table[:, column] = told_accuracy(replies[client], len(models))
        return table

    def score(self, models: Sequence[Served]) -> Scores:
        """The same message asks for the loss on training data if the method will poll for it."""
        letters: dict[int, Letter] = {}
        params: dict[int, Tensor] = {}
        poll = "losses" in self.method.uses
        for model, members in models:
            own = model.version if isinstance(model, Kept) else None
            sent = {} if own is not None else {"model/0": model}
            for client in members.tolist():
                if own is None:
                    params[client] = model["params"]
                letters[client] = self._letter(client, {"version": own, "poll": poll}, sent)
        replies = self._ask(wire.SCORE, letters)
        self._polled = {
            client: (params[client], told_number(reply, "train_loss"))
            for client, reply in replies.items()
            if poll and client in params
        }
        return told_scores(replies, self.task.federation)

    def _expect(self, objective: Objective, orders: Sequence[Order]) -> dict[int, Expected]:
        if not orders:
            return {}
        federation, at_once = self.task.federation, not (orders[0].judged or self.method.silent)
        fixed = update_shapes(objective, self._blank(objective), orders[0]), federation.num_classes, at_once
        return {o.client: Expected(o, int(federation.train.sizes[o.client]), *fixed) for o in orders}

    def _order(self, order: Order, number: int) -> Letter:
        version = order.mine.version if isinstance(order.mine, Kept) else NEVER
        facts = {
            "number": number,
            "version": NEVER if order.client in self.afresh else version,
            "budget": asdict(order.budget),
            "probes": sorted(order.probes),
            "judged": order.judged,
        }
        quota = {} if order.quota is None else {"quota": {"quota": order.quota.long()}}
        return self._letter(order.client, facts, {"down": {} if self.method.silent else order.down, **quota})

    def _letter(
        self, client: int, facts: Mapping[str, Any], tensors: Mapping[str, Memory] | None = None
    ) -> Letter:
        sent = dict(tensors or {})
        if client not in self.has_encoders:
            sent |= self.encoders
        return Letter({**self.run, "client": client, **facts}, sent)

    def _ask(self, kind: str, letters: Mapping[int, Letter], number: int | None = None) -> dict[int, Letter]:
        """The answers of those who gave one."""
        replies, self.silent = {}, {}
        for client, reply in self.nodes.ask(kind, letters, "" if number is None else str(number)).items():
            if not isinstance(reply, Silence):
                replies[client] = reply
                self.has_encoders.add(client)
                continue
            self.silent[client] = reply
            self._note(client, reply.why)
            if reply.code == wire.FORGOT:
                self.afresh.add(client)
            if reply.code == wire.NO_ENCODERS:
                self.has_encoders.discard(client)
        return replies

    def _fetch(self, versions: dict[int, int]) -> dict[int, Memory]:
        """Clients' memories; of one that does not answer, that of a client that never trained."""
        letters = {c: self._letter(c, {"version": version}) for c, version in versions.items()}
        replies = self._ask(wire.MEMORY, letters)
        blank = self._blank(self.method.objective)
        return {c: told_memory(replies[c], blank) if c in replies else blank for c in versions}

    def _blank(self, objective: Objective) -> Memory:
        """What a client that never trained remembers."""
        return objective.init_client(self.task.profile(self.method))

    def _count_empty(self, answers: Sequence[Answer]) -> None:
        """A run in which nobody trains would end as if it had learned something."""
        self.empty = 0 if any(not answer.refused for answer in answers) else self.empty + 1
        if self.empty >= EMPTY:
            raise UserError(
                f"no client answered in {EMPTY} rounds in a row: check that clients are connected and that "
                f"round-timeout ({self.nodes.post.timeout:.0f} s) is long enough, then resume the run"
            )

    def _noted(self, answer: Answer) -> Answer:
        if answer.refused:
            self._note(answer.client, f"is refused: {answer.refused}")
        return answer

    def _note(self, client: int, what: str) -> None:
        log.warning("%s %s", self.task.federation.clients[client], what)
