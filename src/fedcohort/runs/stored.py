"""The one reader of run directories: what was asked, what is known of the method, what came out.

A directory may be damaged, or written by somebody who wishes us ill. So everything is read within bounds,
what is wrong is said, and nothing that a file names is imported, called or written to.
"""

import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fedcohort.core.engine import Samples
from fedcohort.core.evaluate import Row
from fedcohort.core.profile import Privacy
from fedcohort.core.roles import Grouping
from fedcohort.core.state import BEST
from fedcohort.data.revealed import Revealed
from fedcohort.runs.about import ABOUT, About, built_in_grouping
from fedcohort.runs.evaluation import CHOSEN, Metric, on_samples
from fedcohort.runs.outcomes.flat import flat
from fedcohort.stats.label_distances import Array
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.files import LARGE, RESTORE, damaged, fields, read_bytes, read_json, read_toml
from fedcohort.util.settings import at_least, between, build
from fedcohort.util.user_code import resume_command

ASKED = "experiment.toml"  # what a comparison was asked to do, in its directory
CONFIG = "config.toml"
ENVIRONMENT = "env.json"
TABLE = "table.csv"
RESULT = "result.json"
ROSTER = "roster.safetensors"  # who takes part, and what they told of their data
PREPARATION = "preparation.json"  # how rows become examples
AGAIN = "restore it, or start the run again"
ROUNDS = 10**9  # of a run, at most
Seed = Annotated[int, between(-(2**53), 2**53)]
ROWS, GROUPS = 10**7, 10**6
SHARES = ("accuracy", "balanced_", "macro_f1", "majority", "auroc", "average_precision", "named[")
NUMBERS = 1e150  # whose squares are numbers too
LONGEST = 2000  # characters of a method


class RunSettings:
    """The settings of one run as its directory keeps them: texts and numbers, of which nothing is made."""

    def __init__(self, table: dict[str, Any], path: Path) -> None:
        self.table, self.flat = table, flat(table, path)
        hints = {"rounds": Annotated[int, between(1, ROUNDS)], "seeds": tuple[Seed, ...], "method": list}
        told = fields(table, hints, path)
        if not told["seeds"] or not told["method"]:
            raise damaged(path, "it names no method or no seed")
        self.rounds: int = told["rounds"]
        self.seed: int = told["seeds"][0]
        self.method, self.title = method_names(told["method"][0], path)
        self.name = _text(table, "name", path)
        self.source, self.partition, self.model = (
            _text(_section(table, section), key, path)
            for section, key in (("data", "source"), ("partition", "name"), ("model", "name"))
        )
        evaluate = {"metric": "global.accuracy", "on": "test", **_section(table, "evaluate")}
        asked = fields(evaluate, {"metric": Metric, "on": Samples}, path)
        self.ranked_by, self.on = on_samples(asked["on"], asked["metric"]), asked["on"]
        try:
            self.privacy = build(Privacy, _section(table, "privacy"), "privacy")
        except (UserError, OverflowError) as error:
            raise damaged(path, error) from None

    @classmethod
    def read(cls, directory: Path) -> "RunSettings":
        return cls(read_toml(directory / CONFIG), directory / CONFIG)


def method_names(entry: Any, path: Path) -> tuple[str, str]:
    """The text of a method and what results call it."""
    table = {"name": entry} if isinstance(entry, str) else entry
    name = fields(table, {"name": str}, path)["name"]
    title = _text(table, "label", path) or name
    if not (name.isprintable() and 0 < len(name) <= LONGEST):
        raise damaged(path, "a method's name is not one line of text")
    return name, title


class Planned(NamedTuple):
    """A run that a comparison will have, where it sweeps nothing."""

    method: str
    title: str
    seed: int


def planned(home: Path) -> list[Planned]:
    """In the order of the comparison."""
    path = home / ASKED
    told = fields(read_toml(path), {"method": list, "seeds": tuple[Seed, ...]}, path)
    methods = [method_names(entry, path) for entry in told["method"]]
    return [Planned(*method, seed) for seed in told["seeds"] for method in methods]


@dataclass(frozen=True)
class RunDir:
    """One run, as its directory shows it."""

    directory: Path
    settings: RunSettings
    about: About

    @classmethod
    def read(cls, directory: Path) -> "RunDir":
        settings, path = RunSettings.read(directory), directory / ABOUT
        if path.exists():
            return cls(directory, settings, About.read(path))
        elsewhere = (directory / ROSTER).exists()  # once only deployments kept one
        return cls(directory, settings, About.rebuilt(settings.method, settings.privacy, elsewhere))

    @property
    def complete(self) -> bool:
        return read_result(self.directory) is not None

    @property
    def grouping(self) -> Grouping | None:
        """The part that forms groups; None if it does not come with fedcohort, and so is not executed."""
        return built_in_grouping(self.settings.method, self.about.grouping)

    def environment(self) -> dict[str, Any]:
        return read_environment(self.directory, RESTORE)

    def rows(self, growing: bool = False) -> list[Row]:
        return read_table(self.directory / TABLE, growing)

    def revealed(self) -> Revealed:
        """What clients revealed. A look never reads the data that a directory names."""
        if (self.directory / ROSTER).exists():
            return Revealed.read(self.directory / ROSTER)
        raise UserError(
            f"{self.directory} keeps no label counts, as an older fedcohort wrote it: "
            f"'{resume_command(self.directory, self.settings.table)}' adds them"
        )


@dataclass(frozen=True)
class FinishedRun(RunDir):
    """A complete run, and the group that serves each of its clients."""

    group: dict[str, int]  # by the client's name, in the order of clients

    @classmethod
    def read(cls, directory: Path) -> "FinishedRun":
        """The run in ``directory``, or the only one of a comparison."""
        compared, found = settings_file(directory).name == ASKED, runs_of(directory)
        several = max(len(found), len(planned(directory)) if compared else 1)
        if several > 1:
            one = f", like {found[0]}" if found else ""
            raise UserError(f"{directory} holds {several} runs: name one of them{one}")
        run = RunDir.read(found[0]) if found else None
        if run is None or not run.complete:
            resume = resume_command(directory, run.settings.table if run else {})
            raise UserError(f"{directory} is not finished: continue it with '{resume}'")
        group = {row.client: int(row.group) for row in run.rows() if row.client and row.scope == "personal"}
        return cls(run.directory, run.settings, run.about, group)

    @property
    def models(self) -> int:
        """How many groups have a model; some may serve nobody."""
        names, result = set(checkpoint.names(self.directory)), read_result(self.directory) or {}
        earlier = CHOSEN in result and result[CHOSEN] < self.rows()[-1].round
        before = BEST if earlier and f"{BEST}round" in names else ""
        return next(n for n in range(len(names) + 1) if f"{before}group/{n}/weights/params" not in names)

    def counts(self) -> tuple[Array, list[str]]:
        """Label counts of the clients as the server saw them; the classes. What privacy withheld, nobody can
        look up later."""
        known = self.revealed()
        if known.counts is None:
            raise UserError(
                "this run withheld its clients' label counts (privacy.counts): give --losses instead"
            )
        if known.clients != tuple(self.group):
            raise damaged(self.directory / TABLE, "its clients are not those who told their label counts")
        return known.counts.numpy(), list(known.classes)


def read_result(directory: Path) -> dict[str, float] | None:
    """The final numbers of a complete run, or None."""
    path = directory / RESULT
    if not path.exists():
        return None
    cure = f"delete it, and 'fedcohort run --resume {directory}' writes it again"
    table = read_json(path, cure)
    number = Annotated[float, between(-NUMBERS, NUMBERS)] | None
    hints = dict.fromkeys(table if isinstance(table, dict) else (), number)
    numbers = fields(table, hints, path, cure)
    return {key: float("nan") if value is None else float(value) for key, value in numbers.items()}


def read_environment(directory: Path, cure: str) -> dict[str, Any]:
    """With what, on what and when a run was made."""
    path = directory / ENVIRONMENT
    hints = {"versions": dict, "machine": str, "command": tuple[str, ...], "started": str, "fingerprint": str}
    table = read_json(path, cure)
    told = fields(table, hints, path, cure)
    told |= fields({"seconds": 0.0, **table}, {"seconds": Annotated[float, at_least(0)]}, path, cure)
    versions = {"fedcohort": "", "torch": "", **told["versions"]}
    told["versions"] = fields(versions, dict.fromkeys(versions, str), path, cure)
    return {**table, **told}


def read_table(path: Path, growing: bool = False) -> list[Row]:
    """The rows of a table.csv; of one that is ``growing``, those that are completely written."""
    data = read_bytes(path, LARGE, AGAIN)
    return parse_table(data[: data.rfind(b"\n") + 1] if growing else data, path)


def parse_table(data: bytes, path: Path) -> list[Row]:
    """The rows after the header."""
    head = f"{','.join(Row._fields)}\n".encode()
    if not data.startswith(head):
        raise damaged(path, "its first line is not the header", AGAIN)
    return parse_rows(data, path, len(head))


def parse_rows(data: bytes, path: Path, start: int = 0) -> list[Row]:
    """Rows that stand in the order of rounds and hold the numbers that runs have.

    They are decoded as they are read, and equal words are kept once: a table may be large.
    """
    rows: list[Row] = []
    last, text = 0, io.BytesIO(data)
    text.seek(start)
    try:
        for line in csv.reader(io.TextIOWrapper(text, "utf-8", newline="")):
            if len(rows) == ROWS:
                raise ValueError(f"it has more than {ROWS:,} rows")
            scope, client, group, metric = map(sys.intern, line[1:5])
            row = Row(int(line[0]), scope, client, group, metric, float(line[5]))
            if not last <= row.round <= ROUNDS or len(line) != len(Row._fields):
                raise ValueError(f"round {row.round} comes after round {last}")
            if (why := _wrong(row)) is not None:
                raise ValueError(f"round {row.round}: {why}")
            last = row.round
            rows.append(row)
    except (ValueError, IndexError, csv.Error) as error:
        raise damaged(path, error, AGAIN) from None
    return rows


def _wrong(row: Row) -> str | None:
    """What no run writes."""
    if row.metric.startswith(SHARES) and not (math.isnan(row.value) or abs(row.value - 0.5) < 0.500001):
        what = "an accuracy" if row.metric.startswith("accuracy") else f"{row.metric:.40}"
        return f"{what} of {row.value:g}"
    if row.metric in ("trained", "test_size") and not 0 <= row.value <= 2.0**53:
        return f"{row.metric} is {row.value:g}"
    known = row.group.isdecimal() and len(row.group) < 8 and int(row.group) < GROUPS
    if not known and not row.overall:
        return f"{row.group!r:.40} is no group"
    return None


def _section(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A section of the settings; a model may be its name alone."""
    section = table.get(key, {})
    return section if isinstance(section, dict) else {"name": section}


def _text(table: Mapping[str, Any], key: str, path: Path) -> str:
    text = fields({key: "", **table}, {key: str}, path)[key]
    if not text.isprintable() or len(text) > LONGEST:
        raise damaged(path, f"{key} is not one line of text")
    return str(text)


def is_home(directory: Path) -> bool:
    """Whether it is the directory of a run or of a comparison."""
    try:
        return any((directory / name).exists() for name in (ASKED, CONFIG))
    except OSError:  # we may not look
        return False


def is_written(file: Path) -> bool:
    """Whether it says what runs were asked, in their directory, and not what a user asks."""
    below = {CONFIG: ENVIRONMENT, ASKED: f"*/{ENVIRONMENT}"}.get(file.name)
    return below is not None and any(file.parent.glob(below))


def settings_file(directory: Path) -> Path:
    """What says what was asked of a comparison or a run; a sentence if this is the directory of neither."""
    if not is_home(directory):
        raise UserError(f"{directory} is not the directory of a run: it holds neither {ASKED} nor {CONFIG}")
    return next(path for name in (ASKED, CONFIG) if (path := directory / name).exists())


def homes_in(directory: Path) -> list[Path]:
    """The runs and comparisons in a directory such as ``runs``, by name; a run or comparison is its own."""
    if is_home(directory):
        return [directory]
    return sorted(filter(is_home, directory.iterdir()))


def runs_of(home: Path) -> list[Path]:
    """The run directories of a comparison in the order in which they were started; a run is its own."""
    if (home / CONFIG).exists():
        return [home]
    found = {path.parent for name in (CONFIG, TABLE) for path in home.glob(f"*/{name}")}
    return sorted(found, key=lambda run: (_started(run), run))


def in_order(home: Path, runs: Iterable[RunDir]) -> list[RunDir]:
    """As the comparison lists them, a method with swept parameters where it is listed without; what it does
    not list comes after."""
    place: dict[tuple[object, int], int] = {}
    for number, run in enumerate(planned(home) if (home / ASKED).exists() else ()):
        place[run.title, run.seed] = number
        place.setdefault((_parts(run.method), run.seed), number)

    def known(run: RunDir) -> int:
        told = run.settings
        return place.get((told.title, told.seed), place.get((_parts(told.method), told.seed), len(place)))

    return sorted(runs, key=known)


def _parts(method: str) -> tuple[str, ...]:
    """What a method's text is made of, whatever their parameters."""
    try:
        return tuple(name for name, _ in parse(method))
    except UserError:  # no text of ours
        return (method,)


def runs_in(directories: Iterable[Path], left_out: list[str]) -> list[RunDir]:
    """Every run of these directories, each of one run or of a comparison, once and in the order asked for;
    why some cannot be read goes to ``left_out``."""
    found: dict[Path, RunDir] = {}
    for directory in directories:
        settings_file(directory)
        homes = []
        for path in runs_of(directory):
            try:
                homes.append(RunDir.read(path))
            except UserError as error:
                left_out.append(str(error))
        for home in in_order(directory, homes):
            found.setdefault(home.directory.resolve(), home)
    return list(found.values())


def _started(run: Path) -> str:
    try:
        return str(read_json(run / ENVIRONMENT)["started"])
    except (UserError, LookupError, TypeError):  # written a moment after the settings, or damaged
        return "~"
