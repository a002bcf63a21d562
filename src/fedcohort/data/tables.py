"""Users' tables, from files of several kinds into one frame.

Every cell of a text file is read as text; what it means is a matter of its whole column (:mod:`.columns`), so
that nothing depends on which rows come first.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedcohort.data.locate import Places, user_path
from fedcohort.data.unpack import first_bytes, is_gzipped, read_bytes
from fedcohort.util.errors import UserError
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.moved import names_in
from fedcohort.util.settings import nearest

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
CELL = 8  # bytes of a number
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")  # how files of tables end
FILE = "@file"  # the client column that stands for the name of the row's file
NUMBER = r"[+-]?(\d+([.,]\d*)?|[.,]\d+)"
COMMA = r"^([+-]?\d*),(\d+)$"  # a number with a decimal comma
PLAIN = "cells"  # a name for a column whose own Polars may take for a pattern
AUTO = "auto"  # for a separator that is to be found out
SEPARATORS = (";", "\t", "|", ",")  # in this order: cells with decimal commas are full of the last
START, LINES = 1 << 16, 20  # of a file, by which it is found out
EMPTY_FILE = "check it, or leave it out if there are others"
__getattr__ = names_in("fedcohort.data.columns", __name__)


Decimal = Literal["auto", ".", ","]


@dataclass(frozen=True)
class TableFormat:
    """How the files of a table are written."""

    header: bool = True  # without one, columns are column_1, column_2, ...
    separator: str = AUTO  # between the cells of a row
    decimal: Decimal = "auto"  # sign of numbers: a comma where cells are separated by semicolons
    empty: tuple[str, ...] = ()  # words that stand for an empty cell, besides MISSING

    def of(self, path: Path) -> "TableFormat":
        """What it is for this file, where that is to be found out."""
        sign = self.separator
        if sign == AUTO:
            start = b"" if is_parquet(path) else first_bytes(path, START)
            sign = separator_of(start.decode("utf-8-sig", "replace"))
        decimal = self.decimal if self.decimal != "auto" else "," if sign == ";" else "."
        return replace(self, separator=sign, decimal=decimal)


def read_table(
    path: str, where: Places, layout: TableFormat | None = None, blank: bool = False
) -> "pl.DataFrame":
    """One file, or several by a pattern such as ``hospitals/*.csv``; column ``@file`` is the file's name.

    Columns are those of the first file, in its order. Lines of empty cells alone are no rows, unless
    ``blank``.
    """
    import polars as pl

    layout, frames = layout or TableFormat(), list[pl.DataFrame]()
    for file in _files(path, where):
        name = Path(file.name.removesuffix(".gz")).stem
        otherwise = f"{file} holds no rows: {EMPTY_FILE}"
        found = layout.of(file)
        named = usable(_read_one(file, found), name, found, otherwise, blank)
        columns = frames[0].columns if frames else named.columns
        _refuse_other_columns(file, named.columns, columns)
        frames.append(named[columns])
    return pl.concat(frames, how="vertical_relaxed")


def usable(
    frame: "pl.DataFrame", name: str, layout: TableFormat, otherwise: str, blank: bool = False
) -> "pl.DataFrame":
    """A table of this name without its empty cells and, unless ``blank``, lines; ``otherwise`` is said if
    nothing is left."""
    import polars as pl

    frame = cleaned(frame, [*MISSING, *layout.empty], blank)
    if frame.height == 0 or frame.width == 0:
        raise UserError(otherwise)
    if layout.decimal == ",":
        frame = pl.DataFrame([_with_points(column) for column in frame])
    return frame.with_columns(pl.lit(name).alias(FILE))


def _with_points(column: "pl.Series") -> "pl.Series":
    """A column in which all is a number, once its decimal commas are points; any other as it is."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    points = column.alias(PLAIN).str.replace(COMMA, "${1}.${2}")
    numbers = points.cast(pl.Float64, strict=False)
    return points.alias(column.name) if numbers.null_count() == column.null_count() else column


def cleaned(frame: "pl.DataFrame", missing: Sequence[str], blank: bool = False) -> "pl.DataFrame":
    """Cells without blanks around them, null where they hold a word of ``missing``; blank lines are no rows,
    unless ``blank``.

    Meanwhile columns are numbered: Polars takes names such as ``*`` or ``^a.*$`` for several columns.
    """
    import polars as pl

    names, words = frame.columns, pl.col(pl.String)
    frame = frame.rename(dict(zip(names, map(str, range(len(names))), strict=True)))
    trimmed = frame.with_columns(words.str.strip_chars())
    cells = trimmed.with_columns(pl.when(~words.is_in(list(missing))).then(words).name.keep())
    cells = cells if blank else cells.filter(~pl.all_horizontal(pl.all().is_null()))
    cells.columns = names
    return cells


def _refuse_other_columns(file: Path, columns: Sequence[str], first: Sequence[str]) -> None:
    lacks, adds = sorted(set(first) - set(columns)), sorted(set(columns) - set(first))
    told = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lacks), ("adds", adds)) if names]
    if told:
        raise UserError(
            f"{file} {' and '.join(told)}, compared with the first file: give all files the same columns"
        )


def _files(path: str, where: Places) -> list[Path]:
    if "*" not in path:
        return [where.file(path)]
    if "**" in path:
        raise UserError(f"{path}: write one * for any part of a file's name, all files in one folder")
    pattern = user_path(path)
    for base in (pattern.parent, *([where.root / pattern.parent] if where.root else [])):
        if found := sorted(path for path in base.glob(pattern.name) if path.is_file()):
            return found
    raise UserError(f"no file matches {where.sought(path)}: check the path")


def _read_one(path: Path, layout: TableFormat) -> "pl.DataFrame":
    with reading(path):
        if is_parquet(path):
            return scan_parquet(path).collect()
        lazy, names = scan_csv(path, layout)
        frame = lazy.collect()
    single = names[0] if layout.header and len(names) == 1 else ""
    if (other := next((sign for sign in SEPARATORS if sign in single), None)) is not None:
        raise UserError(f"{path} separates its columns by {other!r}: set separator={other!r}")
    return named(frame, names, path)


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """The one place where Polars' complaints about a file become a sentence: some are no Exception at all."""
    import polars as pl

    try:
        str(path).encode()
    except UnicodeEncodeError:  # of which Polars would say something else
        raise UserError(f"the name of {path} is no text in UTF-8: rename the file") from None
    complaints = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError)
    try:
        yield
    except pl.exceptions.NoDataError as error:
        raise UserError(f"{path} is empty: {EMPTY_FILE}") from error
    except complaints as error:  # ValueError: of the separator
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if is_parquet(path):
            raise UserError(
                f"{path} cannot be read as Parquet ({reason}): save it again as Parquet"
            ) from error
        if "utf-8" in reason:
            raise UserError(f"{path} cannot be read as a table: save it in UTF-8") from error
        raise UserError(
            f"{path} cannot be read as a table ({reason}): check the file and 'separator', and that no row "
            "has more cells than the header"
        ) from error


def scan_parquet(path: Path) -> "pl.LazyFrame":
    """A Parquet file, unless its own account of its rows is more than this machine holds."""
    import polars as pl

    lazy = pl.scan_parquet(path, glob=False)
    rows, columns = lazy.select(pl.len()).collect().item(), len(lazy.collect_schema())
    refuse_beyond(rows * columns * CELL, str(path), "give fewer rows or columns")
    return lazy


def scan_csv(path: Path, layout: TableFormat | None = None) -> tuple["pl.LazyFrame", list[str]]:
    """Every cell as text, and the names of the columns as the file has them."""
    import polars as pl

    layout, source = (layout or TableFormat()).of(path), read_bytes(path) if is_gzipped(path) else path
    scan = partial(pl.scan_csv, source, separator=layout.separator, infer_schema=False, glob=False)
    table = scan(has_header=layout.header)
    if not layout.header:
        return table, [f"column_{number}" for number in range(1, len(table.collect_schema()) + 1)]
    # Not read as a header: Polars would quietly rename the second of two equal columns.
    first = scan(has_header=False, n_rows=1).collect()
    return table, ["" if name is None else name.strip() for name in first.row(0)]


def separator_of(start: str) -> str:
    """The sign that cuts all first lines of a file into as many cells, or else the first line into most."""
    cells = {sign: _cells(start, sign) for sign in SEPARATORS}
    for sign, rows in cells.items():
        if rows and rows[0] > 1 and len({*rows}) == 1:
            return sign
    return max(reversed(SEPARATORS), key=lambda sign: next(iter(cells[sign]), 0))


def has_header(path: str, where: Places) -> bool:
    """Whether the first line of a table names its columns: no name is a number."""
    file = _files(path, where)[0]
    if is_parquet(file):
        return True
    with reading(file):
        _, names = scan_csv(file)
    return not any(re.fullmatch(NUMBER, name) for name in names)


def _cells(start: str, sign: str) -> list[int]:
    """How many cells the first lines have; the last line is perhaps cut off."""
    whole = start[: start.rfind("\n") + 1] or start
    try:
        return [len(row) for row in islice(csv.reader(io.StringIO(whole), delimiter=sign), LINES) if row]
    except csv.Error:
        return []


def find_files(path: str | None, folders: Sequence[str], where: Places) -> list[Path]:
    """The files that a user named, in a folder of theirs or in one of these below the data root."""
    given = where.at(path).given
    if path is not None and given is not None and not given.is_dir():
        return _files(path, where)
    for folder in where.at(path).folders(folders):
        if found := sorted(file for ending in ("csv", "csv.gz") for file in folder.glob(f"*.{ending}")):
            return found
    raise UserError(f"there is no CSV file in {path or folders[0]}: put some there, or name them as 'path'")


def read_columns(files: Sequence[Path], wanted: Collection[str]) -> "pl.DataFrame":
    """Those of the ``wanted`` columns that CSV files have, every cell as text. Names are taken in capitals;
    what is not wanted, often most of a file, is not kept."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    for file in files:
        with reading(file):
            source = read_bytes(file) if is_gzipped(file) else file
            read = partial(pl.read_csv, source, infer_schema=False, glob=False)
            head = read(n_rows=0).columns
            kept = {name: name.strip().upper() for name in head if name.strip().upper() in wanted}
            frame = read(columns=list(kept)) if kept else pl.DataFrame()
            frame = cleaned(frame.rename(kept), MISSING) if kept else frame
        if frame.height == 0:
            raise UserError(
                f"{file} has no rows, or none of the columns {', '.join(sorted(wanted))}: check it"
            )
        _refuse_other_columns(file, frame.columns, frames[0].columns if frames else frame.columns)
        frames.append(frame.select(sorted(frame.columns)))
    return pl.concat(frames)


def named(frame: "pl.DataFrame", names: list[str], path: Path) -> "pl.DataFrame":
    """The table under these names, if they are different and as many as its columns."""
    if not any(names):
        raise UserError(f"the first line of {path} is empty: begin with the names of the columns")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"{path} has two columns called '{twice[0]}': rename or merge them")
    if len(names) != frame.width:
        raise UserError(f"{path} names {len(names)} columns and has {frame.width}: check its first line")
    frame.columns = names
    return frame


def require(frame: "pl.DataFrame", name: str, option: str) -> None:
    """Refuse a column that does not exist, with the nearest one that does."""
    if name not in frame.columns:
        known = [column for column in frame.columns if column != FILE]
        raise UserError(f"the table has no column '{name}' ('{option}'){nearest(name, known)}")
