"""A cluster whose machines are objects of this process: what is sent to them is pickled as Ray would."""

from collections.abc import Sequence
from typing import Any

import pytest
from ray import cloudpickle

from fedcohort.engines.cluster import LostError, Machine
from fedcohort.engines.host import Host


class Call:
    """Something that was asked; whoever is gone when it would answer has not answered."""

    def __init__(self, actor: "Actor", method: str, arguments: bytes) -> None:
        self.actor, self.method, self.arguments = actor, method, arguments

    def __call__(self) -> Any:
        if not self.actor.alive:
            raise LostError
        self.actor.served += 1
        told = getattr(self.actor.host, self.method)(*cloudpickle.loads(self.arguments))
        self.actor.bytes += len(self.arguments) + len(packed := cloudpickle.dumps(told))
        return cloudpickle.loads(packed)


class Remote:
    def __init__(self, actor: "Actor", method: str) -> None:
        self.actor, self.method = actor, method

    def remote(self, *arguments: Any) -> Call:
        call = Call(self.actor, self.method, cloudpickle.dumps(arguments))
        if self.method == "open" and self.actor.alive:  # nobody waits for it
            call()
            self.actor.served -= 1
        return call


class Actor:
    def __init__(self, cores: int) -> None:
        self.host, self.alive, self.served, self.bytes = Host(cores), True, 0, 0

    def __getattr__(self, method: str) -> Remote:
        return Remote(self, method)


class OwnCluster:
    """Stands in for :class:`fedcohort.engines.cluster.Cluster`."""

    def __init__(self, machines: int, cores: int = 1, memory: float = 0.0) -> None:
        self.machines = [Machine(str(n), f"10.0.0.{n}", cores, memory, Actor(cores)) for n in range(machines)]

    def staff(self) -> list[Machine]:
        return self.machines

    def lose(self, machine: Machine) -> None:
        self.machines.remove(machine)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are answered when somebody listens. Shards are small, so that there are several."""

    def heard(calls: Sequence[Call]) -> list[Any]:
        return [call() for call in calls]

    monkeypatch.setattr("fedcohort.engines.ray.heard", heard)
    monkeypatch.setattr("fedcohort.engines.ray.SMALL", 10**12)  # Ray's own store is not there
    monkeypatch.setattr("fedcohort.engines.shards.TOGETHER", 1)
