"""From a data set and a partition to a federation: training, validation and test rows for each client.

A client's own test set must look like its training set, or local accuracy means nothing. Two ways keep that
promise: split each client after pooling everything (``pool``), or deal the official test set in the clients'
own class proportions (``mirror``).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.core import keyed
from fedcohort.core.settings import between, build
from fedcohort.data.dataset import Dataset
from fedcohort.data.domains import change_images
from fedcohort.data.federation import Federation, Split
from fedcohort.errors import UserError
from fedcohort.partition import Partition, Partitioner
from fedcohort.partition._dealing import apportion


@dataclass(frozen=True)
class SplitPlan:
    """How a client's rows become training, validation and test rows.

    ``auto`` mirrors an official test set where there is one and pools otherwise; data dealt by their own
    client column are pooled when the test rows name their client too.
    """

    mode: Literal["auto", "pool", "mirror"] = "auto"
    test: Annotated[float, between(0, 0.9)] = 0.2  # share of a client's rows; used by 'pool'
    validation: Annotated[float, between(0, 0.9)] = 0.0  # share of the remaining training rows

    def chosen(self, dataset: Dataset, partition: Partitioner) -> Literal["pool", "mirror"]:
        """The mode for this data set."""
        if self.mode == "mirror" and dataset.test_x is None:
            raise UserError(
                "split.mode 'mirror' needs an official test set, which this source has not: use 'pool'"
            )
        if self.mode != "auto":
            return self.mode
        owned = partition.by_owner and dataset.test_owner is not None
        return "pool" if dataset.test_x is None or owned else "mirror"


def federate(
    dataset: Dataset, partition: Partitioner, split: SplitPlan | None = None, seed: int = 0
) -> Federation:
    """Deal ``dataset`` to clients with ``partition`` and split every client's rows."""
    split = build(SplitPlan, vars(split or SplitPlan()), "split")  # the ranges hold for Python callers too
    mode = split.chosen(dataset, partition)
    x, y, owner = _to_deal(dataset, mode, partition.by_owner)
    dealt = partition(y.numpy(), seed, owner)
    clients = dealt.num_clients
    rows, client = np.concatenate(dealt.owners), np.repeat(np.arange(clients), dealt.sizes)
    labels, rng = y.numpy(), keyed.numpy_generator(seed, "split")
    x = _dressed(x, dealt, rows, client, seed, "train")

    if mode == "pool":
        held = hold_out(labels[rows], client, clients, split.test, rng)
        test = Split.owned(x, y, rows[held], client[held], clients)
        rows, client = rows[~held], client[~held]
    else:
        assert dataset.test_x is not None  # noqa: S101  # else the mode is 'pool'
        assert dataset.test_y is not None  # noqa: S101
        test_rows, test_client = mirror(labels, rows, client, clients, dataset.test_y.numpy(), rng)
        test_x = _dressed(dataset.test_x, dealt, test_rows, test_client, seed, "test")
        test = Split.owned(test_x, dataset.test_y, test_rows, test_client, clients)

    held = hold_out(labels[rows], client, clients, split.validation, rng)
    return Federation(
        train=Split.owned(x, y, rows[~held], client[~held], clients),
        validation=Split.owned(x, y, rows[held], client[held], clients),
        test=test,
        classes=dataset.classes,
        clients=dealt.names or _number(clients),
        truth=None if dealt.truth is None else torch.as_tensor(dealt.truth, dtype=torch.int64),
        provenance=_story(dataset, dealt, split, mode, test),
        vocabulary=dataset.vocabulary,
        iid=None if dealt.iid is None else torch.as_tensor(dealt.iid, dtype=torch.bool),
    )


def hold_out(
    labels: np.ndarray, client: np.ndarray, clients: int, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Which rows to set aside: about ``share`` of each client's, at least one, never all.

    Stratified by class where each class of the client has two rows or more, else at random. Clients with a
    single row keep it for training.
    """
    if share == 0 or len(labels) == 0:
        return np.zeros(len(labels), dtype=bool)
    classes = int(labels.max()) + 1
    counts = np.bincount(client * classes + labels, minlength=clients * classes).reshape(clients, classes)
    sizes = counts.sum(axis=1)
    totals = np.clip(np.rint(share * sizes).astype(np.int64), 1, np.maximum(sizes - 1, 0))
    totals[sizes < 2] = 0
    stratified = ~(counts == 1).any(axis=1)
    quota = apportion(counts, totals, rng)
    # Each row's place in its client, and in its class of its client, in random order.
    in_class = rank_within(client * classes + labels, rng)
    in_client = rank_within(client, rng)
    return np.where(stratified[client], in_class < quota[client, labels], in_client < totals[client])


def rank_within(group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order 0, 1, 2 ... inside each group."""
    order = np.lexsort((rng.random(len(group)), group))
    ordered = group[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - first
    return rank


def mirror(
    labels: np.ndarray,
    rows: np.ndarray,
    client: np.ndarray,
    clients: int,
    test_labels: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Deal test rows, each at most once, in the class proportions of the clients' training rows."""
    classes = int(max(labels.max(), test_labels.max())) + 1
    counts = np.bincount(client * classes + labels[rows], minlength=clients * classes).reshape(
        clients, classes
    )
    train, test = (np.bincount(values, minlength=classes) for values in (labels, test_labels))
    # Where a partition drops rows, the same share of the test rows is left out, class by class.
    totals = np.rint(test * (counts.sum(axis=0) / np.maximum(train, 1))).astype(np.int64)
    quota = apportion(counts.T, totals, rng)
    chosen, owners = [], []
    for label in range(classes):
        pool = rng.permutation(np.flatnonzero(test_labels == label))
        chosen.append(pool[: quota[label].sum()])
        owners.append(np.repeat(np.arange(clients), quota[label]))
    return np.concatenate(chosen), np.concatenate(owners)


def _to_deal(dataset: Dataset, mode: str, by_owner: bool) -> tuple[Tensor, Tensor, np.ndarray | None]:
    """What the partition deals: the training rows, and in a pool the official test rows behind them."""
    if mode == "mirror" or dataset.test_x is None or dataset.test_y is None:
        return dataset.x, dataset.y, dataset.owner
    if by_owner and dataset.owner is not None and dataset.test_owner is None:
        raise UserError("the test rows do not say which client they belong to: use split.mode 'mirror'")
    owner = None
    if dataset.owner is not None and dataset.test_owner is not None:
        owner = np.concatenate([dataset.owner, dataset.test_owner])
    return torch.cat([dataset.x, dataset.test_x]), torch.cat([dataset.y, dataset.test_y]), owner


def _dressed(
    x: Tensor, dealt: Partition, rows: np.ndarray, client: np.ndarray, seed: int, part: str
) -> Tensor:
    if dealt.domains is None:
        return x
    of_row = np.full(len(x), -1, dtype=np.int64)
    of_row[rows] = client
    return change_images(x, of_row, dealt.domains, seed, part)


def _number(clients: int) -> tuple[str, ...]:
    width = len(str(clients - 1))
    return tuple(f"client {k:0{width}d}" for k in range(clients))


def _story(dataset: Dataset, dealt: Partition, split: SplitPlan, mode: str, test: Split) -> dict[str, Any]:
    without = int((test.sizes == 0).sum())
    plan = {**vars(split), "mode": mode, "clients_without_test": without}
    return {"data": dataset.provenance, "partition": dealt.provenance, "split": plan}
