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

from fedcohort.data.corruptions import change_images
from fedcohort.data.dataset import Dataset
from fedcohort.data.federation import Federation, Split
from fedcohort.data.given import dataset_of
from fedcohort.data.partition import Partition, Partitioner, partitioner
from fedcohort.data.partition._dealing import apportion
from fedcohort.data.scaling import Scale, ScaleRule, Scaling
from fedcohort.util import keyed
from fedcohort.util.errors import UserError
from fedcohort.util.settings import above, at_most, between, build


@dataclass(frozen=True)
class SplitPlan:
    """How a client's rows become training, validation and test rows.

    ``auto`` mirrors an official test set where there is one and pools otherwise; data dealt by their own
    client column are pooled when the test rows name their client too.
    """

    mode: Literal["auto", "pool", "mirror"] = "auto"
    test: Annotated[float, between(0, 0.9)] = 0.2  # share of a client's rows; used by 'pool'
    validation: Annotated[float, between(0, 0.9)] = 0.0  # share of the remaining training rows
    tuning: Annotated[float, between(0, 0.9)] = 0.0  # share of training rows that stand in for the test rows
    share: Annotated[float, above(0), at_most(1)] = 1.0  # of a client's rows that are used at all

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
    dataset: Any,
    partition: Partitioner | None = None,
    split: SplitPlan | None = None,
    seed: int = 0,
    scale: ScaleRule | Scale = "federated",
) -> Federation:
    """Deal ``dataset``, or data that ``load`` takes without options, to clients with ``partition``, split
    every client's rows, and scale its numbers by the training rows: everybody's, each client's own, or by a
    scale that is given. Without ``partition`` the data's own clients are taken."""
    dataset = dataset_of(dataset)
    partition = partitioner("natural") if partition is None else partition
    split = build(SplitPlan, vars(split or SplitPlan()), "split")  # the ranges hold for Python callers too
    mode = split.chosen(dataset, partition)
    x, y, owner = _to_deal(dataset, mode, partition.by_owner)
    dealt = partition(y.numpy(), seed, owner)
    clients = dealt.num_clients
    rows, client = np.concatenate(dealt.owners), np.repeat(np.arange(clients), dealt.sizes)
    labels, rng = y.numpy(), keyed.numpy_generator(seed, "split")
    apart = partition.by_owner  # such clients may be elsewhere, where each splits for itself
    test_x, test_y = x, y

    if split.share < 1:  # the clients and their labels stay what they are; a mirrored test set shrinks, too
        draw = keyed.numpy_generator(seed, "share")
        kept = ~hold_out(labels[rows], client, clients, 1 - split.share, draw, apart)
        rows, client = rows[kept], client[kept]

    if mode == "pool":
        held = hold_out(labels[rows], client, clients, split.test, rng, apart)
        test_rows, test_client = rows[held], client[held]
        rows, client = rows[~held], client[~held]
    else:
        assert dataset.test_x is not None  # noqa: S101  # else the mode is 'pool'
        assert dataset.test_y is not None  # noqa: S101
        test_x, test_y = dataset.test_x, dataset.test_y
        test_rows, test_client = mirror(labels, rows, client, clients, test_y.numpy(), rng)

    if split.tuning:  # the true test rows are put away: whoever chooses settings does not see them
        held = hold_out(labels[rows], client, clients, split.tuning, rng, apart)
        test_x, test_y, test_rows, test_client = x, y, rows[held], client[held]
        rows, client, mode = rows[~held], client[~held], "pool"

    held = hold_out(labels[rows], client, clients, split.validation, rng, apart)
    training = torch.from_numpy(rows[~held]), torch.from_numpy(client[~held])
    scaling = Scaling.learnt(dataset.numbers, x, *training, clients, scale, dataset.gaps)
    if mode == "pool":
        owner = _owners(len(x), np.append(rows, test_rows), np.append(client, test_client))
        x = test_x = _dressed(scaling(x, owner), dealt, owner, seed, "train")
    else:
        owner, test_owner = _owners(len(x), rows, client), _owners(len(test_x), test_rows, test_client)
        x = _dressed(scaling(x, owner, dataset.scaled), dealt, owner, seed, "train")
        test_x = _dressed(scaling(test_x, test_owner), dealt, test_owner, seed, "test")
    return Federation(
        train=Split.owned(x, y, rows[~held], client[~held], clients),
        validation=Split.owned(x, y, rows[held], client[held], clients),
        test=Split.owned(test_x, test_y, test_rows, test_client, clients),
        classes=dataset.classes,
        clients=dealt.names or _number(clients),
        truth=None if dealt.truth is None else torch.as_tensor(dealt.truth, dtype=torch.int64),
        provenance=_story(dataset, dealt, split, mode, clients - len(np.unique(test_client))),
        vocabulary=dataset.vocabulary,
        iid=None if dealt.iid is None else torch.as_tensor(dealt.iid, dtype=torch.bool),
        scale=scaling.shared,
        own_scale=scaling.own,
        moments=scaling.moments,
    )


def hold_out(
    labels: np.ndarray,
    client: np.ndarray,
    clients: int,
    share: float,
    rng: np.random.Generator,
    apart: bool = False,
) -> np.ndarray:
    """Which rows to set aside: about ``share`` of each client's, at least one, never all.

    Stratified by class where each class of the client has two rows or more, else at random. Clients with a
    single row keep it for training. Clients that split ``apart`` each do what they would do without others.
    """
    if share == 0 or len(labels) == 0:
        return np.zeros(len(labels), dtype=bool)
    classes = int(labels.max()) + 1
    counts = np.bincount(client * classes + labels, minlength=clients * classes).reshape(clients, classes)
    sizes = counts.sum(axis=1)
    totals = np.clip(np.rint(share * sizes).astype(np.int64), 1, np.maximum(sizes - 1, 0))
    totals[sizes < 2] = 0
    stratified = ~(counts == 1).any(axis=1)
    shapes = counts.shape, client.shape, client.shape
    ties, one, other = _apart(labels, client, counts, rng) if apart else map(rng.random, shapes)
    quota = apportion(counts, totals, ties)
    # Each row's place in its client, and in its class of its client, in random order.
    in_class = rank_within(client * classes + labels, one)
    in_client = rank_within(client, other)
    return np.where(stratified[client], in_class < quota[client, labels], in_client < totals[client])


def _apart(
    labels: np.ndarray, client: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Random numbers for each class of each client and, twice, for each row: what a client gets depends on
    its own rows alone, however many others there are. All read the same stream from its start, each shifted
    by what the sequence of its labels makes of it, or the same classes would go without a test row
    everywhere."""
    of_class = (counts > 0).cumsum(axis=1) - (counts > 0)  # each class's place among those of its client
    of_row = rank_within(client, np.arange(len(client)))  # each row's among those of its client
    streams = [each.random(max(int(of_row.max()), counts.shape[1]) + 1) for each in rng.spawn(4)]
    mixed = streams[0][of_row] * (of_class[client, labels] + 1)
    shift = np.bincount(client, weights=mixed, minlength=len(counts))
    rows = ((stream[of_row] + shift[client]) % 1 for stream in streams[2:])
    return (streams[1][of_class] + shift[:, None]) % 1, *rows


def rank_within(group: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """An order 0, 1, 2 ... inside each group: that of random numbers."""
    order = np.lexsort((draw, group))
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


def _owners(length: int, rows: np.ndarray, client: np.ndarray) -> np.ndarray:
    """Whose each row of a tensor is; -1 is nobody."""
    owner = np.full(length, -1, dtype=np.int64)
    owner[rows] = client
    return owner


def _dressed(x: Tensor, dealt: Partition, owner: np.ndarray, seed: int, part: str) -> Tensor:
    return x if dealt.domains is None else change_images(x, owner, dealt.domains, seed, part)


def _number(clients: int) -> tuple[str, ...]:
    width = len(str(clients - 1))
    return tuple(f"client {k:0{width}d}" for k in range(clients))


def _story(dataset: Dataset, dealt: Partition, split: SplitPlan, mode: str, without: int) -> dict[str, Any]:
    plan = {**vars(split), "mode": mode, "clients_without_test": without}
    return {"data": dataset.provenance, "partition": dealt.provenance, "split": plan}
