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
    "10 balanced, 90 of one class": "mixed=10-0-90",
    "10 balanced, 90 skewed": "mixed=10-90-0",
    "40, 30 and 30": "mixed=40-30-30",
    "all alike": "alpha=100",
}
TRAININGS: Mapping[str, tuple[int, Mapping[str, Any]]] = {  # rounds, and what is not the paper's
    "LeNet-5": (2500, {"model": {"name": "lenet5"}}),
    "logistic": (5000, {"model": {"name": "logistic"}}),
    "logistic, lr 0.1": (5000, {"model": {"name": "logistic"}, "local": {"lr": 0.1}}),
    "logistic, half train": (1000, {"model": {"name": "logistic"}, "cohort": 0.5}),
}
LOOKED_AT = {
    "LeNet-5": ("clean and noisy", "all alike", "10 balanced, 90 of one class", "clean and blurred"),
    "logistic": tuple(KINDS),
    "logistic, lr 0.1": ("clean and noisy", "all alike"),
    "logistic, half train": ("clean and noisy", "clean and blurred", "all alike"),
}
READINGS = {
    "paper": {},
    "paper, min_group=3": {"min_group": 3},
    "paper, rows": {"min_group": 3, "view": "row"},
    "code": {"reading": "code"},
}
EVERY = 500  # rounds after which it is asked what a split would give, settled or not
SMOKE = {
    "data": {"source": "digits"},
    "model": {"name": "logistic"},
    "partition": {"clients": 12},
    "cohort": 0.5,
}


class Listening(PoolEngine):
    """Remembers who told which losses in every round."""

    def __init__(self, task: Task, workers: int | None, heard: list[tuple[np.ndarray, np.ndarray]]) -> None:
        super().__init__(task, workers)
        self.heard = heard

    def train(self, *order: Any) -> list[Answer]:
        answers = sorted(super().train(*order), key=lambda answer: answer.client)
        self.heard.append(
            (np.array([a.client for a in answers]), np.stack([a.trace.numpy() for a in answers]))
        )
        return answers


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
    (asked.out / "fedgwc_groups.md").write_text(page(rows), encoding="utf-8")


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
    heard: list[tuple[np.ndarray, np.ndarray]] = []
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
        ids=np.stack([ids for ids, _ in heard]),
        trace=np.stack([trace for _, trace in heard]),
        size=federation.train.sizes.numpy(),
        truth=truth.numpy(),
        cohort=task.cohort_size,
        accuracy=result.metrics["global.accuracy"],
    )


def replay(folder: Path, kinds: str, training: str, seed: int, reading: str) -> dict[str, Any]:
    """When this reading first splits all clients, how rightly, and what a split would have given earlier."""
    told = np.load(file_of(folder, kinds, training, seed))
    grouping = FedGWC(**READINGS[reading])
    profile = profile_of(told, seed)
    memory, asked_early, round_number = grouping.init_grouping(profile), {}, 0
    for round_number, updates in enumerate(rounds_of(told), start=1):
        now = Round(round_number - 1, profile, 0, profile.eligible, profile.cohort)
        memory = grouping.regroup(memory, updates, now)
        if memory["group"].any():
            break
        if round_number % EVERY == 0:
            parts = grouping.parts(memory["interaction"].numpy(), profile)
            asked_early[round_number] = f"{rand(parts, told['truth']):.2f}"
    split = bool(memory["group"].any())
    pairs = profile.cohort * (profile.cohort - 1) / (profile.num_clients * (profile.num_clients - 1))
    return {
        "rounds": round_number,
        "split": int(split),
        "groups": int(memory["group"].max()) + 1,
        "sizes": " ".join(map(str, memory["group"].bincount().tolist())),
        "rand": f"{rand(memory['group'], told['truth']):.4f}",
        "per_pair": f"{round_number * pairs:.1f}",
        "change": f"{memory['change'][0]:.2e}" if not split else "",
        "rand_if_asked": " ".join(f"{key}:{value}" for key, value in asked_early.items()),
        "accuracy": f"{float(told['accuracy']):.4f}",
    }


def profile_of(told: Mapping[str, np.ndarray], seed: int) -> Profile:
    """As much as FedGWC looks at."""
    size, nothing = torch.from_numpy(told["size"]), Flat(nn.Identity)
    return Profile(size, 0 * size, None, 0, nothing, Local(), seed, cohort=int(told["cohort"]))


def rounds_of(told: Mapping[str, np.ndarray]) -> Iterator[Updates]:
    size = torch.from_numpy(told["size"])
    for ids, trace in zip(torch.from_numpy(told["ids"]), torch.from_numpy(told["trace"]), strict=True):
        steps = torch.full((len(ids),), trace.shape[1])
        nothing = torch.zeros(len(ids), 0)
        yield Updates(ids, torch.zeros_like(ids), size[ids], steps, steps.float(), trace, {}, nothing)


def page(rows: Sequence[Mapping[str, str]]) -> str:
    lines = []
    for row in rows:
        found = f"{row['groups']} ({row['sizes'].replace(' ', ', ')})" if row["split"] == "1" else "none"
        when = row["rounds"] if row["split"] == "1" else f"not in {row['rounds']}"
        lines.append(
            [
                row["kinds"],
                row["training"],
                row["reading"],
                when,
                row["per_pair"],
                found,
                f"{float(row['rand']):.2f}",
            ]
        )
    head = ("kinds of clients", "training", "reading", "round of the split", "per pair", "groups", "Rand")
    return PAGE.format(table=markdown(head, lines))


PAGE = """\
{table}
"""


if __name__ == "__main__":
    main()
