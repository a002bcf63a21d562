"""An experiment: several methods and seeds on one federation, read from a TOML file.

Everything is a table of settings; a mistake is answered with the key's path and the nearest valid one. What
a run directory keeps is again such a file, so ``fedcohort run RUN_DIR/config.toml`` repeats that run.
"""

import copy
import dataclasses
import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy
from fedcohort.core.task import Task
from fedcohort.core.trust import Trust
from fedcohort.data import Dataset, Federation, Places, SplitPlan, federate
from fedcohort.data.locate import user_path
from fedcohort.data.partition import PARTITIONS, Partitioner
from fedcohort.data.revealed import Revealed
from fedcohort.data.scaling import ScaleRule
from fedcohort.data.sources import COMMON, SOURCES, places_in
from fedcohort.data.tables import TABLES
from fedcohort.engines.choice import Means
from fedcohort.models import flat_model
from fedcohort.models.flat import Flat
from fedcohort.presets import under_conditions
from fedcohort.runs.advice.auto import asks_for_auto, refuse_auto, settle
from fedcohort.runs.evaluation import OVER_ROUNDS, Evaluation
from fedcohort.runs.method_entries import listed, read_methods, read_own_local, write_method
from fedcohort.runs.overrides import assign, changed, override_all
from fedcohort.runs.stored import ROUNDS, is_written
from fedcohort.runs.sweep import MOST, OF_METHODS, Point, Sweep, value_of_part, with_settings
from fedcohort.runs.trackers import Tracker, parse_trackers, read_trackers, write_trackers
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse_one
from fedcohort.util.settings import between, build, checked, settings_of
from fedcohort.util.user_code import import_own

ELSEWHERE = "at the client"  # stands for a path that means nothing here
UNTOLD = (
    "with privacy.counts = '{}' nobody tells the means of its columns, so each client scales its numbers by "
    "its own rows, as data.scale = 'client' says"
)
SECTIONS: dict[str, type] = {
    "local": Local,
    "split": SplitPlan,
    "privacy": Privacy,
    "faults": Faults,
    "evaluate": Evaluation,
    "trust": Trust,
}
HELD_OUT = 0.2  # of the training data, when a method needs validation data and the file says nothing


@dataclass(frozen=True)
class Experiment:
    """The settings of a comparison, checked."""

    name: str
    rounds: int
    cohort: int | float
    seeds: tuple[int, ...]
    methods: tuple[Method, ...]
    data: dict[str, Any]  # "source", "root", "scale" and the source's options
    partition: Partitioner
    split: SplitPlan
    model: dict[str, Any]  # "name" and the model's settings
    local: Local = field(default_factory=Local)
    privacy: Privacy = field(default_factory=Privacy)
    faults: Faults = field(default_factory=Faults)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trust: Trust = field(default_factory=Trust)
    imports: tuple[str, ...] = ()
    own_local: dict[str, dict[str, Any]] = field(default_factory=dict)  # by title: where a method differs
    sweep: Sweep = field(default_factory=Sweep)  # what is tried in turn
    given: dict[str, Any] = field(default_factory=dict)  # what the file says itself, if conditions are swept
    trackers: tuple[Tracker, ...] = field(default=(), compare=False)  # they change no result
    means: Means = field(default_factory=Means, compare=False)  # nor do these
    notes: tuple[str, ...] = field(default=(), compare=False)  # choices made for the user
    undecided: tuple[str, ...] = field(default=(), compare=False)  # titles of methods, one of which is "auto"

    @classmethod
    def read(cls, path: str | Path, overrides: Iterable[str] = (), clients_here: bool = True) -> "Experiment":
        """From a TOML file and overrides like ``local.lr=0.1`` or ``method.1.mu=0.2``; unless its clients are
        simulated here, its methods must be named."""
        path = Path(path)
        if path.name.lower().endswith(TABLES):
            command = f"fedcohort init {path} --client COLUMN --label COLUMN"
            raise UserError(f"{path} is a table, not an experiment file: '{command}' writes one for it")
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"there is no experiment file {path}") from None
        except IsADirectoryError:
            raise UserError(
                f"cannot read {path}, a directory: name a file, or continue runs with --resume"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid TOML: {error}") from None
        overrides = tuple(overrides)
        notes = override_all(table, overrides)
        if not clients_here:
            refuse_auto(table)
        experiment = cls.of(table if is_written(path) else as_asked(table), path.stem)
        for key, _ in experiment.sweep.values:
            if key in map(changed, overrides):
                raise UserError(
                    f"--set {key}: every run has a value of the list that sweeps it: change that list"
                )
        return dataclasses.replace(experiment, notes=(*notes, *experiment.notes)) if notes else experiment

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str = "experiment", elsewhere: bool = False) -> "Experiment":
        """From a table as TOML gives it; ``elsewhere``: its paths are another machine's."""
        table = _with_named_partition(table)
        _refuse_misplaced(table)
        top, notes = build(_Top, table, ""), list[str]()
        sweep, given = Sweep.read(top.sweep), dict[str, Any]()
        if sweep.conditions:
            if top.conditions:
                raise UserError("conditions: they are swept (sweep.conditions), so leave 'conditions' out")
            given = copy.deepcopy(dict(table))
        for number, conditions in enumerate(sweep.conditions or filter(None, [top.conditions])):
            filled, said = under_conditions(table, conditions)
            notes += [note for note in said if note not in notes]
            top = top if number else build(_Top, filled, "")  # an experiment is that of the first
        for module in top.imports:
            import_own(module, "imports")
        if asks_for_auto(table):
            return cls._settled(table, name, elsewhere)
        methods, split = read_methods(top.method), dict(top.split)
        evaluation = build(Evaluation, top.evaluate, "evaluate")
        if "validation" not in split and (why := _needs_validation(methods, evaluation)):
            split["validation"] = HELD_OUT
            notes.append(
                f"{why}: {HELD_OUT:.0%} of each client's training data is held out, for every method"
            )
        data = {"source": "digits", **top.data}
        model = {"name": top.model} if isinstance(top.model, str) else {"name": "mlp", **top.model}
        checked(model["name"], str, "model.name")
        partition = dict(top.partition) or {"name": "natural" if data.get("client") else "dirichlet"}
        if "name" not in partition:
            raise UserError(f"partition.name: missing; known: {', '.join(PARTITIONS.names())}")
        protocol = PARTITIONS.get(checked(partition.pop("name"), str, "partition.name"))
        if not (top.name or name).isprintable():
            raise UserError("name: write one line of text, without control characters")
        return cls(
            name=top.name or name,
            rounds=top.rounds,
            cohort=checked(top.cohort, int if isinstance(top.cohort, int) else float, "cohort"),
            seeds=_distinct(top.seeds, "seeds"),
            methods=methods,
            data=_checked_data(data, elsewhere),
            partition=build(protocol, partition, "partition"),
            split=build(SplitPlan, split, "split"),
            model=model,
            local=build(Local, top.local, "local"),
            privacy=build(Privacy, top.privacy, "privacy"),
            faults=build(Faults, top.faults, "faults"),
            evaluation=evaluation,
            trust=build(Trust, top.trust, "trust"),
            imports=top.imports,
            own_local=read_own_local(top.method, methods),
            sweep=sweep,
            given=given,
            trackers=read_trackers(top.track),
            means=build(Means, top.run, "run"),
            notes=tuple(notes),
        )

    @classmethod
    def _settled(cls, table: Mapping[str, Any], name: str, elsewhere: bool) -> "Experiment":
        """With a method in place of ``auto``, by what the clients of the first seed reveal."""
        if elsewhere:
            refuse_auto(table)
        probe = cls.of({**table, "method": "fedavg"}, name)
        methods, undecided, notes = settle(listed(table["method"]), probe.task(probe.seeds[0]))
        settled = cls.of({**table, "method": methods}, name)
        return dataclasses.replace(settled, undecided=undecided, notes=(*notes, *settled.notes))

    def tracked(self, texts: Iterable[str]) -> "Experiment":
        """The same experiment with further trackers, written like ``mlflow(experiment='hearts')``."""
        more = read_trackers(parse_trackers(texts))
        kept = [tracker for tracker in self.trackers if tracker.name not in {other.name for other in more}]
        return dataclasses.replace(self, trackers=(*kept, *more)) if more else self

    def running_on(self, ray: str | None) -> "Experiment":
        """The same experiment on this Ray cluster; None: where its file says."""
        if ray is None:
            return self
        return dataclasses.replace(self, means=dataclasses.replace(self.means, ray=ray))

    def swept(self, texts: Iterable[str], also_as_it_is: bool = False) -> "Experiment":
        """The same experiment with further values, written like ``local.lr=0.01,0.1``; of settings that were
        not swept so far, perhaps also the one that they have."""
        more = Sweep.parse(texts)
        if also_as_it_is:
            next(dataclasses.replace(self, sweep=more).variants())  # refuses what there is not
            known = dict(self.sweep.values)
            own = [(key, (self._said(key),)) for key, _ in more.values if key not in known]
            more = Sweep(tuple(own)).with_more(more)
        return dataclasses.replace(self, sweep=self.sweep.with_more(more))

    def _said(self, key: str) -> Any:
        """The value of a setting, for a list of values."""
        if (value := self.value(key)) is None:
            raise UserError(
                f"--sweep {key}: the runs that are there do not say what it is, so no list can name it with "
                "other values: start a new comparison"
            )
        return value

    def value(self, key: str) -> Any:
        """Of a setting, None if nothing says it; of one of a part, as the first method has it that has the
        part."""
        if key.startswith(OF_METHODS):
            return value_of_part(self.methods, key)
        here: Any = self.table(self.methods[0])
        for name in key.split("."):
            here = here.get(name) if isinstance(here, Mapping) else None
        return here

    def with_methods(self, methods: Sequence[Method]) -> "Experiment":
        """The experiment with these in place of its methods, one for each."""
        renamed = {old.title: new.title for old, new in zip(self.methods, methods, strict=True)}
        own = {renamed[title]: settings for title, settings in self.own_local.items()}
        return dataclasses.replace(self, methods=tuple(methods), own_local=own)

    def of_one(self, method: Method) -> "Experiment":
        """The experiment of this method alone, whose clients train as it has them."""
        own = self.own_local.get(method.title, {})
        local = build(Local, {**dataclasses.asdict(self.local), **own}, f"method.{method.title}.local")
        return dataclasses.replace(self, methods=(method,), local=local, own_local={})

    def variants(self) -> Iterator[tuple[Point, "Experiment"]]:
        """Every combination of what it sweeps, and the experiment with it; itself if it sweeps nothing."""
        if not self.sweep.values:
            yield {}, self
            return
        for point in self.sweep.points():
            table = copy.deepcopy(self.table())
            del table["sweep"]
            for key, value in point.items():
                if not key.startswith(OF_METHODS):
                    assign(table, key, value, f"sweep: {key}")
            yield point, Experiment.of(table, self.name).with_methods(with_settings(self.methods, point))

    def count_runs(self) -> int:
        """How many it makes, at most: what is the same under several conditions is run once."""
        runs = len(self.sweep) * len(self.seeds) * len(self.methods)
        if runs > MOST:
            raise UserError(f"these are {runs:,} runs, and a comparison has at most {MOST:,}: ask for fewer")
        return runs

    @property
    def dataset(self) -> Dataset:
        """Read once for all experiments on the same data."""
        slot = _cached_dataset(repr(self.data))
        if not slot:
            source = build(SOURCES.get(self.data["source"]), _options(self.data), "data")
            slot.append(vars(self).get("brought") or source.load(Places.of(self.data.get("root"))))
        return slot[0]

    def bring(self, dataset: Dataset) -> None:
        """What somebody else has read of these data, if nobody here has."""
        slot = _cached_dataset(repr(self.data))
        slot[:] = slot or [dataset]

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which cannot find what is in the memory of this one."""
        return vars(self) | ({"brought": self.dataset} if self.data["source"] == "memory" else {})

    @property
    def dealing(self) -> str:
        """What federations are made of; where it is the same, they are."""
        return repr((self.data, self.partition.name, self.partition, self.split))

    @property
    def scale(self) -> ScaleRule:
        """How numbers of examples are scaled: unless exact tables may be told, by each client for itself."""
        asked: ScaleRule = self.data.get("scale", "federated")
        return "client" if asked == "federated" and self.privacy.counts != "exact" else asked

    def federation(self, seed: int, scale: ScaleRule | None = None) -> Federation:
        """The federation of this seed; ``scale`` stands in for the experiment's own."""
        return _federation(self, seed, scale or self.scale)

    def task(self, seed: int) -> Task:
        """What every method of this experiment is given for this seed."""
        federation = self.federation(seed)
        model = self.network(federation)
        return Task(federation, model, self.local, self.cohort, self.privacy, self.faults, seed)

    def network(self, federation: Federation | Revealed) -> Flat:
        """The model, for data of this kind."""
        settings = {key: value for key, value in self.model.items() if key != "name"}
        fits = federation.shape, federation.num_classes
        return flat_model(self.model["name"], *fits, settings, federation.vocabulary)

    def table(self, method: Method | None = None, seed: int | None = None) -> dict[str, Any]:
        """The experiment file of one run, or of all, without defaults of data sources, models and methods."""
        methods = self.methods if method is None else (method,)
        seeds = self.seeds if seed is None else (seed,)
        partition = {"name": self.partition.name, **dataclasses.asdict(self.partition)}
        sections = {
            "data": self.data,
            "partition": partition,
            "split": _without(self.split, "tuning", "share"),
            "model": self.model,
            "local": dataclasses.asdict(self.local),
            "privacy": dataclasses.asdict(self.privacy),
            "faults": dataclasses.asdict(self.faults),
            "evaluate": _without(self.evaluation, "best", "everybody", "metric", "on"),
        }
        if method is None:  # who reads the file again means what it meant
            sections["evaluate"]["on"] = self.evaluation.on
        if self.trust != Trust():  # as there
            sections["trust"] = dataclasses.asdict(self.trust)
        if method is None and self.trackers:  # of all runs: a run is the same whoever is told of it
            sections["track"] = write_trackers(self.trackers)
        if method is None and (kept := self.means.kept):
            sections["run"] = kept
        if method is None and self.sweep.values:
            sections["sweep"] = self.sweep.table()
        top = {"name": self.name, "rounds": self.rounds, "cohort": self.cohort, "seeds": list(seeds)}
        if self.imports:
            top["imports"] = list(self.imports)
        entries = [write_method(entry, self.own_local.get(entry.title, {})) for entry in methods]
        if method is None and self.given:  # what it leaves open is filled in for each run
            own = {key: sections.get(key, {}) for key in ("track", "run", "sweep")}
            data = {key: self.data[key] for key in self.given.get("data", {})}  # with paths from the root
            given = {**self.given, **own, "data": data, "name": self.name, "seeds": list(seeds)}
            return {**_writable(given), "method": entries}
        return {**top, **{key: _writable(value) for key, value in sections.items()}, "method": entries}


@dataclass(frozen=True)
class _Top:
    """The top level of an experiment file."""

    method: list | str | tuple[str, ...]
    name: str = ""
    rounds: Annotated[int, between(1, ROUNDS)] = 50
    cohort: Any = 0.1  # 1 is a client, 1.0 is everybody: not to be converted
    seeds: tuple[int, ...] = (0,)
    imports: tuple[str, ...] = ()
    conditions: str = ""  # of a paper, for all that the file leaves open
    model: str | dict = "mlp"
    data: dict = field(default_factory=dict)
    partition: dict = field(default_factory=dict)
    split: dict = field(default_factory=dict)
    local: dict = field(default_factory=dict)
    privacy: dict = field(default_factory=dict)
    faults: dict = field(default_factory=dict)
    evaluate: dict = field(default_factory=dict)
    trust: dict = field(default_factory=dict)
    track: dict = field(default_factory=dict)
    run: dict = field(default_factory=dict)
    sweep: dict = field(default_factory=dict)


def _refuse_misplaced(table: Mapping[str, Any]) -> None:
    """Raises UserError if a setting of a section stands outside of it."""
    for key in table.keys() - {setting.name for setting in settings_of(_Top)}:
        kinds = [("partition", PARTITIONS.get(name)) for name in PARTITIONS.names()]
        for section, cls in (*SECTIONS.items(), *kinds):
            if any(key == setting.name for setting in settings_of(cls)):
                raise UserError(f"{key}: unknown, did you mean '{section}.{key}'?")


def _with_named_partition(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where it is a text like ``dirichlet(clients=20)``, as the table that it is short for."""
    if not isinstance(text := table.get("partition"), str):
        return table
    name, parameters = parse_one(text, "partition")
    return {**table, "partition": {"name": name, **parameters}}


def as_asked(table: Mapping[str, Any]) -> dict[str, Any]:
    """A user's own experiment: validation samples rank methods and choose the round, unless it says so
    otherwise, is a paper's, or asks for numbers that need test samples in every round. Run directories from
    before there was such a setting do not come here."""
    evaluate, split = table.get("evaluate", {}), table.get("split", {})
    if not isinstance(evaluate, Mapping) or not isinstance(split, Mapping):
        return dict(table)  # which is refused
    swept = table.get("sweep", {})
    paper = table.get("conditions") or (isinstance(swept, Mapping) and "conditions" in swept)
    decided = {"on", *OVER_ROUNDS} & evaluate.keys() or split.get("validation", HELD_OUT) == 0
    return dict(table) if paper or decided else {**table, "evaluate": {**evaluate, "on": "validation"}}


def _needs_validation(methods: Sequence[Method], evaluation: Evaluation) -> str:
    """Who, in words."""
    if who := [method.title for method in methods if "validation" in method.uses]:
        return f"{who[0]} needs validation data"
    if evaluation.on == "validation":
        return "validation data choose the round and rank methods (evaluate.on)"
    return ""


def config_hash(table: Mapping[str, Any]) -> str:
    """Eight characters that name a run's settings."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:8]


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> str | None:
    """The first setting in which two tables differ, as words; None if they are the same."""
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        where = f"{path}.{key}" if path else key
        a, b = ours.get(key), theirs.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if (inner := difference(a, b, where)) is not None:
                return inner
        elif a != b:
            return f"{where} is {a!r} here and {b!r} there"
    return None


@lru_cache(maxsize=2)
def _cached_dataset(key: str) -> list[Dataset]:
    return []


@lru_cache(maxsize=8)
def _cached_federation(key: str, _: int) -> list[Federation]:
    return []


def _federation(experiment: Experiment, seed: int, scale: ScaleRule) -> Federation:
    """One federation per data, partition, split, scale and seed, shared by all methods."""
    slot = _cached_federation(f"{experiment.dealing} {scale}", seed)
    if not slot:
        dealt = federate(experiment.dataset, experiment.partition, experiment.split, seed, scale)
        withheld = scale == experiment.scale != experiment.data.get("scale", "federated")
        if withheld and experiment.dataset.numbers is not None:
            told = dealt.provenance["data"]
            read = "; ".join(filter(None, (told.get("read"), UNTOLD.format(experiment.privacy.counts))))
            dealt = dataclasses.replace(
                dealt, provenance={**dealt.provenance, "data": {**told, "read": read}}
            )
        slot.append(dealt)
    return slot[0]


def _distinct(entries: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    """At least one, and none twice: each run has its own directory."""
    if not entries:
        raise UserError(f"{path}: the list is empty, give at least one")
    entry, times = Counter(entries).most_common(1)[0]
    if times > 1:
        raise UserError(f"{path}: {entry} is listed twice, list it once")
    return entries


def _checked_data(data: dict[str, Any], elsewhere: bool) -> dict[str, Any]:
    """Refuses unknown options before any file is read; makes paths absolute, for a resume from elsewhere."""
    build(SOURCES.get(checked(data["source"], str, "data.source")), _options(data), "data")
    for key, kind in COMMON.items():
        if key in data:
            checked(data[key], kind, f"data.{key}")
    return data | {key: ELSEWHERE if elsewhere else _absolute(data[key]) for key in places_in(data)}


def _options(data: Mapping[str, Any]) -> dict[str, Any]:
    """What is the source's own."""
    return {key: value for key, value in data.items() if key not in COMMON}


def _absolute(path: Any) -> Any:
    """The path of something that is here; what is not may be below the data root and stays as it is."""
    here = user_path(path) if isinstance(path, str) else None
    if here is None or not (here.parent if "*" in here.name else here).exists():
        return path
    return str(here.resolve())


def _without(settings: Any, *later: str) -> dict[str, Any]:
    """A section, without what came ``later`` where that has its default: runs from before keep their
    names."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings) if field.name in later}
    table = dataclasses.asdict(settings)
    return {key: value for key, value in table.items() if key not in later or value != defaults[key]}


def _writable(value: Any) -> Any:
    """As TOML can write it: no empty values, lists for tuples."""
    if isinstance(value, Mapping):
        return {key: _writable(item) for key, item in value.items() if item is not None}
    return [_writable(item) for item in value] if isinstance(value, list | tuple) else value
