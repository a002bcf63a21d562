"""Everything that changes during training. Saving it is the checkpoint; there is no other state anywhere."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedcohort.core import client_store
from fedcohort.core.method import Method
from fedcohort.core.records import Clients, Memory
from fedcohort.models.flat import Weights

BEST = "best/"  # before the names of tensors of the best state


@dataclass(frozen=True)
class Group:
    """One model and the server's memory that goes with it."""

    weights: Weights
    selector: Memory
    server: Mapping[str, Memory] = field(default_factory=dict)  # by the places of Method.at_server

    def known(self, place: str) -> Memory:
        """What the part at this place of the server remembers."""
        return self.server.get(place, {})


@dataclass(frozen=True)
class State:
    """A training run between two rounds."""

    round: int  # rounds completed
    groups: tuple[Group, ...]
    grouping: Memory  # "group": which of the groups serves each client
    clients: Clients = field(
        default_factory=dict
    )  # only clients that have trained; a ClientStore if it is much
    bytes_up: int = 0
    bytes_down: int = 0
    encoders: tuple[Weights, ...] = ()  # frozen, once models are merged: see core/round/merge.py
    best: "State | None" = None  # after the best round so far, where validation samples tell which that is

    def as_best(self) -> "State":
        """The same, as the best so far."""
        return replace(self, best=replace(self, best=None))

    def after(self, number: int) -> "State | None":
        """This state or the best one, whichever is of that round."""
        return next((each for each in (self, self.best) if each is not None and each.round == number), None)


def pack(state: State) -> dict[str, Tensor]:
    """The state as named tensors; the best one only once, if it is the same."""
    best = {} if state.best is None else {"best": torch.tensor(state.best.round)}
    if state.best is not None and state.best.round != state.round:
        best |= {f"{BEST}{key}": value for key, value in pack(state.best).items()}
    out = {
        **best,
        "round": torch.tensor(state.round),
        "bytes": torch.tensor([state.bytes_up, state.bytes_down]),
        **{f"grouping/{key}": value for key, value in state.grouping.items()},
    }
    for number, group in enumerate(state.groups):
        out[f"group/{number}/weights/params"] = group.weights.params
        out[f"group/{number}/weights/buffers"] = group.weights.buffers
        memories = {"selector": group.selector, **{f"server/{at}": own for at, own in group.server.items()}}
        for owner, memory in memories.items():
            out.update({f"group/{number}/{owner}/{key}": value for key, value in memory.items()})
    for number, weights in enumerate(state.encoders):
        out.update({f"encoder/{number}/{key}": value for key, value in weights._asdict().items()})
    out.update(client_store.pack(state.clients))
    # Groups split off one another share tensors until they train; the file format wants each its own.
    return {key: value.clone(memory_format=torch.contiguous_format) for key, value in out.items()}


def renamed(tensors: dict[str, Tensor], method: Method) -> dict[str, Tensor]:
    """Tensors that 0.1.0 packed, where one part did what averaging and the server's optimiser do now."""
    alone = method.averaging is not method.server_optimiser and method.averaging.has_own("init_server")
    place = "averaging" if alone else "optimiser"
    old = re.compile(r"^(group/\d+)/aggregator/")
    return {old.sub(rf"\1/server/{place}/", key): value for key, value in tensors.items()}


def unpack(tensors: dict[str, Tensor], reopen: client_store.Reopen | None = None) -> State:
    """The inverse of :func:`pack`; ``reopen`` finds clients' memories if they are not among the tensors."""

    def under(prefix: str) -> Memory:
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    for key in ("round", "bytes", "clients"):
        if tensors[key].dtype != torch.int64:
            raise ValueError(f"what it says of its {key}")
    groups: list[Group] = []
    while f"group/{len(groups)}/weights/params" in tensors:
        here = f"group/{len(groups)}/"
        weights = Weights(tensors[here + "weights/params"], tensors[here + "weights/buffers"])
        server: dict[str, Memory] = {}
        for key, value in under(here + "server/").items():
            place, _, name = key.partition("/")
            server.setdefault(place, {})[name] = value
        groups.append(Group(weights, under(here + "selector/"), server))
    encoders: list[Weights] = []
    while own := under(f"encoder/{len(encoders)}/"):
        encoders.append(Weights(**own))
    up, down = tensors["bytes"].tolist()
    done = int(tensors["round"])
    clients = client_store.unpack(tensors, reopen)
    state = State(done, tuple(groups), under("grouping/"), clients, up, down, tuple(encoders))
    if "best" not in tensors:
        return state
    if not under(BEST):
        return state.as_best()
    best = unpack(under(BEST), reopen)
    if isinstance(best.clients, client_store.StoredMemories):
        best.clients.replaced_by(clients)
    return replace(state, best=best)
