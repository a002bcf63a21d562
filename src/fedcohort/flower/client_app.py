"""The Flower ClientApp: one client, with data that stay where they are.

It is told in ``node_config`` where they are: ``data`` (a CSV or Parquet file) with ``label``, or ``load`` (a
function ``"module:function"`` that returns ``(x, y)`` when it is called with the client's name or number), or
``partition-id``, its part of the experiment's own data. A ``load`` in the run's config is for all clients
that have neither of the first two. ``name`` is what reports call it; ``keep`` is its folder for what must
outlast a message.
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

from fedcohort.errors import UserError
from fedcohort.experiment import Experiment
from fedcohort.flower import wire
from fedcohort.flower.keep import Keep
from fedcohort.flower.own_data import OwnData
from fedcohort.flower.wire import Letter
from fedcohort.flower.worker import Refusal, Worker

log = logging.getLogger("fedcohort.flower")

SETTINGS = ("data", "label", "load", "name", "partition-id", "keep")

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Whatever goes wrong here, the server is told a code: the words of an error may quote data."""
    try:
        letter = wire.read(message.content)
        reply = worker_for(context, letter).answer(message.metadata.message_type, letter)
    except Refusal as refusal:
        reply = Letter({"code": refusal.code}, {})
    except UserError as error:
        log.error("cannot answer %s: %s", message.metadata.message_type, error)
        reply = Letter({"code": wire.FAILED}, {})
    except Exception:
        log.exception("cannot answer %s", message.metadata.message_type)
        reply = Letter({"code": wire.FAILED}, {})
    return Message(wire.write(reply), reply_to=message)


def worker_for(context: Context, letter: Letter) -> Worker:
    """The worker for this client and run; kept where a process answers more than one message."""
    own, everybodys = context.node_config, context.run_config
    if "data" in own or "load" in own:
        everybodys = {}
    settings = {**everybodys, **own}
    mine = {key: settings[key] for key in SETTINGS if settings.get(key) not in (None, "")}
    facts = letter.facts
    return _worker(
        json.dumps(mine), json.dumps(facts["run"]), facts["token"], facts["client"], tuple(facts["classes"])
    )


@lru_cache(maxsize=32)
def _worker(mine: str, run: str, token: str, client: int | None, classes: tuple[str, ...]) -> Worker:
    settings, experiment = json.loads(mine), Experiment.of(json.loads(run))
    (method,), (seed,) = experiment.methods, experiment.seeds
    own = OwnData.read(settings, experiment, seed)
    number = int(settings.get("partition-id", 0)) if client is None else client
    task = own.task(experiment, seed, number, classes)
    return Worker(method, task, number, Keep(_home(settings), token, own.federation.clients[own.place]))


def _home(settings: dict[str, Any]) -> Path:
    home = os.environ.get("FLWR_HOME") or "~/.flwr"
    return Path(settings.get("keep") or Path(home) / "fedcohort").expanduser()


def _register(kind: str) -> None:
    category, _, action = kind.partition(".")
    decorate: Callable[..., Any] = getattr(app, category)
    (decorate(action) if action else decorate())(answer)


for _kind in wire.KINDS:
    _register(_kind)
