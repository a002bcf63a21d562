"""From a table, and what its owner says of it, to the settings of an experiment, each with its reason."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcohort.core.method import DEFAULTS, Method
from fedcohort.data.columns import LEVELS, as_names, as_numbers
from fedcohort.data.federation import Federation
from fedcohort.data.labels import cut, refuse_amounts
from fedcohort.data.locate import Places
from fedcohort.data.sources import COMMON
from fedcohort.data.sources.table import Table
from fedcohort.data.survey import ColumnKind, Seen, order_of_dates, roles, survey
from fedcohort.data.tables import FILE, has_header, read_table, require
from fedcohort.diagnosis import diagnose
from fedcohort.diagnosis.verdict import Verdict
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.method_catalogue import describe
from fedcohort.runs.overrides import assign, override_all
from fedcohort.util.errors import Mistakes, UserError
from fedcohort.util.settings import build
from fedcohort.util.words import counted

if TYPE_CHECKING:
    import polars as pl

FEW = 5  # rows of a class, on average: with fewer, the column is no label
SMALLEST = 10  # rows of a client: with fewer, hardly any are left to test on
MANY, SHARE = 50, 0.2  # clients from which not all train in every round, and how many do then
FEW_ROWS = 2000  # for training: a network with a hidden layer would learn them by heart
NARROW, WIDE, ROOM = 512, 4096, 20_000  # numbers that a text becomes; so many texts have room to be wide
REFERENCES = {
    "local_only": "each client trains alone: is it worth sharing at all?",
    "centralised": "all rows in one place, which nobody may do: how good could it be?",
}
DEALT = "--set 'partition=\"dirichlet(clients=10, alpha=0.5)\"'"
AMOUNT = (
    "add --set data.bins=4 for 4 classes of it, --set 'data.bins=[18, 65]' for those between numbers, or, if "
    "it is a category, --set 'data.categorical=[\"{}\"]'"
)


class Reasoned(NamedTuple):
    """A setting, and why it is so; of a list, perhaps why each entry is there."""

    value: Any
    why: str | Mapping[str, str] = ""


@dataclass(frozen=True)
class Asked:
    """What the owner of a table says of it."""

    path: str
    client: str | None = None
    label: str | None = None
    features: Sequence[str] = ()  # to be read, whatever they look like
    changes: Sequence[str] = ()  # like local.lr=0.1: settings of the file


@dataclass(frozen=True)
class Draft:
    """The settings of an experiment for a table, and how the table was understood."""

    settings: Mapping[str, Any]
    choices: Mapping[str, Reasoned]  # by settings like local.lr
    rows: int  # of the table
    columns: Sequence[Seen]
    federation: Federation
    verdict: Verdict
    notes: Sequence[str]  # what its owner should know

    @property
    def reasons(self) -> dict[str, str | Mapping[str, str]]:
        """Of settings that are as they were chosen."""
        tables = {name: table for name, table in self.settings.items() if isinstance(table, dict)}
        now = {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}
        now |= self.settings
        return {key: choice.why for key, choice in self.choices.items() if now.get(key) == choice.value}


def draft_of(asked: Asked) -> Draft:
    """How the table is to be read, who its clients are and what is advised for them."""
    told: dict[str, Any] = {}
    override_all(told, asked.changes)
    own = told.get("data", {})
    if not isinstance(own, dict):
        raise UserError("--set data: name one of its settings, like --set data.bins=4")
    options = {key: value for key, value in own.items() if key not in COMMON}
    table: Table = build(Table, {"path": asked.path, "label": "", **options}, "data")
    table = table if "header" in own else replace(table, header=has_header(asked.path, Places.of()))
    frame = read_table(asked.path, Places.of(), table.layout)
    table = _with_roles(table, asked, frame, "partition" in told)
    named = [name for name in (table.label, table.client) if name is not None]
    rows = frame.filter(np.all([frame[name].is_not_null().to_numpy() for name in named], axis=0))
    if not rows.height:
        raise UserError(f"no row of {asked.path} has a label and a client: check --label and --client")
    whose = None if table.client is None else as_names(rows[table.client])
    classes = _classes(table, rows)
    columns, order, sure = _understood(table, asked.features, {*own}, rows, classes, whose)
    small = 0 if whose is None else _too_small(table, whose)
    choices = _of_data(table, columns, rows.height, frame.height, order)
    if small and "partition" not in told:
        choices |= {
            "partition.name": Reasoned("natural", "a client is who the table says"),
            "partition.min_samples": Reasoned(SMALLEST, "with fewer, hardly any rows are left to test on"),
        }
    choices |= {
        "split.test": Reasoned(0.2, "of each client's rows"),
        "split.validation": Reasoned(0.2, "of the others"),
    }
    federation = _federation(_settings(choices, asked.changes))
    counts = federation.counts.numpy()
    verdict = diagnose(counts, federation.clients, federation.classes).verdict
    choices |= _of_training(federation, verdict, any(seen.kind == "texts" for seen in columns))
    settings = _settings(choices, asked.changes)
    if isinstance(table.bins, int):  # clients that are elsewhere know no quantiles
        settings["data"]["bins"] = list(table.points(table.labels(rows)) or ())
    lacking = frame.height - rows.height
    notes = {
        f"{asked.path} has no header: its columns are numbered": not table.header,
        f"left out: {counted(lacking, 'row')} without a label or a client": lacking,
        f"left out: {counted(small, 'client')} with fewer than {SMALLEST} rows": small,
        "dates may have the month first: write date_order = 'mdy' then": not sure,
    }
    told_notes = [note for note, holds in notes.items() if holds]
    return Draft(settings, choices, frame.height, columns, federation, verdict, told_notes)


def _with_roles(table: Table, asked: Asked, frame: "pl.DataFrame", dealt: bool) -> Table:
    """The table with the columns of client and label, if they are told and there."""
    client, label = asked.client or (FILE if "*" in asked.path and not dealt else None), asked.label
    if label is None or (client is None and not dealt):
        guess = roles(frame)
        perhaps = {"--client": client or guess.client, "--label": label or guess.label}
        words = " ".join(f"{option} {shlex.quote(name or 'COLUMN')}" for option, name in perhaps.items())
        raise UserError(
            "say which columns name the client and the label of each row, perhaps: fedcohort init "
            f"{shlex.quote(asked.path)} {words}; rows that belong to nobody are dealt by {DEALT} instead of "
            "--client"
        )
    if not table.header and label not in frame.columns:
        last = frame.columns[-2]  # before that of the file's name
        raise UserError(f"{asked.path} begins with numbers, so its columns are column_1 to {last}: name one")
    mistakes, named = Mistakes(), [("--label", label), *(("--feature", name) for name in asked.features)]
    for option, name in [*named, *([] if client is None else [("--client", client)])]:
        with mistakes.noted():
            require(frame, name, option)
    mistakes.tell()
    if label == client:
        raise UserError(f"--label and --client both name '{label}': name two columns")
    return replace(table, client=client, label=label)


def _classes(table: Table, rows: "pl.DataFrame") -> np.ndarray:
    """The class of each row."""
    as_it_is = table.bins is None and table.threshold is None and table.classes is None
    if (
        as_it_is
        and table.label not in table.categorical
        and (numbers := as_numbers(rows[table.label])) is not None
    ):
        refuse_amounts(numbers, table.label, AMOUNT.format(table.label))
    labels = table.labels(rows)
    if (points := table.points(labels)) is not None:
        return cut(labels, points)
    values, codes = np.unique(labels, return_inverse=True)
    if len(values) < 2 or len(values) * FEW > len(labels):
        raise UserError(
            f"nothing can be learnt of label '{table.label}', which has {len(values):,} different values in "
            f"{len(labels):,} rows: name another column with --label"
        )
    return codes


def _understood(
    table: Table,
    features: Sequence[str],
    told: Collection[str],
    rows: "pl.DataFrame",
    classes: np.ndarray,
    whose: np.ndarray | None,
) -> tuple[list[Seen], Any, bool]:
    """The other columns, the order of dates in them, and whether that is sure. What is told has the last
    word."""
    apart = {table.label, table.client, FILE, *table.exclude}
    frame = rows.select(column for column in rows if column.name not in apart)
    order, sure = (table.date_order, True) if "date_order" in told else order_of_dates(list(frame))
    of_option: dict[ColumnKind, tuple[str, ...]] = {
        "texts": table.text,
        "categories": table.categorical,
        "dates": table.dates,
    }
    kinds = {name: kind for kind, names in of_option.items() for name in names}
    wanted = {*features, *(table.features or ()), *kinds, *(frame.columns if "exclude" in told else ())}

    def settled(seen: Seen) -> Seen:
        if seen.name not in wanted or (seen.read and seen.name not in kinds):
            return seen
        number = as_numbers(frame[seen.name]) is not None
        kind: ColumnKind = "numbers" if number else "categories" if seen.values <= LEVELS else "texts"
        return replace(seen, kind=kinds.get(seen.name, kind), what="as you said", codes=False)

    found = [settled(seen) for seen in survey(frame, classes, whose, order)]
    if not any(seen.read for seen in found):
        why = "; ".join(f"'{seen.name}', {seen.kind}: {seen.what}" for seen in found) or "there is no other"
        raise UserError(f"no column is left that a model could read ({why}): name some with --feature")
    return found, order, sure


def _too_small(table: Table, whose: np.ndarray) -> int:
    """How many clients are too small to take part."""
    sizes = np.unique(whose, return_counts=True)[1]
    if (sizes < SMALLEST).all():
        raise UserError(
            f"no client has {SMALLEST} rows ('{table.client}' has {len(sizes):,} values in {len(whose):,} "
            "rows): name another column with --client"
        )
    return int((sizes < SMALLEST).sum())


def _of_data(
    table: Table, columns: Sequence[Seen], rows: int, all_rows: int, order: str
) -> dict[str, Reasoned]:
    """How the table is to be read, as it follows from what its columns are."""
    read, left = ([seen for seen in columns if seen.read == whether] for whether in (True, False))
    texts = [seen.name for seen in read if seen.kind == "texts"]
    quantities = [seen for seen in read if seen.kind in ("numbers", "dates")]
    codes = ", ".join(seen.name for seen in read if seen.codes)
    gaps = rows < all_rows or any(seen.empty for seen in quantities)
    width = WIDE if rows * len(texts) <= ROOM else NARROW
    found = {
        "source": Reasoned("table"),
        "path": Reasoned(table.path),
        "label": Reasoned(table.label),
        "client": Reasoned(table.client),
        "header": Reasoned(None if table.header else False, "the first line holds data"),
        "exclude": Reasoned(
            [seen.name for seen in left], {seen.name: f"{seen.kind}: {seen.what}" for seen in left}
        ),
        "categorical": Reasoned([], f"perhaps codes, not amounts: {codes}"),
        "text": Reasoned(texts),
        "text_width": Reasoned(width if texts else None, "numbers that a text becomes"),
        "dates": Reasoned([seen.name for seen in read if seen.kind == "dates"]),
        "date_order": Reasoned(
            None if order == "ymd" else order, "where dates are numbers with the year last"
        ),
        "empty": Reasoned(sorted({word for seen in read for word in seen.odd}), "words in place of numbers"),
        "missing": Reasoned("mean" if gaps else None, "fills empty cells of numbers and dates"),
        "drop_incomplete": Reasoned(rows < all_rows or None, "leaves out rows without label or client"),
    }
    asked = {"categorical"} if codes else set()  # none yet, but its owner may know some
    return {f"data.{key}": one for key, one in found.items() if one.value not in (None, []) or key in asked}


def _federation(settings: Mapping[str, Any]) -> Federation:
    """The clients, of whom there are several."""
    federation = Experiment.of({**settings, "method": "fedavg", "model": "logistic"}).federation(0)
    if federation.num_clients < 2:
        raise UserError(
            "the table has one client, and nobody to learn with: name another column with --client, or deal "
            f"its rows to clients that you make up, {DEALT}"
        )
    return federation


def _of_training(federation: Federation, verdict: Verdict, texts: bool) -> dict[str, Reasoned]:
    """Methods, cohort, model and learning rate, by rules that are simple enough to be said: what fits better,
    ``fedcohort tune`` finds out."""
    clients, rows = federation.num_clients, int(federation.counts.sum())
    everybody = clients < MANY
    methods = {name: _title(name) for name in verdict.methods if not everybody or _takes_everybody(name)}
    methods |= REFERENCES
    cohort = f"all {clients} clients train in every round"
    layers = {
        "model.name": Reasoned("mlp"),
        "model.widths": Reasoned([64], f"{rows:,} training rows are enough"),
    }
    if texts or rows < FEW_ROWS:
        why = "texts have many numbers" if texts else f"more would learn {rows:,} training rows by heart"
        layers = {"model.name": Reasoned("logistic", f"one layer: {why}")}
    return {
        "method": Reasoned([*methods], methods),
        "rounds": Reasoned(50),
        "cohort": Reasoned(1.0, cohort)
        if everybody
        else Reasoned(SHARE, "of the clients train in each round"),
        "seeds": Reasoned([0, 1, 2], "one draw of training and test rows could be luck"),
        **layers,
        "local.lr": Reasoned(1.0, "for the small numbers of texts")
        if texts
        else Reasoned(0.1, "for scaled numbers"),
    }


def _takes_everybody(method: str) -> bool:
    """Whether it leaves open who trains."""
    return Method.parse(method).selector.name == DEFAULTS["selector"]


def _title(method: str) -> str:
    """What the last part of it does."""
    return describe(method.rpartition("+")[2].partition("(")[0])["title"]


def _settings(choices: Mapping[str, Reasoned], changes: Sequence[str]) -> dict[str, Any]:
    """As a file has them, with what the owner says."""
    settings: dict[str, Any] = {}
    for key, choice in choices.items():
        assign(settings, key, choice.value, key)
    override_all(settings, changes)
    return settings
