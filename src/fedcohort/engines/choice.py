"""Which engine does the clients' work, and on what: by name, or by what this machine has."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from fedcohort.core.engine import Engine
from fedcohort.core.task import Task
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.util.errors import UserError

Device = Literal["cpu", "cuda"]


class EngineKind(NamedTuple):
    """An engine that can be asked for by name."""

    make: Callable[[Task, Device], Engine]
    devices: tuple[Device, ...]  # that it can use
    tried_on: tuple[Device, ...]  # where its results were compared with the reference's


ENGINES = {
    "reference": EngineKind(lambda task, _: ReferenceEngine(task), ("cpu",), ("cpu",)),
    "pool": EngineKind(lambda task, _: PoolEngine(task), ("cpu",), ("cpu",)),
    "batched": EngineKind(BatchedEngine, ("cpu", "cuda"), ("cpu",)),
}


@dataclass(frozen=True)
class Means:
    """By what means runs are computed: the table ``[run]``. No result depends on them beyond rounding."""

    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU, where PyTorch finds one
    engine: Literal["auto", "reference", "pool", "batched"] = "auto"  # auto: batched on a GPU, else pool
    ray: str = ""  # a Ray cluster: "local", "auto" or host:port of its head node; empty: none
    data: Literal["sent", "read"] = "sent"  # to the cluster's machines, or by each of them from its path

    @property
    def kept(self) -> dict[str, str]:
        """What a comparison's directory keeps, where it is no default. Who continues it elsewhere says again
        on which cluster."""
        chosen: dict[str, str] = {"device": self.device, "engine": self.engine}
        return chosen if {*chosen.values()} != {"auto"} else {}

    def engine_for(self, task: Task) -> Engine:
        """The engine, with a warning if nobody has tried it on this device."""
        name, device = self.chosen
        kind = ENGINES[name]
        if device not in kind.tried_on:
            warnings.warn(
                f"the engine '{name}' runs on {device}, where its authors have never run it: compare a few "
                "rounds with run.device = 'cpu' before you trust it. BatchNorm, dropout, changed images and "
                "evaluation stay on the CPU",
                RuntimeWarning,
                stacklevel=2,
            )
        return kind.make(task, device)

    @property
    def chosen(self) -> tuple[str, Device]:
        """The engine's name and its device, or a sentence if there is no such pair here."""
        there = torch.cuda.is_available()
        if self.device == "cuda" and not there:
            raise UserError(
                "run.device = 'cuda': PyTorch finds no GPU here that it can use: install a build of PyTorch "
                "for CUDA and its driver, or set run.device to 'cpu' or 'auto'"
            )
        if self.engine == "auto":
            return ("batched", "cuda") if there and self.device != "cpu" else ("pool", "cpu")
        able = ENGINES[self.engine].devices
        if self.device not in ("auto", *able):
            raise UserError(
                f"run.engine = '{self.engine}' computes on {' or '.join(able)}, not on {self.device}: "
                f"set run.device to '{able[0]}', or run.engine to 'auto'"
            )
        return self.engine, "cuda" if there and self.device != "cpu" and "cuda" in able else "cpu"
