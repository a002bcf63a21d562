"""The federations and methods behind ``fedcohort advise``, and one run of one method on one federation.

To extend the table of evidence, add to DATA, SKEWS, SIZES or METHODS, or raise SHARE, and start
``python -m studies.advice_grid`` again: runs that are recorded are not done again.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcohort.core.method import Method
from fedcohort.data import Dataset, load
from fedcohort.data.scaling import merged, moments, scaled
from fedcohort.data.sources.memory import keep
from fedcohort.engines.pool import PoolEngine
from fedcohort.runs.advice.evidence import EXACT, FEATURES, features_of
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.run import run
from fedcohort.runs.tuning.halving import JUDGED_ON
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse_one
from fedcohort.util.keyed import numpy_generator

ADULT = {"path": "adult/adult.data.gz", "header": False, "label": "column_15", "missing": "mean"}
HAR = {"path": "uci_har_totalacc/uci_har_totalacc.npz", "x": "X_train", "y": "y_train"}
HAR |= {"x_test": "X_test", "y_test": "y_test", "client": "subject_train", "client_test": "subject_test"}
DATA: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "digits": ("digits", {}),
    "mnist": ("mnist", {}),
    "fashion": ("fashion_mnist", {}),
    "har": ("npz", HAR),
    "adult": ("table", ADULT),
}
ROWS = {"training": 2000, "test": 1000}  # drawn of data that have more
SKEWS = (
    *(f"dirichlet(alpha={alpha}, min_size=4)" for alpha in (0.1, 0.3, 1.0, 100.0)),
    *(f"dirichlet_clientwise(alpha={alpha})" for alpha in (0.5, 2.0, 6.0)),
    *(f"classes_per_client(classes={classes})" for classes in (1, 2, 3)),
    *(f"similarity(similarity={share})" for share in (0.0, 0.3)),
)
NATURAL, OWNED = "natural", ("har",)  # dealt to the clients that data name, and data that do
SIZES = ((20, 0.1), (20, 0.3), (20, 1.0), (50, 0.2), (100, 0.1))  # clients, and how many train a round
EPSILONS = (0.2, 1.0, 5.0)  # of noised label counts
SHARE = 0.35  # of all combinations that are tried
NOISED = 0.25  # of those, that are tried with noised label counts too
SEEDS = (0, 1)
METHODS = (
    "fedavg",
    "fedprox(mu=0.1)",
    "scaffold",
    "feddyn",
    "fednova",
    "fedlc",
    "fedrs",
    "fedavgm",
    "fedadam",
    "fedlc+fedavgm",
    "fedentopt",
    "fedentopt+fedavgm",
    "fedlecc",
    "power_of_choice",
    "cafa(starts=2)",  # of K-means, for speed
    "clust_psi_pfl(max_groups=20)",  # as many as a diagnosis tries
    "fedgwc",
    "ifca",
    "local_only",
    "fairavg",
    "qfedavg",
    "fedadagrad",
    "fedyogi",
    "fedcls",
    "fedcor",
    "fedentropy",
    "haccs",
    "kl",
    "cfl",
    "fesem",
    "fedsoft",
    "fedconcat(rounds=20)",  # half of them
)
RATES = (0.01, 0.03, 0.1, 0.3)  # of the clients' steps, of which each method takes the best for its data
LAST = 12  # rounds at the end over which accuracy is averaged
SETTINGS = {"rounds": 40, "model": {"name": "mlp", "widths": [64]}, "evaluate": {"every": 4, "last": LAST}}
LOCAL = {"epochs": 2, "batch": 16}


class Case(NamedTuple):
    """A federation as the grid has it."""

    data: str
    skew: str
    clients: int
    cohort: float
    epsilon: float | str = EXACT

    @property
    def draws(self) -> list[float]:
        """Three numbers between 0 and 1, its own: what else is in the grid changes nothing."""
        return numpy_generator(0, "advice", *map(str, self[:4])).random(3).tolist()


def middle(data: str) -> Case:
    """The federation on which learning rates are chosen."""
    return Case(data, "dirichlet(alpha=0.3, min_size=4)", 20, 0.3)


def cases(names: Iterable[str]) -> list[Case]:
    """A random share of all combinations, in random order; so each beginning of it is a smaller grid."""
    every = [Case(data, skew, *size) for data in names for skew in SKEWS for size in SIZES]
    every += [Case(data, NATURAL, 0, cohort) for data in names if data in OWNED for cohort in (0.1, 0.3, 1.0)]
    found = []
    for case in sorted(every, key=lambda case: case.draws):
        place, noise, which = case.draws
        if place < SHARE:
            found.append(case)
            if noise < NOISED:
                found.append(case._replace(epsilon=EPSILONS[int(which * len(EPSILONS))]))
    return found


def jobs(found: Sequence[Case], methods: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Every method on every federation, one seed after the other. Where counts are noised, those that use
    counts."""
    for seed in SEEDS:
        for case in found:
            for method in methods:
                yield *recorded_by(case, method), method, seed


def recorded_by(case: tuple[Any, ...], method: str) -> tuple[Any, ...]:
    """The case by which a method's run is kept: noise on what it does not look at changes nothing."""
    return tuple(case) if _looks_at_counts(method) else (*case[:-1], EXACT)


@cache
def _looks_at_counts(method: str) -> bool:
    return "counts" in Method.parse(method).uses


@cache
def subset(name: str, root: Path | None) -> Dataset:
    """A data set, or some rows of it, scaled by all of them: noise on counts must not change the examples."""
    source, options = DATA[name]
    whole = load(source, root=root, **options)
    rows = _some(len(whole), ROWS["training"], name)
    owner = None if whole.owner is None else whole.owner[rows]
    kept = replace(whole, x=whole.x[rows], y=whole.y[rows], owner=owner)
    if whole.test_x is not None and whole.test_y is not None:
        rows = _some(len(whole.test_x), ROWS["test"], f"{name} test")
        owner = None if whole.test_owner is None else whole.test_owner[rows]
        kept = replace(kept, test_x=whole.test_x[rows], test_y=whole.test_y[rows], test_owner=owner)
    if kept.numbers is None:
        return kept
    everybody = torch.arange(len(kept)), torch.zeros(len(kept), dtype=torch.long), 1
    scale = merged(moments(kept.x, *everybody, kept.numbers))
    test_x = None if kept.test_x is None else scaled(kept.test_x, scale, kept.numbers)
    return replace(kept, x=scaled(kept.x, scale, kept.numbers), test_x=test_x, numbers=None, gaps="none")


def _some(available: int, wanted: int, key: str) -> np.ndarray:
    return np.sort(numpy_generator(0, "advice rows", key).permutation(available)[:wanted])


def experiment(root: Path | None, case: Case, method: str, rate: float, **settings: Any) -> Experiment:
    """One method on one federation."""
    name, level = parse_one(case.skew, "skew")
    noised = {"counts": "noised", "epsilon": case.epsilon}
    table = {
        **SETTINGS,
        "method": method,
        "cohort": case.cohort,
        "data": keep(subset(case.data, root)),
        "partition": {"name": name, **level, **({"clients": case.clients} if case.clients else {})},
        "local": {**LOCAL, "lr": rate},
        "privacy": {} if case.epsilon == EXACT else noised,
    }
    return Experiment.of({**table, **settings})


def train(
    root: Path | None, rates: Mapping[tuple[str, str], float], settings: Mapping[str, Any], *job: Any
) -> dict[str, Any]:
    """How well a method does on a federation; nothing where no draw gives it or the method refuses it."""
    *case, method, seed = job
    rate, since = rates[case[0], method], time.process_time()
    try:
        score = _trained(experiment(root, Case(*case), method, rate, **settings), seed)
    except UserError:
        score = dict.fromkeys(("accuracy", "personal"), "")
    return {**score, "lr": rate, "seconds": f"{time.process_time() - since:.2f}"}


def tune(
    root: Path | None, settings: Mapping[str, Any], data: str, method: str, rate: float
) -> dict[str, Any]:
    """How well a method does with this learning rate, on rows held out of the training rows."""
    held_out = {**settings, "split": {"tuning": JUDGED_ON}}
    score = _trained(experiment(root, middle(data), method, rate, **held_out), SEEDS[0])
    return {"accuracy": score["accuracy"]}


def _trained(experiment: Experiment, seed: int) -> dict[str, str]:
    result = run(
        experiment.methods[0],
        experiment.task(seed),
        experiment.rounds,
        experiment.evaluation,
        engine=lambda task: PoolEngine(task, 1),
    )
    found = result.metrics[f"{ACCURACY}_last_{LAST}"], result.metrics["personal.accuracy"]
    return {name: f"{value:.4f}" for name, value in zip(("accuracy", "personal"), found, strict=True)}


def describe(root: Path | None, *job: Any) -> dict[str, Any]:
    """What is seen of a federation before anything is trained."""
    *given, seed = job
    case = Case(*given)
    asked = experiment(root, case, "fedavg", RATES[0])
    try:
        task = asked.task(seed)
    except UserError:
        return dict.fromkeys(FEATURES, "")
    seen = task.profile(asked.methods[0]).counts
    return {name: f"{value:.4g}" for name, value in features_of(seen, task.cohort_size).items()}
