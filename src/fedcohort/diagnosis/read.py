"""Label counts from a user's table: CSV, gzipped CSV or Parquet, wide or long.

Wide: one row per client, every other column a class, cells are counts. What cannot be a count is refused, and
the message says where. Long: one row per sample, with a column for the client and one for the label, read as
an experiment reads it, so that both see the same classes and clients.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcohort.data.columns import client_numbers, label_column
from fedcohort.data.labels import encode_labels, refuse_amounts
from fedcohort.data.locate import Places, user_path
from fedcohort.data.survey import roles
from fedcohort.data.tables import (
    FILE,
    cleaned,
    is_parquet,
    named,
    read_table,
    reading,
    require,
    scan_csv,
    scan_parquet,
)
from fedcohort.util.errors import UserError
from fedcohort.util.names import in_order, safe_names
from fedcohort.util.settings import nearest

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".csv.gz", ".parquet")
LARGEST = 2**53  # beyond it floats skip whole numbers
PIECE = 1 << 15  # rows of a file that are looked at together
CLIENT_COLUMNS = ("client", "client_id", "id")  # taken for the client unless told
AMOUNTS = (
    "'fedcohort init --set data.bins=4' writes an experiment file that makes 4 classes of it, and diagnose "
    "reads that file; data.categorical=['{}'] says that it is a category"
)

Kind = TypeVar("Kind", np.int64, np.float64)
Test = Callable[[NDArray[np.float64]], NDArray[np.bool_]]
Complaint = Callable[[str | None, str, bool], UserError]  # of a cell, its place, whether clients lack names


class NoCountsError(UserError):
    """What a table holds cannot be counts: perhaps it has a row per sample."""

    def __init__(self, fact: str, cure: str) -> None:
        super().__init__(f"{fact}, {cure}")
        self.fact = fact


class Counts(NamedTuple):
    """A K x C table of label counts with names for its rows and columns."""

    matrix: NDArray[np.int64]
    client_names: list[str]
    class_names: list[str]


def read_counts(
    path: str | Path, client: str | None = None, label: str | None = None, single: bool = False
) -> Counts:
    """Label counts from ``path``; with ``label`` (a column) a long table is counted, else a wide one is read.

    ``client`` names the column of client ids. Without it a column called client, client_id or id is taken; a
    wide table may also do without ids, and its clients are then numbered from 0. A long table may be several
    files by a pattern such as ``hospitals/*.csv``, and their names are the clients if ``client`` is
    ``@file``. ``single`` admits one client, and takes a long table without ids for its samples.
    """
    path = Path(path)
    counts = _wide(path, client) if label is None else _long(path, client, label, single)
    return _sensible(counts, path, label, 1 if single else 2)


def read_numbers(
    path: str | Path, client: str | None = None
) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Any numbers, a row per client: the table, the clients' names and the names of the other columns."""

    def bad_number(cell: str | None, where: str, numbered: bool) -> UserError:
        cure = ", name the column of client ids with --client" if numbered else ""
        return UserError(f"{where}: {cell!r} is not a finite number{cure}")

    return _rows(Path(path), client, np.float64, np.isfinite, bad_number)


def _rows(
    path: Path, client: str | None, kind: type[Kind], good: Test, complaint: Complaint
) -> tuple[NDArray[Kind], list[str], list[str]]:
    """A table with a row per client, read in pieces: numbers that pass the test ``good``, the clients' names
    and the names of the other columns. Clients are in the order that they have everywhere."""
    blocks: list[NDArray[Kind]] = []
    names: list[str | None] = []
    titles: list[str] = []
    for piece in _pieces(path):
        client = _client_of(piece.columns, client, path)
        titles = [column for column in piece.columns if column != client]
        numbers = np.empty((piece.height, len(titles)))
        for position, title in enumerate(titles):
            numbers[:, position] = _as_floats(piece[title])
        if not (fit := good(numbers)).all():
            row, column = np.argwhere(~fit)[0].tolist()
            cell, at = piece[titles[column]][row], len(names) + row
            where = f"row {at + 1}" if client is None else f"client '{piece[client][row]}'"
            text = None if cell is None else str(cell)
            raise complaint(text, f"{where}, column '{titles[column]}'", client is None)
        blocks.append(numbers.astype(kind))
        names += [None] * piece.height if client is None else _words(piece[client]).to_list()
    if not names:
        raise UserError(f"{path.name} has column names and no rows: add one row per client")
    table = np.concatenate(blocks)
    if client is None:
        return table, [str(row) for row in range(len(names))], titles
    table, ordered = _by_name(table, _client_names(names, client))
    return table, ordered, titles


def _pieces(path: Path) -> Iterator["pl.DataFrame"]:
    """Rows of the table, some thousands at a time. Cells that are no numbers in the file are text, so that a
    bad one can be quoted as the user wrote it."""
    _refuse_other_files(path)
    with reading(path):
        if is_parquet(path):
            lazy = scan_parquet(path)
            names = lazy.collect_schema().names()
        else:
            lazy, names = scan_csv(path)
        named(lazy.head(0).collect(), names, path)
        for piece in lazy.collect_batches(chunk_size=PIECE):
            numbered = piece.select(each if each.dtype.is_numeric() else _words(each) for each in piece)
            yield cleaned(named(numbered, names, path), [""])


def _client_of(columns: list[str], client: str | None, path: Path) -> str | None:
    """The column that names the client, if one does."""
    if client is not None and client not in columns:
        raise UserError(f"{path.name} has no column '{client}'{nearest(client, columns)}")
    if client is None:
        index = "" if columns[0] == "" else None  # pandas writes its index as a first column without a name
        client = next((name for name in CLIENT_COLUMNS if name in columns), index)
    if "" in columns and client != "":
        raise UserError(f"{path.name}: column {columns.index('') + 1} has no name: name it or delete it")
    return client


def _refuse_other_files(path: Path) -> None:
    if "*" in path.name:
        words = _as_samples(path, FILE) or "name their label with --label"
        raise UserError(f"{path}: several files are read as samples only, {words}")
    if not user_path(str(path)).exists():
        raise UserError(f"there is no file {path}: check the path")
    if path.is_dir() or not path.name.lower().endswith(SUFFIXES):
        raise UserError(f"{path} is not a table that can be read: give a {', '.join(SUFFIXES)} file")


def _wide(path: Path, client: str | None) -> Counts:
    try:
        return Counts(*_rows(path, client, np.int64, _are_counts, _bad_count))
    except NoCountsError as mistake:
        if words := _as_samples(path, client):
            raise UserError(f"{path.name} is no table of counts ({mistake.fact}): {words}") from None
        raise


def _as_samples(path: Path, client: str | None) -> str:
    """What to type if a table has a row per sample, as far as its columns tell."""
    guess = roles(read_table(str(path), Places.of()))
    client = client or guess.client
    if guess.label is None or client is None:
        return ""
    options = f"--client {shlex.quote(client)} --label {shlex.quote(guess.label)}"
    return f"if each row is a sample, as it looks, add {options}"


def _are_counts(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (values >= 0) & (values < LARGEST) & (values == np.floor(values))


def _by_name(table: NDArray[Kind], names: list[str]) -> tuple[NDArray[Kind], list[str]]:
    """Clients in the order that they have everywhere."""
    order = in_order(names)
    return table[order], [names[row] for row in order]


def _words(column: "pl.Series") -> "pl.Series":
    import polars as pl

    return column.cast(pl.String)


def _as_floats(column: "pl.Series") -> NDArray[np.float64]:
    """Cells as numbers, NaN where they are none."""
    import polars as pl

    return column.cast(pl.Float64, strict=False).to_numpy()


def _client_names(names: Sequence[str | None], client: str) -> list[str]:
    rows: dict[str, int] = {}
    for row, name in enumerate(names, start=1):
        if name is None:
            raise UserError(f"row {row} has no client in column '{client}': fill it in or delete the row")
        if name in rows:
            raise NoCountsError(
                f"client '{name}' is in rows {rows[name]} and {row}",
                "keep one row per client, or name the label column of a long table with --label",
            )
        rows[name] = row
    return safe_names(list(rows))


def _bad_count(cell: str | None, where: str, numbered: bool) -> UserError:
    if cell is None or cell.lower() == "nan":
        return NoCountsError(f"{where}: the count is missing", "put 0 if there is no sample")
    try:
        value = float(cell)
    except ValueError:
        hint = "name the column of client ids with --client, or remove columns that are not classes"
        return NoCountsError(f"{where}: '{cell}' is not a number", hint)
    if value < 0:
        return NoCountsError(f"{where}: {cell} is negative", "counts start at 0")
    if value >= LARGEST:
        return NoCountsError(f"{where}: {cell} is too large for a count", "check the column")
    return NoCountsError(
        f"{where}: {cell} is not a whole number", "give counts of samples rather than shares"
    )


def _long(path: Path, client: str | None, label: str, single: bool) -> Counts:
    frame = read_table(str(path), Places.of())
    require(frame, label, "label")
    if client is None:
        client = next((name for name in CLIENT_COLUMNS if name in frame.columns), FILE if single else None)
    if client is None:
        guess = roles(frame.drop(label)).client
        perhaps = "" if guess is None else f", perhaps --client {shlex.quote(guess)}"
        raise UserError(f"{path.name}: say which column holds the client of each row with --client{perhaps}")
    if client == label:
        raise UserError(f"{path.name}: --client and --label both name '{label}', name two columns")
    labels = label_column(frame, label)
    refuse_amounts(labels, label, AMOUNTS.format(label))
    codes, _, classes = encode_labels(labels)
    clients, owners = client_numbers(frame, client)
    shape = len(clients), len(classes)
    cell = owners * np.int64(len(classes)) + codes.numpy()
    matrix = np.bincount(cell, minlength=len(clients) * len(classes)).reshape(shape).astype(np.int64)
    matrix, names = _by_name(matrix, safe_names(clients))
    return Counts(matrix, names, list(classes))


def _sensible(counts: Counts, path: Path, label: str | None, fewest: int) -> Counts:
    clients, classes = counts.matrix.shape
    if classes < fewest:
        hint = "name every class in a column of its own, separated by commas"
        if label is not None:
            hint = f"check whether '{label}' is the label column, for one label cannot be skewed"
        raise UserError(f"{path.name} has {classes or 'no'} class{'' if classes == 1 else 'es'}: {hint}")
    if clients < fewest:
        raise UserError(f"{path.name} has one client: a diagnosis compares at least two")
    return counts
