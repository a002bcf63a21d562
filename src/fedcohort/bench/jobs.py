"""The jobs that engines run, and the folder of arrays that makes each the same job for all of them.

Nothing is downloaded: examples are drawn by seed, shaped like MNIST or CIFAR-10, and hard enough that the
accuracy after the last round tells a right engine from a wrong one. The folder also fixes what engines would
otherwise draw for themselves: who holds which rows, who trains in which round, the first weights, and the
order of every client's examples. Only NumPy is needed here, because peers run in environments of their own.
"""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 10
Layers = list[tuple[tuple[int, ...], int]]  # per layer: shape of its weight, length of its bias


@dataclass(frozen=True)
class Job:
    """One federated training with FedAvg by size."""

    name: str
    model: str  # mlp (784-200-200-10), lenet5 (62,006 parameters, ReLU, max-pooling) or fmnist_cnn (93,962)
    examples: int
    shape: tuple[int, ...]
    clients: int
    cohort: int
    rounds: int
    batch: int
    lr: float
    momentum: float = 0.0
    alpha: float | None = None  # of the Dirichlet label skew; None: two shards of equal size each
    separation: float = 1.0  # distance of the classes against the noise; tuned by the accuracy it gives
    epochs: int = 1
    weight_decay: float = 0.0
    adam: bool = False  # instead of SGD
    augment: bool = False  # images, then between 0 and 1, are changed at random as in FedEntOpt's paper
    tests: int = 10_000
    seed: int = 0

    @property
    def layers(self) -> Layers:
        """Weights and biases in PyTorch's order and layout."""
        if self.model == "mlp":
            widths = [prod(self.shape), 200, 200, CLASSES]
            return [((after, before), after) for before, after in pairwise(widths)]
        if self.model == "fmnist_cnn":
            convolutions = pairwise((self.shape[0], 8, 16, 32))
            first = [((after, before, 3, 3), after) for before, after in convolutions]
            return [*first, ((2048, 32), 2048), ((CLASSES, 2048), CLASSES)]
        return [
            ((6, self.shape[0], 5, 5), 6),
            ((16, 6, 5, 5), 16),
            ((120, 400), 120),
            ((84, 120), 84),
            ((CLASSES, 84), CLASSES),
        ]

    @property
    def convolves(self) -> bool:
        return any(len(weight) == 4 for weight, _ in self.layers)

    @property
    def folder_name(self) -> str:
        """Changes whenever the definition does, so that an old folder is never taken for a new one."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


JOBS = {
    "A": Job("A", "mlp", 60_000, (1, 28, 28), 100, 10, 30, 64, 0.005, alpha=0.1, separation=0.48),
    "B": Job("B", "lenet5", 50_000, (3, 32, 32), 100, 10, 10, 64, 0.01, 0.9, alpha=0.1, separation=1.5),
    "C": Job("C", "mlp", 60_000, (1, 28, 28), 1_000, 100, 20, 32, 0.005, separation=1.07),
}


PAPERS = {  # the protocols of two papers, with fewer examples: what they cost decides how much is re-run
    "E": Job(
        "E", "lenet5", 20_000, (3, 32, 32), 100, 10, 10, 64, 0.01, 0.9, alpha=0.1, separation=1.5,
        epochs=5, weight_decay=0.0005, augment=True,
    ),
    "P": Job(
        "P", "fmnist_cnn", 6_000, (1, 28, 28), 100, 50, 10, 32, 0.001, alpha=0.3, separation=1.5,
        epochs=5, adam=True,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The arrays of one job, as every engine sees them."""

    job: Job
    x: np.ndarray  # [n, *shape] float32
    y: np.ndarray  # [n] int64
    x_test: np.ndarray
    y_test: np.ndarray
    index: np.ndarray  # rows of x, one client after the other
    offsets: np.ndarray  # [K+1]: client k owns index[offsets[k]:offsets[k+1]]
    cohorts: np.ndarray  # [rounds, cohort] client numbers
    init: np.ndarray  # [P] first weights, flat
    order: np.ndarray  # positions inside a client's rows, one (round, place in the cohort) after the other
    order_offsets: np.ndarray  # [rounds * cohort + 1]

    def rows(self, client: int) -> np.ndarray:
        return self.index[self.offsets[client] : self.offsets[client + 1]]

    def ordered_rows(self, number: int, place: int) -> np.ndarray:
        """Rows of x of the client at this place of the round's cohort, in the order it visits them."""
        entry = number * self.job.cohort + place
        positions = self.order[self.order_offsets[entry] : self.order_offsets[entry + 1]]
        return self.rows(int(self.cohorts[number, place]))[positions]

    def samples(self, number: int) -> int:
        """Examples of the clients of one round."""
        return sum(len(self.rows(client)) for client in self.cohorts[number])

    def visits(self, number: int) -> int:
        """How often any of them is visited in that round."""
        return self.job.epochs * self.samples(number)

    def steps(self, number: int) -> int:
        """Mini-batches in one round; a client's last one may be short."""
        batches = (-(-len(self.rows(client)) // self.job.batch) for client in self.cohorts[number])
        return self.job.epochs * sum(batches)


ARRAYS = [name for name in Data.__dataclass_fields__ if name != "job"]


def make(job: Job) -> Data:
    """Draws the job's arrays; the same seed gives the same bytes."""
    rng = np.random.default_rng(job.seed)
    x, y, x_test, y_test = _examples(job, rng)
    clients = _dirichlet(job, y, rng) if job.alpha is not None else _shards(job, y, rng)
    cohorts = np.stack([rng.choice(job.clients, job.cohort, replace=False) for _ in range(job.rounds)])
    orders = [rng.permutation(len(clients[client])) for client in cohorts.flat]
    return Data(
        job, x, y, x_test, y_test,
        np.concatenate(clients), _ends(clients),
        cohorts, _first_weights(job, rng),
        np.concatenate(orders), _ends(orders),
    )  # fmt: skip


def write(job: Job, cache: Path) -> Path:
    """The job's folder in ``cache``, made if it is not there yet."""
    folder = cache / job.folder_name
    if folder.is_dir():
        return folder
    unfinished = folder.with_suffix(".unfinished")  # an interrupted write must not look complete
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    data = make(job)
    for name in ARRAYS:
        np.save(unfinished / f"{name}.npy", getattr(data, name))
    (unfinished / "job.json").write_text(json.dumps(asdict(job), indent=1))
    unfinished.rename(folder)
    return folder


def load(folder: Path, shared: bool = False) -> Data:
    """Reads a folder; ``shared`` maps the files instead, so that several processes hold one copy."""
    fields: dict[str, Any] = json.loads((folder / "job.json").read_text())
    fields["shape"] = tuple(fields["shape"])
    mode: Any = "c" if shared else None  # copy-on-write: PyTorch does not take read-only arrays
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode=mode) for name in ARRAYS}
    return Data(Job(**fields), **arrays)


def _examples(job: Job, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Noise around one blurred picture per class; small shifts give a convolution something to do."""
    coarse = rng.standard_normal((CLASSES, job.shape[0], job.shape[1] // 4, job.shape[2] // 4))
    pictures = coarse.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32) * job.separation
    total = job.examples + job.tests
    y = rng.permutation(np.arange(total) % CLASSES)
    x = rng.standard_normal((total, *job.shape), dtype=np.float32)
    shift = rng.integers(0, 1 if job.model == "mlp" else 5, (total, 2))
    for down, right in np.unique(shift, axis=0):
        here = np.flatnonzero((shift == (down, right)).all(axis=1))
        x[here] += np.roll(pictures, (down, right), axis=(2, 3))[y[here]]
    if job.augment:
        x = (1 / (1 + np.exp(-x))).astype(np.float32)
    n = job.examples
    return x[:n], y[:n], x[n:], y[n:]


def _dirichlet(job: Job, y: np.ndarray, rng: np.random.Generator, at_least: int = 10) -> list[np.ndarray]:
    """Each class is cut between the clients by shares from Dir(alpha); drawn again until all hold enough."""
    while True:
        parts: list[list[np.ndarray]] = [[] for _ in range(job.clients)]
        for label in range(CLASSES):
            rows = rng.permutation(np.flatnonzero(y == label))
            ends = np.cumsum(rng.dirichlet(np.full(job.clients, job.alpha))) * len(rows)
            for client, piece in enumerate(np.split(rows, ends[:-1].astype(np.int64))):
                parts[client].append(piece)
        clients = [np.concatenate(pieces) for pieces in parts]
        if min(map(len, clients)) >= at_least:
            return clients


def _shards(job: Job, y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Two runs of equal labels for each client: all clients are of one size, and see one or two classes."""
    shards = np.argsort(y, kind="stable").reshape(2 * job.clients, -1)
    pairs = rng.permutation(len(shards)).reshape(job.clients, 2)
    return [shards[pair].ravel() for pair in pairs]


def _first_weights(job: Job, rng: np.random.Generator) -> np.ndarray:
    """PyTorch's default: uniform within one over the square root of the fan-in."""
    pieces = []
    for shape, bias in job.layers:
        bound = 1 / sqrt(prod(shape[1:]))
        pieces += [rng.uniform(-bound, bound, prod(shape)), rng.uniform(-bound, bound, bias)]
    return np.concatenate(pieces).astype(np.float32)


def _ends(parts: list[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, parts)])
