"""The Flower ClientApp: one client, with data that stay where they are.

It is told in ``node_config`` where they are: ``data`` (a CSV or Parquet file) with ``label``, or ``load`` (a
function ``"module:function"`` that returns ``(x, y)`` when it is called with the client's name or number), or
``partition-id``, its part of the experiment's own data. A ``load`` in the run's config is for all clients
that have neither of the first two. ``name`` is what reports call it; ``keep`` is its folder for what must
outlast a message. What else it is told there is its policy: ``privacy``, ``epsilon``, ``budget``,
``min-samples``, ``allow``.
"""

import json
import logging
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcohort.core.task import Task
from fedcohort.data.locate import user_path
from fedcohort.data.sources import places_in
from fedcohort.flower import messages
from fedcohort.flower.client_data import read_data
from fedcohort.flower.client_store import ClientStore
from fedcohort.flower.handler import Handler
from fedcohort.flower.messages import Payload
from fedcohort.flower.policy import Policy, Refusal, refuse, whole
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import UserError
from fedcohort.util.names import safe_name

log = logging.getLogger("fedcohort.flower")

OWN = ("data", "label", "empty", "drop-incomplete", "load", "name", "partition-id", "keep")  # what a node has
CLIENTS = 100_000  # most clients of a run

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Whatever goes wrong here, the server is told a code: the words of an error may quote data."""
    kind = message.metadata.message_type
    try:
        payload = messages.read(message.content)
        reply = worker_for(context, payload).answer(kind, payload)
    except Refusal as refusal:
        if refusal.why:
            log.warning("this client refuses %s", refusal.why)
        reply = Payload({"code": refusal.code}, {})
    except UserError as error:
        log.error("cannot answer %s: %s", kind, error)
        reply = Payload({"code": messages.FAILED}, {})
    except Exception:
        log.exception("cannot answer %s", kind)
        reply = Payload({"code": messages.FAILED}, {})
    return Message(messages.write(reply), reply_to=message)


def worker_for(context: Context, payload: Payload) -> Handler:
    """The worker for this client and run; kept where a process answers more than one message.

    What the client has and allows comes from its own settings. Of the run's it takes only ``load``, and only
    if it has no data of its own.
    """
    node = {key: value for key, value in context.node_config.items() if value != ""}
    mine = {key: node[key] for key in OWN if key in node}
    policy, facts, load = Policy.of(node), payload.facts, ""
    if not {"data", "load"} & mine.keys() and context.run_config.get("load"):
        mine["load"] = load = str(context.run_config["load"])
    policy.check_code(facts["run"], load)
    client = None if facts["client"] is None else whole(facts, "client", 0, CLIENTS)
    classes = tuple(map(str, facts["classes"]))
    told = json.dumps(facts["run"]), facts["token"], client, classes, json.dumps(facts.get("scale"))
    worker, asked = _worker(json.dumps(mine), policy, *told)
    if not worker.store.agree(asked):
        raise refuse("a run that is no longer the one it agreed to: start a new one")
    return worker


@lru_cache(maxsize=32)
def _worker(
    mine: str, policy: Policy, run: str, token: str, client: int | None, classes: tuple[str, ...], scale: str
) -> tuple[Handler, dict[str, Any]]:
    """And what the run asks for, which must be the same with every message."""
    settings, table = json.loads(mine), json.loads(run)
    elsewhere = not settings.keys().isdisjoint({"data", "load"})  # the run's own paths mean nothing here
    experiment = _experiment(run, elsewhere)
    if not elsewhere:
        _check_places(experiment.data)
    (method,), (seed,) = experiment.methods, experiment.seeds
    own = read_data(settings, experiment, seed, json.loads(scale))
    number = int(settings.get("partition-id", 0)) if client is None else client
    alone = own.alone(number, classes or own.federation.classes)
    if method.everything:
        alone = alone.without_validation()
    model, privacy = experiment.network(alone), experiment.privacy
    task = Task(alone, model, experiment.local, privacy=privacy, seed=seed)
    store = ClientStore(_home(settings), token, alone.clients[0])
    own_label = {"label", "load"} & settings.keys()  # then the run's has no part in what is read
    reading = {key: value for key, value in experiment.data.items() if not (own_label and key == "label")}
    worker = Handler(method, task, store, policy, reading, experiment.model)
    return worker, {**table, "data": experiment.data}


@lru_cache(maxsize=4)
def _experiment(run: str, elsewhere: bool) -> Experiment:
    """What a run asks for, read once where a process plays several clients."""
    return Experiment.of(json.loads(run), elsewhere=elsewhere)


def _check_places(data: dict[str, Any]) -> None:
    """Refuses files that a run names, unless they are where this client's operator keeps data for
    experiments: else a server could have it read any table of this machine as the experiment's own."""
    root = os.environ.get("FEDCOHORT_DATA")
    for key, kind in places_in(data).items():
        place = user_path(str(data[key]))
        if kind.or_hub and not place.exists():
            continue
        inside = bool(root) and place.resolve().is_relative_to(user_path(str(root)).resolve())
        if not inside or ".." in place.parts:
            raise refuse(f"to read {safe_name(str(place))}: it is not below its FEDCOHORT_DATA")


def _home(settings: dict[str, Any]) -> Path:
    home = os.environ.get("FLWR_HOME") or "~/.flwr"
    return Path(settings.get("keep") or Path(home) / "fedcohort").expanduser()


def _register(kind: str) -> None:
    category, _, action = kind.partition(".")
    decorate: Callable[..., Any] = getattr(app, category)
    (decorate(action) if action else decorate())(answer)


for _kind in messages.KINDS:
    _register(_kind)
