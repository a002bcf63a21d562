"""From a table, and what its owner says of it, to the draft of an experiment file."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.advice import Advice
from fedcohort.cli.new_experiment import HELD_OUT, SMALLEST, Draft, cohort, text_width
from fedcohort.data.columns import as_names, label_column
from fedcohort.data.dates import Order
from fedcohort.data.federation import Federation
from fedcohort.data.labels import cut, cut_points, refuse_amounts
from fedcohort.data.locate import Places
from fedcohort.data.survey import Roles, Seen, roles, survey
from fedcohort.data.tables import FILE, Layout, has_header, read_table, require
from fedcohort.runs.auto import Wish, advice_for
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import Mistakes, UserError
from fedcohort.util.expression import parse_one

if TYPE_CHECKING:
    import polars as pl

FEW = 5  # rows of a class, on average: with fewer, the column is no label
MOST = 50  # classes of an amount
AMOUNT = (
    "add --bins 4 for 4 classes of it, --bins 18,65 for those between numbers, or --category if it is one"
)


def draft_of(
    path: str,
    client: str | None,
    label: str | None,
    partition: str | None,
    features: Sequence[str],
    exclude: Sequence[str],
    bins: str | None,
    category: bool,
) -> Draft:
    """How the table is to be read, who its clients are and which methods are advised for them."""
    layout = Layout(header=has_header(path, Places.of()))
    frame = read_table(path, Places.of(), layout)
    client = FILE if client is None and partition is None and "*" in path else client
    if label is None or (client is None and partition is None):
        raise UserError(_what_to_type(path, frame, client, label))
    if not layout.header and label not in frame.columns:
        last = frame.columns[-2]  # before that of the file's name
        raise UserError(
            f"the first line of {path} holds numbers, so its columns are column_1 to {last}: name one"
        )
    _require(frame, {"--label": [label], "--client": [client], "--feature": features, "--exclude": exclude})
    data: dict[str, Any] = {"source": "table", "path": path, "label": label}
    data |= {} if layout.header else {"header": False}
    data |= {} if client is None else {"client": client}
    used = [label, *([] if client is None else [client])]
    complete = np.all([frame[name].is_not_null().to_numpy() for name in used], axis=0)
    known = frame.filter(complete)
    if not known.height:
        raise UserError(f"no row of {path} has a label and a client: check --label and --client")
    data |= {} if complete.all() else {"drop_incomplete": True, "missing": "mean"}
    codes, more = _classes(known, label, bins, category)
    columns = [_as_told(seen, features, exclude) for seen in survey(known, label, client, codes)]
    columns = _in_one_order(columns)
    data |= {**_reading(columns, known.height), **more}
    dealt, small = _dealt(known, client, partition)
    notes = {
        f"{path} has no header: its columns are numbered": not layout.header,
        f"{(~complete).sum():,} rows lack a label or a client and are left out": not complete.all(),
        f"{len(np.unique(codes)):,} classes are many: is '{label}' the label?": codes.max() >= MOST,
        f"{small:,} clients with fewer than {SMALLEST} rows are left out": small > 0,
        "dates could have the month first: set date_order = 'mdy' then": any(
            seen.doubtful and seen.kind == "dates" for seen in columns
        ),
    }
    command = f"fedcohort init {shlex.quote(path)} --label {shlex.quote(label)}"
    federation, advice = _advised(data, dealt)
    told = tuple(note for note, holds in notes.items() if holds)
    return Draft(command, frame.height, data, dealt, columns, federation, advice, told)


def _advised(data: Mapping[str, Any], partition: Mapping[str, Any]) -> tuple[Federation, Advice]:
    """The clients, and what is advised for them."""
    split = {"test": HELD_OUT, "validation": HELD_OUT}
    asked = {"method": "fedavg", "data": data, "partition": partition, "split": split, "model": "logistic"}
    clients = Experiment.of(asked).federation(0).num_clients
    if clients < 2:
        raise UserError(
            "the table has one client, and nobody to learn with: name another column with --client, or deal "
            'its rows to clients that you make up, --partition "dirichlet(clients=10, alpha=0.5)"'
        )
    task = Experiment.of({**asked, "cohort": cohort(clients)}).task(0)
    return Experiment.of(asked).federation(0), advice_for(task, Wish())


def _what_to_type(path: str, frame: "pl.DataFrame", client: str | None, label: str | None) -> str:
    """A command that may be the right one."""
    guess = roles(frame)
    told = Roles(client or guess.client, label or guess.label)
    names = f"--client {_quoted(told.client)} --label {_quoted(told.label)}"
    return (
        f"say which columns name the client and the label of each row, perhaps: fedcohort init "
        f"{shlex.quote(path)} {names}; rows that belong to nobody are dealt by "
        '--partition "dirichlet(clients=10, alpha=0.5)" instead of --client'
    )


def _quoted(name: str | None) -> str:
    return "COLUMN" if name is None else shlex.quote(name)


def _require(frame: "pl.DataFrame", asked: Mapping[str, Sequence[str | None]]) -> None:
    mistakes = Mistakes()
    for option, names in asked.items():
        for name in names:
            if name is not None:
                with mistakes.noted():
                    require(frame, name, option)
    mistakes.tell()
    label, client = asked["--label"][0], asked["--client"][0]
    if label == client:
        raise UserError(f"--label and --client both name '{label}': name two columns")


def _classes(
    frame: "pl.DataFrame", label: str, bins: str | None, category: bool
) -> tuple[np.ndarray, dict[str, Any]]:
    """The class of each row, and what the file must say of it."""
    labels = label_column(frame, label)
    if bins is not None:
        if labels.dtype.kind != "f":
            raise UserError(f"label '{label}' holds words: --bins is for numbers, leave it out")
        points = _points(bins, labels)
        return cut(labels, points), {"bins": list(points)}
    if not category:
        refuse_amounts(labels, label, AMOUNT)
    values, codes = np.unique(labels, return_inverse=True)
    if len(values) * FEW > len(labels):
        raise UserError(
            f"label '{label}' has {len(values):,} values in {len(labels):,} rows, so few of each that "
            "nothing can be learnt of them: name another column with --label"
        )
    return codes, {"categorical": [label]} if category and labels.dtype.kind == "f" else {}


def _points(bins: str, labels: np.ndarray) -> tuple[float, ...]:
    """Between classes: so many of about equal size, or those that were named."""
    try:
        numbers = tuple(sorted({float(part) for part in bins.split(",") if part.strip()}))
    except ValueError:
        numbers = ()
    if "," in bins and numbers:
        return numbers
    if len(numbers) != 1 or numbers[0] not in range(2, MOST + 1):
        raise UserError(
            f"--bins {bins}: write a number of classes from 2 to {MOST}, or the numbers between classes with "
            "commas, like 18,65; a single one like 18,"
        )
    return cut_points(labels, int(numbers[0]))


def _as_told(seen: Seen, features: Sequence[str], exclude: Sequence[str]) -> Seen:
    """What the owner says of a column has the last word."""
    if seen.name in exclude:
        return replace(seen, kind="unwanted", what="as you said")
    if seen.name in features and not seen.read:
        return replace(seen, kind="numbers" if seen.number else "texts", what="as you said")
    return seen


def _in_one_order(columns: Sequence[Seen]) -> list[Seen]:
    """Dates with the year last are read in one order: that of those which leave no doubt, else day first."""
    sure = [seen.order for seen in columns if seen.kind == "dates" and not seen.doubtful]
    known: Order | None = next((each for each in sure if each != "ymd"), None)
    order = known or "dmy"

    def settled(seen: Seen) -> Seen:
        if seen.kind != "dates" or seen.order == "ymd":
            return seen
        if seen.doubtful or seen.order == order:
            return replace(seen, order=order, doubtful=known is None)
        return replace(seen, kind="names", what="dates of another order than others")

    return [settled(seen) for seen in columns]


def _reading(columns: Sequence[Seen], rows: int) -> dict[str, Any]:
    """Options of the table that follow from what its columns are."""
    read = [seen for seen in columns if seen.read]
    kinds = {kind: [seen.name for seen in read if seen.kind == kind] for kind in ("dates", "texts")}
    found: dict[str, Any] = {}
    if left := [seen.name for seen in columns if not seen.read]:
        found["exclude"] = left
    if kinds["texts"]:
        found |= {"text": kinds["texts"], "text_width": text_width(rows, len(kinds["texts"]))}
    if kinds["dates"]:
        orders = {seen.order for seen in read if seen.kind == "dates"} - {"ymd"}
        found |= {"dates": kinds["dates"], **({"date_order": orders.pop()} if orders else {})}
    if odd := sorted({word for seen in read for word in seen.odd}):
        found["empty"] = odd
    if any(seen.empty for seen in read if seen.kind in ("numbers", "dates")):
        found["missing"] = "mean"
    if not read:
        why = "; ".join(f"'{seen.name}', {seen.reason}" for seen in columns) or "there is no other"
        raise UserError(f"no column is left that a model could read ({why}): name some with --feature")
    return found


def _dealt(frame: "pl.DataFrame", client: str | None, partition: str | None) -> tuple[dict[str, Any], int]:
    """Who owns which rows, and how many clients are too small to take part."""
    if partition is not None:
        name, parameters = parse_one(partition, "--partition")
        return {"name": name, **parameters}, 0
    assert client is not None  # noqa: S101  # one of both is given
    sizes = np.unique(as_names(frame[client]), return_counts=True)[1]
    if (large := int((sizes >= SMALLEST).sum())) == len(sizes):
        return {}, 0
    if large == 0:
        raise UserError(
            f"no client has {SMALLEST} rows ('{client}' has {len(sizes):,} values in {frame.height:,} rows): "
            "name another column with --client"
        )
    return {"name": "natural", "min_samples": SMALLEST}, len(sizes) - large
