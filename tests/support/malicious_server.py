"""The ServerApp of a deployment whose server lies: it writes one crafted letter after the other to a client.

Copied into an app as its server's part. ``ATTACKS`` is what it sends, and how an answer is judged: the first
happens in the server's process, which writes answers down, the second in the test's.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcohort.flower import messages
from fedcohort.flower.messages import Payload
from fedcohort.flower.roster import await_nodes
from fedcohort.flower.transport import Silence, Transport
from fedcohort.runs.experiment import Experiment

FEATURES, CLASSES = 2, 2  # of the client's table
FEWEST = 5  # samples of which the client tells anything; those of class 0 are no multiple of it
REPLIES = "replies.json"  # beside the experiment
TOUCHED, ZEN = "touched-by-the-server", "Beautiful is better than ugly"
PARAMS = torch.zeros(CLASSES * FEATURES + CLASSES)
MODEL = {"params": PARAMS, "buffers": torch.zeros(0)}
BUDGET = {"lr": 0.1, "steps": 2, "batch": 16}

Table = dict[str, Any]  # an experiment's


class Reply(NamedTuple):
    """What the client answered, and what else is to be seen of it afterwards."""

    facts: dict[str, Any]
    tensors: dict[str, dict[str, list]]
    silence: str  # why there is no answer
    log: str  # of the client
    folder: Path  # of the deployment


class Attack(NamedTuple):
    """One letter; ``check`` is true if the client did not fall for it."""

    name: str
    kind: str
    payload: Callable[[Table], Payload]
    check: Callable[[Reply], bool]


def payload(
    changes: Table | None = None, tensors: dict[str, Any] | None = None, **facts: Any
) -> Callable[[Table], Payload]:
    """What an honest server would write, but for changes of the experiment and these facts."""

    def write(table: Table) -> Payload:
        run = {**table, **(changes or {})}
        token = hashlib.sha256(json.dumps(run).encode()).hexdigest()  # every change makes it another run
        usual = {"run": run, "token": token, "client": 0, "classes": ["0", "1"], "merge": None}
        usual |= {"statistics": None, "number": 0, "version": None, "keep": -1, "on": "test"}
        return Payload({**usual, **facts}, tensors or {})

    return write


def order(**facts: Any) -> dict[str, Any]:
    """The facts of an order to train."""
    return {"version": -1, "keep": -1, "budget": BUDGET, "probes": [], "judged": False, **facts}


def is_refused(reply: Reply) -> bool:
    """A code, and nothing beside it."""
    return reply.facts.keys() == {"code"} and not reply.tensors


def is_trained(reply: Reply) -> bool:
    return "update" in reply.tensors


def is_refused_unexecuted(reply: Reply) -> bool:
    return is_refused(reply) and not (reply.folder / TOUCHED).exists() and ZEN not in reply.log


def constant(label: int) -> dict[str, Any]:
    """A model that always gives the same answer: how often it is right is how often the label occurs."""
    params = PARAMS.clone()
    params[FEATURES * CLASSES + label] = 100.0
    return {"model/0": {"params": params, "buffers": torch.zeros(0)}}


def own_command(folder: Path) -> Table:
    """A network that is none: the function is called with what else stands in the table."""
    return {"model": {"name": "subprocess:run", "args": ["touch", str(folder / TOUCHED)]}}


def attacks(folder: Path) -> list[Attack]:
    """In the order in which they are sent. The first two letters are an honest server's: what a strict client
    still does, without which the rest would prove nothing."""
    exact = {"privacy": {"counts": "exact"}, "method": ["fedlecc"]}
    single = {"lr": 0.1, "steps": 2, "batch": 1}
    return [
        Attack("an honest question", messages.PROFILE, payload(client=None), lambda r: "sizes" in r.facts),
        Attack("an honest order", messages.TRAIN, payload(tensors={"down": MODEL}, **order()), is_trained),
        Attack(
            "exact counts of a client that withholds them",
            messages.PROFILE,
            payload(exact, client=None),
            lambda r: "counts" not in r.tensors,
        ),
        Attack(
            "a quota: train on one class alone",
            messages.TRAIN,
            payload(tensors={"down": MODEL, "quota": {"quota": torch.tensor([1, 0])}}, **order()),
            is_refused,
        ),
        Attack(
            "a model that always says 0",
            messages.SCORE,
            payload(tensors=constant(0), poll=False, order=None),
            lambda r: "by_class" not in r.tensors and r.facts.get("right", 0) % FEWEST == 0,
        ),
        Attack(
            "the loss of one sample",
            messages.LOSS,
            payload({"method": ["fedlecc"]}, {"model/0": MODEL}, samples=1),
            is_refused,
        ),
        Attack(
            "the loss of each sample, one a step",
            messages.TRAIN,
            payload({"method": ["fedgwc"], "local": single}, {"down": MODEL}, **order(budget=single)),
            lambda r: len(set(r.tensors.get("trace", {}).get("trace", []))) <= 1,
        ),
        Attack(
            "a command instead of a model",
            messages.PROFILE,
            payload(own_command(folder), client=None),
            is_refused_unexecuted,
        ),
        Attack(
            "a module to import",
            messages.PROFILE,
            payload({"imports": ["this"]}, client=None),
            is_refused_unexecuted,
        ),
        *(
            Attack(f"an unused {kind}", kind, payload(tensors={"model/0": MODEL}, samples=None), is_refused)
            for kind in (messages.LOSS, messages.SURVEY, messages.CROSS, messages.MEMORY, messages.UPDATE)
        ),
    ]


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Sends all letters to the one client, and writes down what it says."""
    config = context.run_config
    experiment = Experiment.read(str(config["experiment"]))
    table = experiment.table(experiment.methods[0], experiment.seeds[0])
    transport, home = Transport(grid, float(config["round-timeout"])), Path(str(config["experiment"])).parent
    (node,) = await_nodes(transport, 1, 60)
    replies = []
    for attack in attacks(home.parent):
        replies.append(written(transport.ask(attack.kind, {node: attack.payload(table)})[node]))
    (home / REPLIES).write_text(json.dumps(replies))


def written(answer: Payload | Silence) -> dict[str, Any]:
    """As a Reply has it; a client's code arrives as a silence."""
    if isinstance(answer, Silence):
        return {"facts": {"code": answer.code} if answer.code else {}, "tensors": {}, "silence": answer.why}
    tensors = {name: {k: v.tolist() for k, v in own.items()} for name, own in answer.tensors.items()}
    return {"facts": answer.facts, "tensors": tensors, "silence": ""}
