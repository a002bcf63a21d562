"""Who owns which example: protocols that deal a labelled data set to clients.

A protocol is a frozen dataclass in a file of this folder: its fields are its parameters, the file's name is
its name. Calling it on labels gives a :class:`Partition` that was checked against the common contract.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from fedcohort.util import keyed
from fedcohort.util.errors import UserError
from fedcohort.util.registry import Registry
from fedcohort.util.settings import build

Rows = np.ndarray  # int64 positions of examples


@dataclass(frozen=True)
class Domain:
    """How a client's images look: noise of standard deviation ``noise`` and a Gaussian blur, in pixels."""

    name: str
    noise: float = 0.0
    blur: float = 0.0


@dataclass(frozen=True)
class Partition:
    """The rows of each client, and what the protocol knows about the clients.

    ``truth`` is the group each client was made in, for scoring methods that look for groups, and ``iid``
    whether its labels were drawn like everybody's; ``names`` are the clients' own names where the data have
    them.
    """

    owners: list[Rows]
    truth: np.ndarray | None = None
    domains: tuple[Domain, ...] | None = None
    names: tuple[str, ...] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    iid: np.ndarray | None = None

    @property
    def num_clients(self) -> int:
        return len(self.owners)

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(rows) for rows in self.owners], dtype=np.int64)

    def counts(self, labels: np.ndarray) -> np.ndarray:
        """Label counts, clients x classes, for labels 0 to C-1."""
        labels, width = np.asarray(labels), int(np.max(labels)) + 1
        client = np.repeat(np.arange(self.num_clients), self.sizes)
        cell = client * width + labels[np.concatenate(self.owners)]
        return np.bincount(cell, minlength=self.num_clients * width).reshape(-1, width)


@dataclass(frozen=True)
class Partitioner:
    """A protocol. Subclasses write :meth:`deal`; users call the object."""

    name: ClassVar[str]
    drops: ClassVar[bool] = False  # may leave examples unused
    by_owner: ClassVar[bool] = False  # follows the data's own clients

    def __call__(self, labels: np.ndarray, seed: int = 0, owner: np.ndarray | None = None) -> Partition:
        """Deal the examples with these labels (of any kind); ``owner`` is each row's own client."""
        parameters = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        build(type(self), parameters, f"partition {self.name}")
        labels = np.asarray(labels)
        if labels.ndim != 1 or len(labels) == 0:
            raise UserError(
                f"a partition needs one label for each example, but the labels have shape {labels.shape}"
            )
        if parameters.get("clients", 1) > len(labels):
            raise UserError(
                f"{parameters['clients']} clients cannot share {len(labels)} examples: "
                "lower 'clients' or load more data"
            )
        partition = self.deal(np.unique(labels, return_inverse=True)[1].astype(np.int64), seed, owner)
        check(partition, len(labels), self.drops)
        dropped = len(labels) - int(partition.sizes.sum())
        story = {"name": self.name, **parameters, "seed": seed, "retries": 0, "dropped": dropped}
        return replace(partition, provenance={**story, **partition.provenance})

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        """The protocol itself, on labels 0 to C-1."""
        raise NotImplementedError

    def generator(self, seed: int) -> np.random.Generator:
        return keyed.numpy_generator(seed, "partition", self.name)


PARTITIONS: Registry[Partitioner] = Registry("partition", "fedcohort.data.partition", "fedcohort.partitions")
register = PARTITIONS.register


def partitioner(name: str, /, **parameters: Any) -> Partitioner:
    """The protocol called ``name``, for example ``partitioner("dirichlet", clients=100, alpha=0.1)``."""
    return build(PARTITIONS.get(name), parameters, f"partition {name}")


def check(partition: Partition, examples: int, drops: bool = False) -> None:
    """What every protocol promises: disjoint rows, in range, none lost unless announced, nobody empty."""
    sizes = partition.sizes
    if len(sizes) == 0 or sizes.min() < 1:
        empty = int((sizes == 0).sum())
        raise UserError(
            f"{empty} of {len(sizes)} clients got no example: use fewer clients, milder skew, or more data"
        )
    rows = np.concatenate(partition.owners)
    if rows.min() < 0 or rows.max() >= examples:
        raise ValueError(f"a partition used row {rows.max()} of {examples}")
    if np.bincount(rows, minlength=examples).max() > 1:
        raise ValueError("a partition gave one example to two clients")
    if not drops and len(rows) != examples:
        raise ValueError(f"a partition lost {examples - len(rows)} examples")
    for extra in (partition.truth, partition.iid, partition.domains, partition.names):
        if extra is not None and len(extra) != len(sizes):
            raise ValueError("a partition describes another number of clients than it has")
