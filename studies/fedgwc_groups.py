"""When does FedGWC tell kinds of clients apart, and which? (FedGWC, Tables 3, 4, 6 and 7, Figs. 5 and 6)

    python -m studies.fedgwc_groups --data DIR    # many hours; what is recorded is not done again

Until the first split FedGWC trains as FedAvg does, so the losses of one FedAvg run serve every reading of it:
``record`` keeps those of every local step, ``replay`` shows them to FedGWC round by round until it splits.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedcohort.core.engine import Answer
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Round, Updates
from fedcohort.core.task import Task
from fedcohort.engines.pool import PoolEngine
from fedcohort.methods.fedgwc import FedGWC
from fedcohort.models.flat import Flat
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Evaluation, run
from fedcohort.stats.metrics import rand
from studies.dealing import collect, markdown
from studies.skew_metrics import arguments

KINDS = {  # of clients, as words after the paper's conditions for CIFAR-10
    "clean and noisy": "domains=50-50-0",
    "clean and blurred": "domains=50-0-50",
    "clean, noisy, blurred": "domains=40-30-30",
    "one class": "mixed=10-0-90",  # 90 clients have one class, 10 have all
    "all alike": "alpha=100",
}
TRAININGS: Mapping[str, tuple[int, Mapping[str, Any]]] = {  # rounds, and what is not the paper's
    "logistic": (5000, {"model": {"name": "logistic"}}),
    "logistic, rate of 0.1": (5000, {"model": {"name": "logistic"}, "local": {"lr": 0.1}}),
    "logistic, half train": (600, {"model": {"name": "logistic"}, "cohort": 0.5}),
    "LeNet-5": (2500, {"model": {"name": "lenet5"}}),
}
LOOKED_AT = {
    "logistic": ("clean and noisy", "clean and blurred", "clean, noisy, blurred", "all alike", "one class"),
    "logistic, rate of 0.1": ("clean and noisy",),
    "logistic, half train": ("clean and noisy", "all alike"),
    "LeNet-5": ("clean and noisy", "all alike"),
}
READINGS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"min_group": 3},
    "paper, rows": {"min_group": 3, "view": "row"},
    "code": {"reading": "code"},
}
WAITING = ("clean and noisy", "logistic", 0)  # the training whose clients are also split later
NEVER = 1e-30  # a tolerance
LATELY = 500  # rounds over which it is measured how far losses are apart
SMOKE = {
    "data": {"source": "digits"},
    "model": {"name": "logistic"},
    "partition": {"clients": 12},
    "cohort": 0.5,
}


class Listening(PoolEngine):
    """Remembers who told which losses in every round."""

    def __init__(self, task: Task, workers: int | None, heard: list[dict[int, np.ndarray]]) -> None:
        super().__init__(task, workers)
        self.heard = heard

    def train(self, *order: Any) -> list[Answer]:
        answers = super().train(*order)
        self.heard.append({answer.client: answer.trace.numpy() for answer in answers})
        return answers


def stacked(heard: Sequence[Mapping[int, np.ndarray]]) -> dict[str, np.ndarray]:
    """Clients ``[rounds, m]``, ascending, and their losses ``[rounds, m, steps]``, NaN after the last."""
    longest = max(len(trace) for told in heard for trace in told.values())
    ids = np.array([sorted(told) for told in heard])
    trace = np.full((*ids.shape, longest), np.nan, dtype=np.float32)
    for number, told in enumerate(heard):
        for place, client in enumerate(ids[number]):
            trace[number, place, : len(told[client])] = told[client]
    return {"ids": ids, "trace": trace}


def main() -> None:
    parser = arguments()
    parser.description = __doc__
    parser.add_argument("--only", default="", help="trainings whose name begins so")
    parser.add_argument("--workers", type=int, help="cores (all)")
    asked = parser.parse_args()
    folder = asked.out / "recorded"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [job for job in trainings(asked.smoke) if job[1].startswith(asked.only)]
    for job in jobs:
        record(*job, folder, asked)
    rows = collect(
        asked.out / "fedgwc_groups.csv",
        ("kinds", "training", "seed", "reading"),
        [(*job, reading) for job in jobs for reading in READINGS],
        partial(replay, folder),
    )
    waits = collect(
        asked.out / "fedgwc_later.csv",
        ("kinds", "training", "seed", "reading"),
        [(*job, reading) for job in jobs if job == WAITING for reading in ("paper", "code")],
        partial(later, folder),
    )
    (asked.out / "fedgwc_groups.md").write_text(page(rows, waits), encoding="utf-8")


def trainings(smoke: bool) -> list[tuple[str, str, int]]:
    """Kinds of clients, training and seed."""
    if smoke:
        return [("clean and noisy", "logistic", 0)]
    return [(kinds, training, 0) for training, looked_at in LOOKED_AT.items() for kinds in looked_at]


def file_of(folder: Path, *job: Any) -> Path:
    words = "-".join(map(str, job))
    return folder / f"{''.join(c if c.isalnum() or c in '.-' else '_' for c in words)}.npz"


def record(kinds: str, training: str, seed: int, folder: Path, asked: Any) -> None:
    """The losses that clients tell while FedAvg trains, and which kind each of them is."""
    path = file_of(folder, kinds, training, seed)
    if path.exists():
        return
    rounds, settings = TRAININGS[training]
    table = {"conditions": f"fedgwc/cifar10/{KINDS[kinds]}", "method": "fedavg", "rounds": rounds, **settings}
    if asked.smoke:
        table = {**table, **SMOKE, "rounds": 60}
    if asked.data:
        table["data"] = {**table.get("data", {}), "root": str(asked.data)}
    task = Experiment.of(table).task(seed)
    heard: list[dict[int, np.ndarray]] = []
    print(f"{path.stem}: {table['rounds']} rounds", flush=True)
    result = run(
        "fedavg",
        task,
        table["rounds"],
        Evaluation(every=table["rounds"]),
        engine=lambda task: Listening(task, asked.workers, heard),
    )
    federation = task.federation
    truth = federation.truth if federation.truth is not None else torch.zeros(federation.num_clients)
    np.savez_compressed(
        path,
        **stacked(heard),
        size=federation.train.sizes.numpy(),
        truth=truth.numpy(),
        cohort=task.cohort_size,
        accuracy=result.metrics["global.accuracy"],
    )


def replay(folder: Path, kinds: str, training: str, seed: int, reading: str) -> dict[str, Any]:
    """When this reading first splits all clients, if it does, and how rightly."""
    told = np.load(file_of(folder, kinds, training, seed))
    grouping, profile = FedGWC(**READINGS[reading]), profile_of(told, seed)
    memory, number = grouping.init_grouping(profile), 0
    for number, updates in enumerate(rounds_of(told), start=1):
        now = Round(number - 1, profile, 0, profile.eligible, profile.cohort)
        memory = grouping.regroup(memory, updates, now)
        if memory["group"].any():
            break
    pairs = profile.cohort * (profile.cohort - 1) / (profile.num_clients * (profile.num_clients - 1))
    lately = slice(max(0, number - LATELY), number)
    return {
        "rounds": number,
        "split": int(memory["group"].any()),
        "sizes": " ".join(map(str, memory["group"].bincount().tolist())),
        "rand": f"{rand(memory['group'], told['truth']):.4f}",
        "per_pair": f"{number * pairs:.1f}",
        "apart": f"{apart(told['ids'][lately], told['trace'][lately], told['truth']):.2f}",
        "accuracy": f"{float(told['accuracy']):.4f}",
    }


def later(folder: Path, kinds: str, training: str, seed: int, reading: str) -> dict[str, Any]:
    """How rightly this reading would split all clients in some later rounds, had it waited until then."""
    told = np.load(file_of(folder, kinds, training, seed))
    grouping, profile = FedGWC(**READINGS[reading], tolerance=NEVER), profile_of(told, seed)
    memory, last = grouping.init_grouping(profile), len(told["ids"])
    found = {}
    for number, updates in enumerate(rounds_of(told), start=1):
        memory = grouping.regroup(
            memory, updates, Round(number - 1, profile, 0, profile.eligible, profile.cohort)
        )
        if 2 * number >= last and number % (last // 10) == 0:
            parts = grouping.parts(grouping.matrix(memory, profile.eligible).numpy(), profile)
            found[str(number)] = f"{rand(parts, told['truth']):.4f}" if parts.any() else ""
    return found


def apart(ids: np.ndarray, trace: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference between two kinds' mean losses, in standard deviations of the loss of one local
    step among clients of one kind."""
    losses = trace - np.nanmean(trace, axis=1, keepdims=True)
    own = [losses[truth[ids] == kind] for kind in np.unique(truth)]
    means = [np.nanmean(each) for each in own]
    return float((max(means) - min(means)) / np.sqrt(np.mean([np.nanvar(each) for each in own])))


def profile_of(told: Mapping[str, np.ndarray], seed: int) -> Profile:
    """As much as FedGWC looks at."""
    size, nothing = torch.from_numpy(told["size"]), Flat(nn.Identity)
    return Profile(size, 0 * size, None, 0, nothing, Local(), seed, cohort=int(told["cohort"]))


def rounds_of(told: Mapping[str, np.ndarray]) -> Iterator[Updates]:
    size = torch.from_numpy(told["size"])
    for ids, trace in zip(torch.from_numpy(told["ids"]), torch.from_numpy(told["trace"]), strict=True):
        steps = (~trace.isnan()).sum(1)
        nothing = torch.zeros(len(ids), 0)
        yield Updates(ids, torch.zeros_like(ids), size[ids], steps, steps.float(), trace, {}, nothing)


def page(rows: Sequence[Mapping[str, str]], waits: Sequence[Mapping[str, str]]) -> str:
    lines = []
    for row in rows:
        split = row["split"] == "1"
        found = f"{row['sizes'].count(' ') + 1} ({row['sizes'].replace(' ', ', ')})" if split else "none"
        when = row["rounds"] if split else f"not in {row['rounds']}"
        score = f"{float(row['rand']):.2f}" if split and row["kinds"] != "all alike" else ""
        job = [row["kinds"], row["training"], row["reading"]]
        lines.append([*job, when, row["per_pair"], row["apart"], found, score])
    head = [
        "kinds of clients",
        "training",
        "reading",
        "split in round",
        "per pair",
        "apart",
        "groups",
        "Rand",
    ]
    rounds = [name for name in waits[0] if name.isdigit()]
    waited = [
        [wait["kinds"], wait["reading"], *(f"{float(wait[n]):.2f}" if wait[n] else "none" for n in rounds)]
        for wait in waits
    ]
    return PAGE.format(
        table=markdown(head, lines), waits=markdown(["kinds of clients", "reading", *rounds], waited)
    )


PAGE = """\
# Whom FedGWC tells apart

`python -m studies.fedgwc_groups --data DIR` writes this page. It takes hours, and goes on where it was
stopped.

CIFAR-10 under the paper's conditions: 100 clients of which 10 train a round, one epoch in batches of 64
with a learning rate of 0.01. The networks are smaller than the paper's, whose 2,500 rounds would take
three hours on a core. Losses were recorded while FedAvg trained (seed 0) and shown to each reading of
FedGWC, with the paper's tolerance of 1e-5, until it first splits everybody: up to there it trains as
FedAvg does. Later splits of the parts are not in this table.

*Per pair*: how often two clients were in a cohort together by then. *Apart*: the largest difference
between the mean losses of two kinds, in standard deviations of the loss of a local step among clients of
one kind, over the last 500 rounds.

{table}

- **Where losses are apart, it finds the kinds.** A logistic model cannot learn noise away. The paper's
  reading by columns and the authors' code tell clean from noisy clients with a Rand index of 0.94 and
  0.90; the paper prints 1.0, which takes more rounds (below). Blurred clients, whose losses are less
  apart, take twice as long and come to 0.77, or are not found. The first split of three kinds makes two
  parts, so its Rand index cannot be 1.
- **A larger learning rate makes losses noisier, and the split later**: with 0.1 the same kinds are found
  after 4,696 rounds (4,022 by the code), with a Rand index of 0.90.
- **Where a network sees through the noise, there is nothing to find.** LeNet-5 answers 60 % of the test
  images right, and its losses at clean and at noisy clients differ by a fifth of a standard deviation: no
  split in 2,500 rounds, by columns or by the code. How noisy and how blurred the paper's images are is
  not published; ours have noise of 0.5 standard deviations of a pixel, and a blur of 2 pixels.
- **Where kinds differ in their labels, its parts are not the kinds** (Rand 0.5): 90 clients of one class
  each, beside ten that have all classes, are split in halves.
- **Clients that are all alike are left together** by columns, whatever share of them trains. By the code
  only while few train: its weight of a round is the share that trains, and with half of them the matrix
  counts as settled after 39 rounds, when it holds nothing but noise.
- **Rows of the matrix, as the paper's text has it, split early and at random**, also clients that are all
  alike. This is why columns are the default.
- **It takes about 20 encounters of every two clients.** With 10 of 100 clients that is 2,000 rounds and
  more; the paper trains 10,000. More encounters a round do not help by themselves: with half of the
  clients in every cohort 600 rounds are 148 encounters, and at that time the losses are not apart yet.

## Had it waited

The Rand index of the parts into which all clients fall if they are split in a later round: the same losses
of the logistic model, whatever the tolerance says.

{waits}

- **What is missing to 1.0 are rounds.** The published tolerance is kept, and the matrix can be split, after
  about 23 encounters of every two clients; from round 4,000 on, after 36, both readings are right about
  every clean and every noisy client.
"""


if __name__ == "__main__":
    main()
