"""From a table, and what its owner says of it, to the draft of an experiment file."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.advice import Advice
from fedcohort.cli.new_experiment import HELD_OUT, SMALLEST, Draft, cohort, text_width
from fedcohort.data.columns import as_names, label_column
from fedcohort.data.dates import Order
from fedcohort.data.federation import Federation
from fedcohort.data.labels import cut, cut_points, refuse_amounts
from fedcohort.data.locate import Places
from fedcohort.data.survey import Seen, roles, survey
from fedcohort.data.tables import FILE, Layout, has_header, read_table, require
from fedcohort.runs.auto import Wish, advice_for
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import Mistakes, UserError
from fedcohort.util.expression import parse_one

if TYPE_CHECKING:
    import polars as pl

FEW = 5  # rows of a class, on average: with fewer, the column is no label
MOST = 50  # classes of an amount; more of a category are worth a question
MADE_UP = '--partition "dirichlet(clients=10, alpha=0.5)"'
AMOUNT = (
    "add --bins 4 for 4 classes of it, --bins 18,65 for those between numbers, or --category if it is a "
    "category"
)


@dataclass(frozen=True)
class Asked:
    """What the owner of a table says of it."""

    path: str
    client: str | None
    label: str | None
    partition: str | None
    features: Sequence[str] = ()  # to be read, whatever they look like
    exclude: Sequence[str] = ()
    bins: str | None = None
    category: bool = False


def draft_of(asked: Asked) -> Draft:
    """How the table is to be read, who its clients are and which methods are advised for them."""
    layout = Layout(header=has_header(asked.path, Places.of()))
    frame = read_table(asked.path, Places.of(), layout)
    client, label = _named(asked, frame, layout)
    used = [label] if client is None else [label, client]
    complete = np.all([frame[name].is_not_null().to_numpy() for name in used], axis=0)
    rows = frame.filter(complete)
    if not rows.height:
        raise UserError(f"no row of {asked.path} has a label and a client: check --label and --client")
    codes, of_label = _classes(asked, rows, label)
    columns = _in_one_order([_as_told(seen, asked) for seen in survey(rows, label, client, codes)])
    partition, small = _partition(asked, rows, client)
    data = {
        **{"source": "table", "path": asked.path, "label": label},
        **({} if client is None else {"client": client}),
        **({} if layout.header else {"header": False}),
        **({} if complete.all() else {"drop_incomplete": True, "missing": "mean"}),
        **of_label,
        **_options(columns, rows.height),
    }
    federation, advice = _advised(data, partition)
    notes = {
        f"{asked.path} has no header: its columns are numbered": not layout.header,
        f"{frame.height - rows.height:,} rows lack a label or a client and are left out": not complete.all(),
        f"{small:,} clients with fewer than {SMALLEST} rows are left out": small > 0,
        f"{federation.num_classes:,} classes are many: is '{label}' the label?": codes.max() >= MOST,
        "dates may have the month first: write date_order = 'mdy' then": any(
            seen.doubtful for seen in columns
        ),
    }
    command = f"fedcohort init {shlex.quote(asked.path)} --label {shlex.quote(label)}"
    told = tuple(note for note, holds in notes.items() if holds)
    return Draft(command, frame.height, data, partition, columns, federation, advice, told)


def _named(asked: Asked, frame: "pl.DataFrame", layout: Layout) -> tuple[str | None, str]:
    """The columns of client and label, if they are told and there."""
    alone = asked.client is None and asked.partition is None
    client, label = FILE if alone and "*" in asked.path else asked.client, asked.label
    if label is None or (client is None and asked.partition is None):
        guess = roles(frame)
        told = {"--client": client or guess.client, "--label": label or guess.label}
        options = " ".join(f"{option} {shlex.quote(name or 'COLUMN')}" for option, name in told.items())
        raise UserError(
            "say which columns name the client and the label of each row, perhaps: fedcohort init "
            f"{shlex.quote(asked.path)} {options}; rows that belong to nobody are dealt by {MADE_UP} instead "
            "of --client"
        )
    if not layout.header and label not in frame.columns:
        last = frame.columns[-2]  # before that of the file's name
        raise UserError(f"{asked.path} begins with numbers, so its columns are column_1 to {last}: name one")
    mistakes = Mistakes()
    options = {"--label": [label], "--client": [client], "--feature": asked.features}
    options["--exclude"] = asked.exclude
    for option, names in options.items():
        for name in filter(None, names):
            with mistakes.noted():
                require(frame, name, option)
    mistakes.tell()
    if label == client:
        raise UserError(f"--label and --client both name '{label}': name two columns")
    return client, label


def _classes(asked: Asked, frame: "pl.DataFrame", label: str) -> tuple[np.ndarray, dict[str, Any]]:
    """The class of each row, and what the file must say of it."""
    labels = label_column(frame, label)
    if asked.bins is not None:
        if labels.dtype.kind != "f":
            raise UserError(f"label '{label}' holds words: --bins is for numbers, leave it out")
        points = _points(asked.bins, labels)
        return cut(labels, points), {"bins": list(points)}
    if not asked.category:
        refuse_amounts(labels, label, AMOUNT)
    values, codes = np.unique(labels, return_inverse=True)
    if len(values) * FEW > len(labels):
        raise UserError(
            f"label '{label}' has {len(values):,} values in {len(labels):,} rows, so few of each that "
            "nothing can be learnt of them: name another column with --label"
        )
    return codes, {"categorical": [label]} if asked.category and labels.dtype.kind == "f" else {}


def _points(bins: str, labels: np.ndarray) -> tuple[float, ...]:
    """Between classes: so many of about equal size, or those that were named."""
    try:
        numbers = tuple(sorted({float(part) for part in bins.split(",") if part.strip()}))
    except ValueError:
        numbers = ()
    if "," in bins and numbers and np.isfinite(numbers).all():
        return numbers
    if len(numbers) != 1 or numbers[0] not in range(2, MOST + 1):
        raise UserError(
            f"--bins {bins}: write a number of classes from 2 to {MOST}, or the numbers between classes with "
            "commas, like 18,65; a single one like 18,"
        )
    return cut_points(labels, int(numbers[0]))


def _as_told(seen: Seen, asked: Asked) -> Seen:
    """What the owner says of a column has the last word."""
    if seen.name in asked.exclude:
        return replace(seen, kind="unwanted", what="as you said")
    if seen.name in asked.features and not seen.read:
        return replace(seen, kind="numbers" if seen.number else "texts", what="as you said")
    return seen


def _in_one_order(columns: Sequence[Seen]) -> list[Seen]:
    """Dates with the year last are read in one order: that of those which leave no doubt, else day first."""
    sure = [seen.order for seen in columns if seen.kind == "dates" and not seen.doubtful]
    known: Order | None = next((each for each in sure if each != "ymd"), None)

    def settled(seen: Seen) -> Seen:
        if seen.kind != "dates" or seen.order == "ymd":
            return replace(seen, doubtful=False)
        if seen.doubtful or seen.order == known:
            return replace(seen, order=known or "dmy", doubtful=known is None)
        return replace(seen, kind="names", what="dates of another order than others", doubtful=False)

    return [settled(seen) for seen in columns]


def _options(columns: Sequence[Seen], rows: int) -> dict[str, Any]:
    """Of the table, as they follow from what its columns are."""
    read = [seen for seen in columns if seen.read]
    if not read:
        why = "; ".join(f"'{seen.name}', {seen.reason}" for seen in columns) or "there is no other"
        raise UserError(f"no column is left that a model could read ({why}): name some with --feature")
    texts = [seen.name for seen in read if seen.kind == "texts"]
    dates = {seen.name: seen.order for seen in read if seen.kind == "dates"}
    found: dict[str, Any] = {}
    if left := [seen.name for seen in columns if not seen.read]:
        found["exclude"] = left
    if texts:
        found |= {"text": texts, "text_width": text_width(rows, len(texts))}
    if dates:
        found["dates"] = list(dates)
    if other := next((order for order in dates.values() if order != "ymd"), None):
        found["date_order"] = other
    if odd := sorted({word for seen in read for word in seen.odd}):
        found["empty"] = odd
    if any(seen.empty for seen in read if seen.kind in ("numbers", "dates")):
        found["missing"] = "mean"
    return found


def _partition(asked: Asked, frame: "pl.DataFrame", client: str | None) -> tuple[dict[str, Any], int]:
    """Who owns which rows, and how many clients are too small to take part."""
    if asked.partition is not None:
        name, parameters = parse_one(asked.partition, "--partition")
        return {"name": name, **parameters}, 0
    assert client is not None  # noqa: S101  # one of both was asked for
    sizes = np.unique(as_names(frame[client]), return_counts=True)[1]
    small = int((sizes < SMALLEST).sum())
    if small == len(sizes):
        raise UserError(
            f"no client has {SMALLEST} rows ('{client}' has {len(sizes):,} values in {frame.height:,} rows): "
            "name another column with --client"
        )
    return ({"name": "natural", "min_samples": SMALLEST} if small else {}), small


def _advised(data: Mapping[str, Any], partition: Mapping[str, Any]) -> tuple[Federation, Advice]:
    """The clients, and what is advised for them."""
    split = {"test": HELD_OUT, "validation": HELD_OUT}
    asked = {"method": "fedavg", "data": data, "partition": partition, "split": split, "model": "logistic"}
    federation = Experiment.of(asked).federation(0)
    if federation.num_clients < 2:
        raise UserError(
            "the table has one client, and nobody to learn with: name another column with --client, or deal "
            f"its rows to clients that you make up, {MADE_UP}"
        )
    task = Experiment.of({**asked, "cohort": cohort(federation.num_clients)}).task(0)
    return federation, advice_for(task, Wish())
