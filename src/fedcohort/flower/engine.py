"""The engine whose clients are on other machines: what the round loop asks of it becomes messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedcohort.core.engine import Ahead, Answer, ModelTrial, Order, Samples, Scores, Served
from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory, Merge, Recall
from fedcohort.core.roles import Objective
from fedcohort.core.round.merge import merged_task
from fedcohort.core.schema import (
    ADAPTATION,
    memory_fields,
    model_records,
    order_records,
    poll_fields,
    survey_fields,
    update_fields,
)
from fedcohort.core.task import Task
from fedcohort.core.trust import Trust
from fedcohort.core.uploads import unmoved
from fedcohort.flower import messages
from fedcohort.flower.client_store import NEVER
from fedcohort.flower.event_log import note
from fedcohort.flower.fields import read_record
from fedcohort.flower.messages import Payload
from fedcohort.flower.nodes import Nodes
from fedcohort.flower.remote_store import RemoteMemory, RemoteStore
from fedcohort.flower.transport import Silence, enclosed, understood
from fedcohort.flower.validation import (
    ExpectedAnswer,
    Norms,
    Score,
    all_scores,
    incredible,
    outsized,
    read_accuracy,
    read_answer,
    read_loss,
    read_score,
)
from fedcohort.models.flat import Weights
from fedcohort.models.last_layer import encoder
from fedcohort.util.errors import UserError

T = TypeVar("T")

EMPTY = 3  # rounds without any answer before a run is given up


class Early(NamedTuple):
    """What a client made of an order that it got with an evaluation."""

    facts: dict[str, Any]  # of the order: it counts if the round gives the same one
    reply: Payload | Silence


class Adapting(dict[str, Tensor]):
    """Models that clients are to make of the one they are sent before they are scored."""

    def __init__(self, orders: Sequence[Order], number: int) -> None:
        super().__init__()
        self.orders, self.number = {order.client: order for order in orders}, number
        self.sent = orders[0].down


class FlowerEngine:
    """Asks real clients. Whatever they answer is checked here; who answers nonsense has not answered."""

    def __init__(
        self, nodes: Nodes, method: Method, task: Task, run: Mapping[str, Any], trust: Trust
    ) -> None:
        self.nodes, self.method, self.task, self.trust = nodes, method, task, trust
        self.run = {"merge": None, **run}  # facts that every message holds
        self.encoders: dict[str, Memory] = {}  # as messages hold them
        self.has_encoders: set[int] = set()
        self.afresh: set[int] = set()  # clients that lost their memory: they start again
        self.empty = 0  # rounds in a row that nobody answered
        self.silent: dict[int, Silence] = {}  # who did not answer the last question
        self._expected: dict[int, ExpectedAnswer] = {}  # answers to the last orders
        self._early: dict[int, Early] = {}  # from the last evaluation
        self._polled: dict[int, tuple[Tensor, float]] = {}  # params and loss, from the last evaluation
        self._norms: Norms = {}  # of what clients sent and was believed
        self._model: float | None = None  # norm of the model that the run began with
        self._merged: tuple[Sequence[Weights], FlowerEngine] | None = None

    @property
    def messages(self) -> int:
        return self.nodes.transport.sent

    def memories(self, versions: Mapping[int, int]) -> RemoteStore:
        """What a State holds of clients' memories."""
        return RemoteStore(versions, self._fetch)

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "FlowerEngine":
        if self._merged is None or self._merged[0] is not encoders:
            task = merged_task(self.task, encoders, plan)
            run = {**self.run, "merge": plan._asdict()}
            engine = FlowerEngine(self.nodes, self.method, task, run, self.trust)
            cut = [encoder(self.task.model, weights) for weights in encoders]
            engine.encoders = model_records(cut, "encoder")
            self._merged = encoders, engine
        return self._merged[1]

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        self._expected = self._expect(objective, orders)
        written = {order.client: self._order(order, number) for order in orders}
        known = {client: early for client, early in self._early.items() if client in written}
        early = {c: each.reply for c, each in known.items() if _same(each.facts, written[c].facts)}
        self._early = {}
        payloads = {c: self._message(c, *order) for c, order in written.items() if c not in early}
        read = self._read_answer
        told = self._ask(messages.TRAIN, payloads, read, number)
        told |= self._heard({c: reply for c, reply in early.items() if not isinstance(reply, Silence)}, read)
        self.silent |= {c: reply for c, reply in early.items() if isinstance(reply, Silence)}  # noted then
        told = self._credible(told)
        answers = []
        for client, expected in self._expected.items():
            if client in told:
                answer = told[client]
                if expected.order.mine:
                    answer = answer._replace(mine=RemoteMemory(number, dict))
                    self.afresh.discard(client)
                answers.append(answer)
            elif self.silent[client].code in (messages.NOT_FINITE, messages.UNREADABLE):
                answers.append(expected.nothing(self.silent[client].why))
        if orders and not orders[0].judged:
            self._count_empty(answers)
        return answers

    def adapt(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Served]:
        """Clients know what to minimise: it is their method's."""
        alike: dict[int, list[Order]] = {}
        for order in orders:
            alike.setdefault(id(order.down), []).append(order)
        return [(Adapting(some, number), torch.tensor([o.client for o in some])) for some in alike.values()]

    def collect(self, answers: Sequence[Answer], number: int) -> list[Answer]:
        payloads = {answer.client: self._message(answer.client, {"number": number}) for answer in answers}
        known = {answer.client: answer for answer in answers}

        def read(client: int, payload: Payload) -> Answer:
            return self._expected[client].complete(known[client], payload)

        told = self._credible(self._ask(messages.UPDATE, payloads, read, number))
        refused = [c for c, silence in self.silent.items() if silence.code == messages.UNREADABLE]
        told |= {client: self._expected[client].nothing(self.silent[client].why) for client in refused}
        self._count_empty(list(told.values()))
        return [told[client] for client in known if client in told]

    def _read_answer(self, client: int, payload: Payload) -> Answer:
        return self._expected[client].read(payload)

    def _credible(self, told: Mapping[int, Answer]) -> dict[int, Answer]:
        """The answers of those whose updates, or losses that count, are not far larger than most."""
        odd = self._incredible({client: self._weighing_loss(answer) for client, answer in told.items()})
        told = {client: answer for client, answer in told.items() if client not in odd}
        large = self._outsized({c: {**answer.up, "buffers": answer.buffers} for c, answer in told.items()})
        self._refuse(large)
        return {client: answer for client, answer in told.items() if client not in large}

    def _weighing_loss(self, answer: Answer) -> float:
        """The largest that the method makes something of; 0 if it does not."""
        used = [answer.trace] if "trace" in self.method.uses else []
        used += [answer.probes["loss_before"]] if "loss_before" in answer.probes else []
        return max((float(loss.max()) for loss in used if loss.numel()), default=0.0)

    def _incredible(self, losses: Mapping[int, float]) -> set[int]:
        """Who tells a loss far above those of most, and is refused."""
        odd = incredible(losses, self.task.federation.num_classes, self.trust)
        self._refuse(odd)
        return set(odd)

    def _outsized(self, sent: Mapping[int, Memory]) -> dict[int, str]:
        if self._model is None:
            params = self.task.model.init(self.task.seed).params
            self._model = float(torch.linalg.vector_norm(params, dtype=torch.float64))
        return outsized(sent, self.trust, self._norms, self._model)

    def _refuse(self, odd: Mapping[int, str]) -> None:
        for client, why in odd.items():
            self.silent[client] = Silence(why, messages.UNREADABLE)
            self._note(client, why)

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        known = {
            client: loss
            for client, (params, loss) in self._polled.items()
            if samples is None and params is trial.models[0].params
        }
        facts = {"samples": samples, "number": number}
        clients = trial.clients.tolist()
        unknown = [client for client in clients if client not in known]
        payloads = self._trials(trial._replace(clients=torch.tensor(unknown, dtype=torch.long)), facts)
        fields = poll_fields(self.trust)
        known |= self._ask(messages.LOSS, payloads, lambda _, payload: read_loss(payload, fields), number)
        odd = self._incredible({client: known[client] for client in clients if client in known})
        return torch.tensor([torch.nan if c in odd else known.get(c, torch.nan) for c in clients])

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        """Clients know what to answer: it is their method's."""
        models = len(trial.models)
        pattern = answer(torch.zeros(models, 1))

        def read(client: int, payload: Payload) -> Tensor:
            size = int(self.task.federation.sizes[0, client])
            return read_answer(payload, survey_fields(answer, models, size, self.trust))

        told = self._ask(messages.SURVEY, self._trials(trial), read)
        there = torch.tensor(sorted(told), dtype=torch.long)
        answers = [told[client] for client in there.tolist()]
        return there, torch.stack(answers) if answers else pattern.new_zeros(0, *pattern.shape)

    def cross_accuracy(self, trial: ModelTrial) -> Tensor:
        models = len(trial.models)
        told = self._ask(
            messages.CROSS, self._trials(trial), lambda _, payload: read_accuracy(payload, models)
        )
        table = torch.full((models, len(trial.clients)), torch.nan)
        for column, client in enumerate(trial.clients.tolist()):
            if client in told:
                table[:, column] = told[client]
        return table

    def score(
        self,
        models: Sequence[Served],
        ahead: Ahead | None = None,
        kept: Recall | None = None,
        on: Samples = "test",
    ) -> Scores:
        """The same message asks for the loss on training data if the method will poll for it, says how the
        model is trained further first, and brings the order of the next round if that is known."""
        payloads: dict[int, Payload] = {}
        params: dict[int, Tensor] = {}
        poll = "losses" in self.method.uses
        orders = {} if ahead is None else {o.client: self._order(o, ahead.number) for o in ahead.orders}
        for model, members in models:
            further = model if isinstance(model, Adapting) else None
            model = model if further is None else further.sent
            own = model.version if isinstance(model, RemoteMemory) else None
            if own is None and kept is not None:
                model = {**model, "buffers": torch.zeros(0)}
            whole = {} if own is not None else model_records([Weights(model["params"], model["buffers"])])
            for client in members.tolist():
                if own is None:
                    params[client] = model["params"]
                order = orders.get(client, Payload({}, {}))
                known = own is not None or _is_sent(model, order)
                facts = {"version": own, "on": on, "poll": poll, "order": order.facts or None}
                facts["adapt"] = None if further is None else self._adaptation(further, client)
                facts |= self._whose(client, kept)
                sent = order.tensors if known else {**whole, **order.tensors}
                payloads[client] = self._message(client, facts, sent)
        federation, held = self.task.federation, 1 if on == "validation" else 2

        def score(client: int, payload: Payload) -> Score:
            size = int(federation.sizes[held, client])
            return read_score(payload, size, federation.num_classes, self.trust)

        replies = self._ask(messages.SCORE, payloads, lambda _, payload: payload)
        polled = {client: replies[client] for client in params if poll and client in replies}
        fields = poll_fields(self.trust, "train_loss")
        losses = self._heard(polled, lambda _, payload: read_loss(payload, fields))
        odd = self._incredible(losses)
        self._polled = {c: (params[c], loss) for c, loss in losses.items() if c not in odd}
        enclosed_in = {c: enclosed(replies[c], "trained") for c in orders if c in replies}
        trained = self._heard(enclosed_in, lambda _, payload: payload)
        self._early = {
            c: Early(order.facts, trained[c] if c in trained else self.silent[c])
            for c, order in orders.items()
            if c in payloads
        }
        return all_scores(self._heard(replies, score), federation)

    def _expect(self, objective: Objective, orders: Sequence[Order]) -> dict[int, ExpectedAnswer]:
        if not orders:
            return {}
        federation, at_once = self.task.federation, not (orders[0].judged or self.method.silent)
        blank = self._blank(objective)
        update = update_fields(unmoved(objective, orders[0].transforms, orders[0].down, blank))
        fixed = update, federation.num_classes, at_once, self.method, blank, self.trust
        return {o.client: ExpectedAnswer(o, int(federation.sizes[0, o.client]), *fixed) for o in orders}

    def _order(self, order: Order, number: int) -> Payload:
        """What is particular to it."""
        facts = {
            "number": number,
            "version": self._version(order.client, order.mine),
            "keep": NEVER if order.spare is None else order.spare,
            "budget": asdict(order.budget),
            "probes": sorted(order.probes),
            "judged": order.judged,
        }
        return Payload(facts, order_records({} if self.method.silent else order.down, order.quota))

    def _adaptation(self, further: Adapting, client: int) -> dict[str, Any]:
        """What of an order says how a model is trained further."""
        facts = self._order(further.orders[client], further.number).facts
        return {key: facts[key] for key in ADAPTATION}

    def _version(self, client: int, mine: Memory) -> int:
        """Of the memory that a client is to use."""
        return mine.version if isinstance(mine, RemoteMemory) and client not in self.afresh else NEVER

    def _whose(self, client: int, kept: Recall | None) -> dict[str, Any]:
        """Whose statistics a client uses with models it is sent: theirs, or those of this memory."""
        return {"statistics": None if kept is None else self._version(client, kept(client))}

    def _trials(self, trial: ModelTrial, facts: Mapping[str, Any] | None = None) -> dict[int, Payload]:
        """Models to try, without statistics where clients have their own."""
        models, clients, kept = trial
        bare = models if kept is None else [model._replace(buffers=torch.zeros(0)) for model in models]
        written, facts = model_records(bare), facts or {}
        return {c: self._message(c, {**facts, **self._whose(c, kept)}, written) for c in clients.tolist()}

    def _message(
        self, client: int, facts: Mapping[str, Any], tensors: Mapping[str, Memory] | None = None
    ) -> Payload:
        sent = dict(tensors or {})
        if client not in self.has_encoders:
            sent |= self.encoders
        return Payload({**self.run, "client": client, **facts}, sent)

    def _ask(
        self,
        kind: str,
        payloads: Mapping[int, Payload],
        read: Callable[[int, Payload], T],
        number: int | None = None,
    ) -> dict[int, T]:
        """What ``read`` makes of the answers of those who gave a proper one."""
        self.silent = {}
        return self._heard(self.nodes.ask(kind, payloads, "" if number is None else str(number)), read)

    def _heard(
        self, said: Mapping[int, Payload] | Mapping[int, Payload | Silence], read: Callable[[int, Payload], T]
    ) -> dict[int, T]:
        """The same of what was said; who was silent or is refused is noted."""
        heard: dict[int, T] = {}
        for client, reply in said.items():
            what = understood(self.task.federation.clients[client], reply, partial(read, client))
            if not isinstance(what, Silence):
                heard[client] = what
                self.has_encoders.add(client)
                continue
            self.silent[client] = what
            self._note(client, what.why)
            if what.code == messages.FORGOT:
                self.afresh.add(client)
            if what.code == messages.NO_ENCODERS:
                self.has_encoders.discard(client)
        return heard

    def _fetch(self, versions: dict[int, int]) -> dict[int, Memory]:
        """Clients' memories; of one that does not answer, that of a client that never trained."""
        payloads = {c: self._message(c, {"version": version}) for c, version in versions.items()}
        blank = self._blank(self.method.objective)
        fields = memory_fields(blank)
        told = self._ask(messages.MEMORY, payloads, lambda _, payload: read_record(payload, "memory", fields))
        odd = self._outsized(told)
        self._refuse(odd)
        return {c: told[c] if c in told and c not in odd else blank for c in versions}

    def _blank(self, objective: Objective) -> Memory:
        """What a client that never trained remembers."""
        return objective.init_client(self.task.profile(self.method))

    def _count_empty(self, answers: Sequence[Answer]) -> None:
        """A run in which nobody trains would end as if it had learned something."""
        self.empty = 0 if any(not answer.refused for answer in answers) else self.empty + 1
        if self.empty >= EMPTY:
            raise UserError(
                f"no client answered in {EMPTY} rounds in a row: check that clients are connected and that "
                f"round-timeout ({self.nodes.transport.timeout:.0f} s) is long enough, then resume the run"
            )

    def _note(self, client: int, what: str) -> None:
        note(self.task.federation.clients[client], what)


def _same(order: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two orders are one, but for what else a client is to keep."""
    return {**order, "keep": None} == {**other, "keep": None}


def _is_sent(model: Memory, order: Payload) -> bool:
    """Whether an order brings this model anyway."""
    down = order.tensors.get("down", {})
    return bool(down) and all(torch.equal(down[key], model[key]) for key in ("params", "buffers"))
