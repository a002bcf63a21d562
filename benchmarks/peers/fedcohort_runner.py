"""fedcohort itself, run as a subprocess like its peers."""

import importlib
from contextlib import closing, nullcontext
from typing import Any

import torch

from benchmarks.measure import Stopwatch, read_arguments, report
from fedcohort.bench.jobs import load
from fedcohort.bench.task import accuracy, build_task, first_state
from fedcohort.core.engine import Engine
from fedcohort.core.round.loop import step
from fedcohort.core.task import Task


def make_engine(name: str, task: Task) -> Engine:
    """``reference`` is ``fedcohort.engines.reference.ReferenceEngine``, and so on."""
    return getattr(importlib.import_module(f"fedcohort.engines.{name}"), f"{name.capitalize()}Engine")(task)


def main() -> None:
    arguments = read_arguments(engine=(str, "reference", "module in fedcohort.engines"))
    torch.set_num_threads(arguments.threads)
    data, watch = load(arguments.folder), Stopwatch()
    method, task = build_task(data)
    profile, state = task.profile(method), first_state(method, task, data)
    engine: Any = make_engine(arguments.engine, task)
    with closing(engine) if hasattr(engine, "close") else nullcontext():
        for _ in range(1 + arguments.rounds):
            watch.begin()
            state, _ = step(method, state, task, profile, engine)
            watch.end()
        correct = accuracy(engine, state, task)
    report("fedcohort", data, watch, correct, ["fedcohort", "torch"])


if __name__ == "__main__":
    main()
