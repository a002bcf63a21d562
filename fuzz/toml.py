"""Experiment files: the real schema with wild values in it, read, made into a task, sometimes trained."""

import dataclasses
import itertools
import tomllib
import types
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tomli_w

from fedcohort.core.faults import Faults
from fedcohort.core.method import METHODS
from fedcohort.core.profile import Local, Privacy
from fedcohort.core.round.loop import start
from fedcohort.data import Dataset, SplitPlan, load
from fedcohort.data.partition import PARTITIONS
from fedcohort.data.sources import SOURCES
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models import MODELS
from fedcohort.presets import conditions, presets
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Evaluation, run
from fedcohort.runs.trackers import TRACKERS
from fuzz import wild
from fuzz.draw import Draw
from fuzz.wild import damaged

SHARE, SECONDS = 370, 20.0
VARIANTS = 20  # of a sweep, that are looked at
STEPS = 200  # of local training in all, that a case may ask for
BASE: dict[str, Any] = {
    "rounds": 1,
    "cohort": 3,
    "data": {"source": "synthetic", "samples": 120, "classes": 3, "features": 4},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.5, "min_size": 4},
    "model": {"name": "logistic"},
}
TABLE = "a,b,site,y\n" + "".join(f"{k % 7},{'xyz'[k % 3]},s{k % 4},{k % 3}\n" for k in range(60))
FILES = {
    "table": {"path": "table.csv", "label": "y"},
    "text": {"path": "table.csv", "text": "b", "label": "y"},
}
PARTS = {"partition": PARTITIONS, "model": MODELS, "data": SOURCES}
SECTIONS = {
    "local": Local, "privacy": Privacy, "faults": Faults, "evaluate": Evaluation, "split": SplitPlan,
}  # fmt: skip
PATHS = (
    "local.lr",
    "cohort",
    "method.0.mu",
    "method.9",
    "a.b.c",
    "",
    "data",
    "seeds.0",
    "method.fedavg.x",
    ".",
)
SWEPT = (
    "local.lr", "local", "rounds", "cohort", "partition.alpha", "partition.name", "model.widths",
    "data.samples", "method.fedprox.mu", "method.fedlecc", "method.0.mu", "method", "seeds", "seeds.0",
    "name", "imports.0", "track.mlflow", "run.engine", "conditions", "zip", "sweep", "", ".", "a.b.c",
)  # fmt: skip


def sensible(draw: Draw, hint: Any) -> Any:
    """A value such as the annotation wants, now and then at the edge of what can be."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return sensible(draw, args[0])
    if origin is Literal:
        return draw.pick(args)
    if origin in (Union, types.UnionType):
        return sensible(draw, draw.pick([each for each in args if each is not type(None)]))
    if origin is tuple:
        return [sensible(draw, args[0]) for _ in range(draw.below(4))]
    if hint is bool:
        return draw.pick((True, False))
    if hint is int:
        return draw.below(12) if draw.below(5) else wild.whole(draw)
    if hint is float:
        return draw.pick((0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 0.0)) if draw.below(5) else draw.pick(wild.FLOATS)
    return wild.text(draw)


def settings_for(draw: Draw, cls: Any, most: int = 3) -> dict[str, Any]:
    """Some of a class's settings; one in twelve values is of another kind."""
    hints = get_type_hints(cls, include_extras=True)
    names = draw.some([each.name for each in dataclasses.fields(cls) if each.init], most)
    return {name: wild.anything(draw) if draw.one_in(24) else sensible(draw, hints[name]) for name in names}


def part(draw: Draw, kind: str) -> dict[str, Any]:
    registry, key = PARTS[kind], "source" if kind == "data" else "name"
    name = draw.pick(_names(kind))
    given = FILES.get(name, {}) if kind == "data" else {}
    return {key: name, **given, **settings_for(draw, registry.get(name))}


def method(draw: Draw) -> Any:
    """A method in one of the ways in which a file may write it."""
    name = draw.pick(_names("method"))
    values = settings_for(draw, METHODS.get(name))
    table = {"name": name, **values}
    way = draw.below(12)
    if way < 4:
        return table
    if way < 6:
        return _spelled(name, values)
    if way < 8:
        return f"{_spelled(name, values)}+{draw.pick(_names('method'))}"
    if way == 8:
        return {"parts": [table, draw.pick(_names("method"))]}
    if way == 9:
        return {"preset": draw.pick(sorted(presets())), **values}
    return {**table, "label": wild.text(draw)} if way == 10 else wild.anything(draw)


def _spelled(name: str, values: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})" if values else name


@cache
def _names(kind: str) -> list[str]:
    return {**PARTS, "method": METHODS, "track": TRACKERS}[kind].names()


def experiment_table(draw: Draw) -> dict[str, Any]:
    table: dict[str, Any] = {**BASE, "method": [method(draw) for _ in range(1 + draw.below(2))]}
    for kind in draw.some(("partition", "model", "data", *SECTIONS, "track", "sweep", "top"), 2):
        if kind in PARTS:
            table[kind] = part(draw, kind)
        elif kind in SECTIONS:
            table[kind] = settings_for(draw, SECTIONS[kind])
        elif kind == "track":
            name = draw.pick(_names("track"))
            table[kind] = {
                name: wild.anything(draw) if draw.one_in(3) else settings_for(draw, TRACKERS.get(name))
            }
        elif kind == "sweep":
            table[kind] = {draw.pick(SWEPT): _several(draw) for _ in range(1 + draw.below(3))}
        else:
            key = draw.pick(("name", "rounds", "cohort", "seeds", "conditions", "imports", "model"))
            table[key] = _top(draw, key)
    if draw.one_in(20):
        table[draw.pick((*table, "", "rouns", "a.b"))] = wild.anything(draw)
    return table


def _several(draw: Draw) -> Any:
    """Values of a swept setting."""
    if draw.one_in(6):
        return wild.anything(draw)
    return [wild.anything(draw) if draw.one_in(3) else draw.below(4) / 2 for _ in range(draw.below(4))]


def _top(draw: Draw, key: str) -> Any:
    """Modules and functions that the user names are run on purpose: only such as do no harm are named."""
    harmless = {
        "conditions": sorted(conditions()),
        "imports": (["nowhere"], [""], ["."], ["..x"], ["a b"], ["json"], ["json.x", "json"], ["\x00"]),
        "model": ("nowhere:f", ":", "json:", "json:x", "json:dumps", "a:b:c", "", "vgg11", "lenet5"),
        "seeds": ([3], [0, 0], [], [-1], [2**64], [1.5], [10**30], [True], 3, [1, 2]),
    }
    if key in harmless and not (key == "seeds" and draw.one_in(4)):
        return draw.pick(harmless[key])
    return wild.anything(draw)


def make(draw: Draw) -> dict[str, Any]:
    text = tomli_w.dumps(experiment_table(draw)).encode()
    if draw.one_in(20):
        text = damaged(draw, text)
    changes = [f"{draw.pick(PATHS)}={wild.text(draw)}"] if draw.one_in(12) else []
    return {"text": text, "set": changes, "train": draw.one_in(6)}


def try_case(case: dict[str, Any], home: Path) -> str:
    """Reads the file, writes what a run directory keeps of it and reads that, prepares and trains."""
    (home / "table.csv").write_text(TABLE)
    file = home / "experiment.toml"
    file.write_bytes(case["text"])
    experiment = Experiment.read(file, case["set"])
    again = Experiment.of(tomllib.loads(tomli_w.dumps(experiment.table())))
    assert repr(again.table()) == repr(experiment.table()), "what is written is not what was read"
    for _, variant in itertools.islice(experiment.variants(), VARIANTS):
        variant.table()
    if experiment.data["source"] == "digits":
        experiment.__dict__["dataset"] = _digits()
    elif experiment.data["source"] not in ("synthetic", "table", "text", "npz"):
        return "read"
    task = experiment.task(experiment.seeds[0])
    for method in experiment.methods:
        fitted = task.for_method(method)
        start(method, fitted, fitted.profile(method), home / "clients")
    if not case["train"] or not _quick(experiment, task):
        return "prepared"
    run(experiment.methods[0], task, 1, experiment.evaluation, engine=ReferenceEngine)
    return "trained"


@cache
def _digits() -> Dataset:
    """A tenth of the digits: small images."""
    whole = load("digits")
    return dataclasses.replace(whole, x=whole.x[:180], y=whole.y[:180])


def _quick(experiment: Experiment, task: Any) -> bool:
    sizes = task.federation.train.sizes.tolist()
    return sum(experiment.local.steps_for(size) for size in sizes) <= STEPS and task.model.num_params < 10**5
