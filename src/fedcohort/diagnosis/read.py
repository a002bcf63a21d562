"""Label counts from a user's table: CSV, gzipped CSV or Parquet, wide or long.

Wide: one row per client, every other column a class, cells are counts. Long: one row per sample, with a
column for the client and one for the label. What cannot be a count is refused, and the message says where.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.settings import nearest
from fedcohort.errors import UserError

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".csv.gz", ".parquet")
LARGEST = 2**53  # beyond it floats skip whole numbers
CLIENT_COLUMNS = ("client", "client_id", "id")  # taken for the client unless told


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
    wide table may also do without ids, and its clients are then numbered from 0. ``single`` admits one
    client, and takes a long table without ids for its samples.
    """
    path = Path(path)
    columns, client = _known_columns(path, client, label)
    if label is None:
        counts = _wide(_table(path, columns), client)
    elif client is None and single:
        import polars as pl

        alone = pl.lit(path.name.partition(".")[0]).alias("")
        counts = _long(_table(path, [label]).with_columns(alone), "", label)
    elif client is None:
        raise UserError(f"{path.name}: say which column holds the client of each row with --client")
    elif client == label:
        raise UserError(f"{path.name}: --client and --label both name '{label}', name two columns")
    else:
        counts = _long(_table(path, [client, label]), client, label)
    return _sensible(counts, path, 1 if single else 2)


def read_numbers(
    path: str | Path, client: str | None = None
) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Any numbers, a row per client: the table, the clients' names and the names of the other columns."""
    import polars as pl

    path = Path(path)
    columns, client = _known_columns(path, client, None)
    table = _table(path, columns)
    names = (
        [str(row) for row in range(table.height)] if client is None else _client_names(table[client], client)
    )
    titles = [column for column in columns if column != client]
    numbers = table.select(pl.col(titles).cast(pl.Float64, strict=False).fill_null(np.nan)).to_numpy()
    bad = np.argwhere(~np.isfinite(numbers))
    if bad.size:
        row, column = bad[0].tolist()
        cell = table[titles[column]][row]
        where = _place(titles[column], row, names[row], client is None)
        cure = ", name the column of client ids with --client" if client is None else ""
        raise UserError(f"{where}: {cell!r} is not a finite number{cure}")
    return numbers, names, titles


def _known_columns(path: Path, client: str | None, label: str | None) -> tuple[list[str], str | None]:
    """The columns of a file, and which of them names the client."""
    columns = _columns(path)
    for column in (client, label):
        if column is not None and column not in columns:
            raise UserError(f"{path.name} has no column '{column}'{nearest(column, columns)}")
    if client is None:
        index = "" if columns[0] == "" else None  # pandas writes its index as a first column without a name
        client = next((name for name in CLIENT_COLUMNS if name in columns), index)
    if label is None and "" in columns and client != "":
        raise UserError(f"{path.name}: column {columns.index('') + 1} has no name: name it or delete it")
    return columns, client


def _columns(path: Path) -> list[str]:
    """Column names, stripped; all that can be wrong with the file itself is found here."""
    import polars as pl

    if not path.exists():
        raise UserError(f"there is no file {path}: check the path")
    if path.is_dir() or not path.name.lower().endswith(SUFFIXES):
        raise UserError(f"{path} is not a table that can be read: give a {', '.join(SUFFIXES)} file")
    try:
        if path.suffix.lower() == ".parquet":
            columns = list(pl.read_parquet_schema(path))
        else:
            # Not read as a header: polars would quietly rename the second of two equal columns.
            first = pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False)
            columns = ["" if name is None else str(name).strip() for name in first.row(0)]
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from error
    separator = next((mark for mark in (";", "\t", "|") if len(columns) == 1 and mark in columns[0]), None)
    if separator:
        raise UserError(f"{path.name} separates its columns by {separator!r}: save it with commas")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise UserError(f"{path.name} has two columns called '{twice[0]}': rename or merge them")
    return columns


def _table(path: Path, columns: Sequence[str]) -> "pl.DataFrame":
    """The wanted columns as text, so that a bad cell can be quoted as the user wrote it."""
    import polars as pl

    try:
        if path.suffix.lower() == ".parquet":
            table = pl.read_parquet(path, columns=list(columns)).cast(pl.String)
        else:
            table = pl.read_csv(path, infer_schema=False)
            table = table.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
            table = table.rename({name: name.strip() for name in table.columns}).select(columns)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from error
    if table.is_empty():
        raise UserError(f"{path.name} has column names and no rows: add one row per client")
    text = pl.col(pl.String).str.strip_chars()
    return table.with_columns(pl.when(text == "").then(None).otherwise(text).name.keep())


def _wide(table: "pl.DataFrame", client: str | None) -> Counts:
    import polars as pl

    names = (
        [str(row) for row in range(table.height)] if client is None else _client_names(table[client], client)
    )
    classes = [column for column in table.columns if column != client]
    numbers = table.select(pl.col(classes).cast(pl.Float64, strict=False))
    matrix = np.zeros((table.height, len(classes)), dtype=np.int64)
    for position, column in enumerate(classes):
        values = numbers[column].fill_null(np.nan).to_numpy()
        bad = np.flatnonzero(~((values >= 0) & (values < LARGEST) & (values == np.floor(values))))
        if bad.size:
            row = int(bad[0])
            raise _bad_count(table[column][row], column, row, names[row], client is None)
        matrix[:, position] = values.astype(np.int64)
    return Counts(matrix, names, classes)


def _client_names(ids: "pl.Series", client: str) -> list[str]:
    names = ids.to_list()
    rows: dict[str, int] = {}
    for row, name in enumerate(names, start=1):
        if name is None:
            raise UserError(f"row {row} has no client in column '{client}': fill it in or delete the row")
        if name in rows:
            raise UserError(
                f"client '{name}' is in rows {rows[name]} and {row}: keep one row per client, "
                f"or name the label column of a long table with --label"
            )
        rows[name] = row
    return names


def _place(column: str, row: int, client: str, numbered: bool) -> str:
    return f"row {row + 1}, column '{column}'" if numbered else f"client '{client}', column '{column}'"


def _bad_count(cell: str | None, column: str, row: int, client: str, numbered: bool) -> UserError:
    where = _place(column, row, client, numbered)
    if cell is None or cell.lower() == "nan":
        return UserError(f"{where}: the count is missing, put 0 if there is no sample")
    try:
        value = float(cell)
    except ValueError:
        hint = "name the column of client ids with --client, or remove columns that are not classes"
        return UserError(f"{where}: '{cell}' is not a number, {hint}")
    if value < 0:
        return UserError(f"{where}: {cell} is negative, counts start at 0")
    if value >= LARGEST:
        return UserError(f"{where}: {cell} is too large for a count, check the column")
    return UserError(f"{where}: {cell} is not a whole number, give counts of samples rather than shares")


def _long(table: "pl.DataFrame", client: str, label: str) -> Counts:
    for column in (client, label):
        missing = table[column].is_null()
        if missing.any():
            row = (missing.arg_max() or 0) + 1
            raise UserError(f"row {row} has nothing in column '{column}': fill it in or delete the row")
    clients = table[client].unique(maintain_order=True).to_list()
    classes = sorted(table[label].unique().to_list(), key=_class_order)
    row_of, column_of = ({name: i for i, name in enumerate(names)} for names in (clients, classes))
    matrix = np.zeros((len(clients), len(classes)), dtype=np.int64)
    for who, what, number in table.group_by(client, label).len().iter_rows():
        matrix[row_of[who], column_of[what]] = number
    return Counts(matrix, clients, classes)


def _class_order(name: str) -> tuple[bool, float, str]:
    """Numbers by value (2 before 10), then words by alphabet."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def _sensible(counts: Counts, path: Path, fewest: int) -> Counts:
    clients, classes = counts.matrix.shape
    if classes < fewest:
        hint = "name every class in a column of its own, separated by commas"
        raise UserError(f"{path.name} has {classes or 'no'} class{'' if classes == 1 else 'es'}: {hint}")
    if clients < fewest:
        raise UserError(f"{path.name} has one client: a diagnosis compares at least two")
    return counts


def _unreadable(path: Path, error: Exception) -> UserError:
    import polars as pl

    if isinstance(error, pl.exceptions.NoDataError):
        return UserError(f"{path.name} is empty: give a line of column names and one row per client")
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    cure = "save it again as Parquet"
    if path.suffix.lower() != ".parquet":
        cure = "check that it is UTF-8 text and that no row has more cells than the header"
    return UserError(f"{path.name} cannot be read ({reason}): {cure}")
