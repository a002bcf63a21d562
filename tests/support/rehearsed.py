"""A grid whose clients do not train: they say what they said in an honest run of the same experiment.

Attacks are aimed at the server, which cannot tell the difference, and so many more of them can be tried.
"""

import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from flwr.app import Message, RecordDict

from fedcohort.runs.run import Result
from support.flower_tiny import CLIENTS, experiment, nodes, through_flower
from support.inprocess import InProcess, carried

ONE_ROUND = {"rounds": 1, "cohort": CLIENTS, "evaluate": {"every": 2}}
Said = dict[tuple[str, int, int], RecordDict]  # by kind, node and how often it was asked this before


@dataclass
class Rehearsed(InProcess):
    """Clients that repeat themselves; who is asked for the first time something new works it out."""

    said: Said = field(default_factory=dict)
    asked: Counter = field(default_factory=Counter)

    def answer(self, message: Message, node: int) -> Message:
        key = message.metadata.message_type, node
        self.asked[key] += 1
        known = self.said.get((*key, self.asked[key]))
        return super().answer(message, node) if known is None else Message(known, reply_to=carried(message))


@cache
def honest(method: str, settings: str) -> tuple[Result, Said]:
    """The run in which nobody lies, and all that was said in it."""
    said, asked = Said(), Counter[tuple[str, int]]()
    with tempfile.TemporaryDirectory() as folder:
        result, grid = through_flower(experiment(method, **json.loads(settings)), Path(folder))
    for kind, node, _, reply in grid.seen:
        asked[kind, node] += 1
        said[kind, node, asked[kind, node]] = reply.content
    return result, said


def rehearsed(out: Path, method: str, **settings: object) -> Rehearsed:
    """The clients of this experiment."""
    _, said = honest(method, json.dumps(settings, sort_keys=True))
    return Rehearsed(nodes(out).contexts, said=said)


def attacked(out: Path, method: str, spoil: object = None, **settings: object) -> Result:
    """The run of an experiment whose clients' answers ``spoil`` may change."""
    settings = {**ONE_ROUND, **settings}
    grid = rehearsed(out, method, **settings)
    if spoil is not None:
        grid.spoil = spoil
    return through_flower(experiment(method, **settings), out, grid, timeout=0.5)[0]
