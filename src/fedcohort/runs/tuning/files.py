"""What tuning keeps in its directory: how it was begun, and at its end an experiment with the best values."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w

from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import disk_mistakes, new_directory
from fedcohort.runs.tuning.halving import Halving, Trial
from fedcohort.runs.tuning.search import SAMPLERS, space_of
from fedcohort.runs.tuning.tuning import Tuning
from fedcohort.util.budget import MOST
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged, fields, read_toml
from fedcohort.util.settings import above, at_most, between
from fedcohort.util.user_code import own_code_in, refuse_unknown_code

BEGUN, BEST = "tune.toml", "best.toml"
LONGEST = 1e9  # seconds
ABOUT = {
    "sampler": Literal["random", "grid", "optuna"],
    "trials": Annotated[int, between(1, MOST)] | None,
    "seconds": Annotated[float, above(0), at_most(LONGEST)] | None,
}


def begin(experiment: Experiment, out: Path, sampler: str, trials: int | None, seconds: float) -> Tuning:
    """In a new directory ``out/<name>-tune-NNN``."""
    about = {"sampler": sampler, "trials": trials, "seconds": seconds if seconds < inf else None}
    _tuning(experiment, out, about)  # mistakes show before anything is written
    for _, variant in experiment.variants():
        for seed in experiment.seeds:
            variant.task(seed)
    home = new_directory(out, f"{experiment.name}-tune")
    given = {key: value for key, value in about.items() if value is not None}
    with disk_mistakes(home):
        write_atomically(home / BEGUN, tomli_w.dumps({**experiment.table(), "tune": given}).encode())
    return _tuning(experiment, home, about)


def reopen(home: Path, trust: bool = False) -> Tuning:
    """As it was begun; code that the directory names is executed only on ``trust``."""
    if not (home / BEGUN).is_file():
        raise UserError(f"{home} is not a directory of 'fedcohort tune': it holds no {BEGUN}")
    table = {"tune": {}, **read_toml(home / BEGUN), "run": {}}  # a stranger's cluster is not for our data
    told = fields(table, {"tune": dict}, home / BEGUN)["tune"]
    about = fields({"trials": None, "seconds": None, **told}, ABOUT, home / BEGUN)
    if about["trials"] is None and about["seconds"] is None:
        raise damaged(home / BEGUN, "it says neither how many trials nor for how long")
    refuse_unknown_code(f"to continue {home}", table, own_code_in(table) if trust else ())
    del table["tune"]
    return _tuning(Experiment.of(table, home.name), home, about)


def write_best(tuning: Tuning, trials: Sequence[Trial]) -> Path:
    """The experiment with the best values of each method, for ``fedcohort run``."""
    with disk_mistakes(tuning.home):
        text = tomli_w.dumps(tuning.tuned(trials).table())
        write_atomically(tuning.home / BEST, text.encode())
    return tuning.home / BEST


def _tuning(experiment: Experiment, home: Path, about: dict[str, Any]) -> Tuning:
    make, trials, seed = SAMPLERS[about["sampler"]], about["trials"], experiment.seeds[0]
    searches = [make(space_of(method), seed, trials) for method in experiment.methods]
    return Tuning(experiment, home, Halving(searches, experiment.rounds, trials, about["seconds"] or inf))
