"""A Ray cluster that this process is connected to. Only here, and in what uses it, is ``ray`` imported.

Whoever can reach a Ray cluster can run code on it: it is trusted, and so is what comes back. A private one
answers nobody but this process: it listens on the loopback interface only and wants a secret that is made
for it. Ray's reports of its use to its makers, its dashboard and its log lines are off.
"""

import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedcohort.engines.host import VECTORS, Host, versions
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError

LOCAL, AUTO = "local", "auto"
HEARD = 5.0  # seconds in which a cluster has to answer a first knock
TWICE = 2  # how often a process is started on a machine on which it died
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}


SEVERAL = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # on any system: "0" is for the loopback interface only


class LostError(Exception):
    """A machine is gone, or its process is."""


class Machine(NamedTuple):
    """One of a cluster, and our process there."""

    node: str  # Ray's name for it
    address: str
    cores: int
    memory: float  # bytes
    actor: Any

    def __hash__(self) -> int:
        return hash(self.actor)


class Cluster:
    """The machines of a Ray cluster, each with a :class:`~fedcohort.engines.host.Host` once it is hired."""

    def __init__(self) -> None:
        self.hired: dict[str, int] = {}  # how often, by the node's name
        self.machines: list[Machine] = []

    def nodes(self) -> list[dict[str, Any]]:
        """Those that are there and have cores, as Ray describes them, in a fixed order."""
        import ray

        there = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        return sorted(there, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))

    def staff(self) -> list[Machine]:
        """All machines, with a process on each; on one where it died twice nobody is asked again."""
        at_work = {machine.node for machine in self.machines}
        new = [node for node in self.nodes() if node["NodeID"] not in at_work]
        new = [node for node in new if self.hired.get(node["NodeID"], 0) < TWICE]
        for machine in [self._hire(node) for node in new]:
            try:
                refuse_other_versions(machine.address, heard([machine.actor.about.remote()])[0])
            except LostError:
                continue
            self.machines.append(machine)
        if not self.machines:
            raise nobody_left()
        return self.machines

    def lose(self, machine: Machine) -> None:
        """It is not asked any more."""
        if machine in self.machines:
            self.machines.remove(machine)

    def _hire(self, node: dict[str, Any]) -> Machine:
        name, cores = node["NodeID"], int(node["Resources"]["CPU"])
        self.hired[name] = self.hired.get(name, 0) + 1
        memory = float(node["Resources"].get("memory", 0))
        return Machine(name, node["NodeManagerAddress"], cores, memory, placed(RayHost, name, cores))


def nobody_left() -> UserError:
    return UserError(
        "no machine of the Ray cluster is left: start it again, then continue with 'fedcohort run --resume'"
    )


def placed(kind: type, node: str, *arguments: Any) -> Any:
    """One of these in a process of its own on this node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=there)(kind).remote(*arguments)


class RayHost(Host):
    """A host that speaks as Ray does."""

    def __init__(self, workers: int) -> None:
        speak()
        super().__init__(workers)


def refuse_other_versions(address: str, theirs: dict[str, str]) -> None:
    """A machine that has not what we have; another processor is only told of, nobody can install it."""
    for what, ours in versions().items():
        if theirs[what] == ours:
            continue
        apart = f"{what} is {ours} here and {theirs[what]} on {address}"
        if what != VECTORS:
            raise UserError(f"{apart}: install the same on all machines of the cluster")
        warnings.warn(
            f"{apart}: results depend, within rounding, on who computes what", RuntimeWarning, stacklevel=2
        )


def speak() -> None:
    """Tensors travel as arrays, whose bytes Ray does not copy; who gets one gets a copy that is his own."""
    import ray.util

    ray.util.register_serializer(torch.Tensor, serializer=_array, deserializer=_tensor)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(array.copy())


@contextmanager
def room() -> Iterator[None]:
    """A machine that has none left for what it is sent, or sends, is one sentence."""
    from ray import exceptions

    try:
        yield
    except (exceptions.OutOfMemoryError, exceptions.ObjectStoreFullError) as error:
        raise UserError(f"a machine of the cluster has too little memory: {_first_line(error)}") from None
    except exceptions.OutOfDiskError as error:
        raise UserError(f"a machine of the cluster has a full disk: {_first_line(error)}") from None


@room()
def heard(calls: Sequence[Any]) -> list[Any]:
    """What was answered. LostError for who is gone; what went wrong there goes wrong here."""
    from ray import exceptions

    try:
        import ray

        return ray.get(list(calls))
    except exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, ModuleNotFoundError):
            raise _missing(cause.name or "a module") from None
        cause.add_note(str(error))
        raise cause from None
    except (
        exceptions.RayActorError,
        exceptions.ActorUnschedulableError,  # its machine was gone before it began
        exceptions.ObjectLostError,
        exceptions.NodeDiedError,
    ) as error:
        if "ModuleNotFoundError" in str(error):
            raise _missing(str(error).rpartition("No module named ")[2].strip().strip("'")) from None
        raise LostError(_first_line(error)) from None


def _missing(module: str) -> UserError:
    return UserError(
        f"a machine of the cluster cannot import {module}: install it on all of them, or put it on their "
        "PYTHONPATH"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at ``host:port``, the one on this machine (``auto``), or a private one (``local``) that
    ends afterwards."""
    private = Path(tempfile.mkdtemp(prefix="fedcohort-ray-")) if address == LOCAL else None
    settings = dict(QUIET)
    if private is not None:
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), SEVERAL: "0"}
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        looked = "ray" in sys.modules
        ray = _imported()
        if looked:
            _look_again(private is not None)
        speak()
        _join(ray, address, private)
        try:
            yield Cluster()
        finally:
            ray.shutdown()
    finally:
        os.environ.clear()
        os.environ.update(before)
        if sys.modules.get("ray") is not None:
            with suppress(UserError):  # said by whoever connects next
                _look_again(False)
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)


def _look_again(alone: bool) -> None:
    """Ray looks at the environment when it is imported, and has no public way to look a second time;
    ``alone``: it is to listen on the loopback interface only."""
    try:
        from ray._private import ray_constants
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
    except ImportError:
        raise UserError(
            "Ray was imported here before, and this version cannot be set up again: start another process"
        ) from None
    ray_constants.ENABLE_RAY_CLUSTER = not alone and os.environ.get(SEVERAL) != "0"
    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed: pip install 'fedcohort[ray]'") from None
    if ray.is_initialized():
        raise UserError("this process is connected to a Ray cluster already: call ray.shutdown() first")
    return ray


def _join(ray: Any, address: str, private: Path | None) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    if private is not None:
        own = {"num_cpus": usable_cores(), "include_dashboard": False, "_temp_dir": str(private)}
        ray.init(address=LOCAL, **own, **quiet)
        if (bound := ray.util.get_node_ip_address()) != "127.0.0.1":
            ray.shutdown()
            raise UserError(
                f"Ray would listen on {bound}, not on this machine alone: another version may not"
            )
        return
    if address != AUTO:
        _knock(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        with suppress(Exception):
            ray.shutdown()
        raise _refused(address, str(error)) from None


def _knock(address: str) -> None:
    """A port that nobody listens on is found out at once; Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise UserError(
            f"ray: '{address}' is no address: write local, auto or host:port of the cluster's head node"
        )
    try:
        socket.create_connection((host, int(port)), HEARD).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"there is no Ray cluster at {address} ({error}): start one with 'ray start --head', or use "
            "--ray local"
        ) from None


def _refused(address: str, words: str) -> UserError:
    """What Ray's many words mean."""
    if "Version mismatch" in words:
        told = " ".join(words.split())
        return UserError(
            f"the Ray cluster at {address} has other versions ({told}): install the same Ray and Python on "
            "all machines"
        )
    if "raylet" in words.lower() and address != AUTO:
        return UserError(
            f"this machine is not part of the Ray cluster at {address}: run 'ray start --address={address}' "
            "here first"
        )
    if "token" in words.lower() or "auth" in words.lower():
        return UserError(f"the Ray cluster at {address} wants a token: set RAY_AUTH_MODE and RAY_AUTH_TOKEN")
    where = "on this machine" if address == AUTO else f"at {address}"
    return UserError(
        f"there is no Ray cluster {where}: start one with 'ray start --head', or use --ray local"
    )
