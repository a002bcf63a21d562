"""Users' tables into features: numbers as they are, categories one-hot, texts hashed.

Every cell of a text file is read as text first and becomes a number only if its whole column does, so that
nothing depends on which rows come first.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import numpy as np

from fedcohort.data.features import hash_texts
from fedcohort.data.locate import Places, user_path
from fedcohort.data.unpack import is_gzipped, read_bytes
from fedcohort.util.errors import UserError
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.settings import between, nearest

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")
PLAIN = "cells"  # a name for a column whose own Polars may take for a pattern
CELL = 8  # bytes of a number
LARGEST = 1e30  # of a number: its square is one too
FILE = "@file"  # the client column that stands for the name of the row's file
NAME = 200  # characters of a label, a client or a category
LEVELS = 200  # more categories than this in one column: it is a name or a text
NEARLY_ALL = 0.9  # of a column's cells that are numbers: the others are mistakes rather than categories
COMMA = r"^[+-]?\d*,\d+$"  # a number with a decimal comma
EMPTY_FILE = "check it, or move it out of the folder if the other files are enough"


def read_table(
    path: str, where: Places, header: bool, separator: str, empty: Sequence[str] = (), blank: bool = False
) -> "pl.DataFrame":
    """One file, or several by a pattern such as ``hospitals/*.csv``; column ``@file`` is the file's name.

    Columns are those of the first file, in its order. Cells that hold a word of ``empty`` are empty; lines of
    such cells alone are no rows, unless ``blank``.
    """
    import polars as pl

    frames: list[pl.DataFrame] = []
    for file in _files(path, where):
        name = Path(file.name.removesuffix(".gz")).stem
        otherwise = f"{file} holds no rows: {EMPTY_FILE}"
        named = usable(_read_one(file, header, separator), name, empty, otherwise, blank)
        columns = frames[0].columns if frames else named.columns
        _refuse_other_columns(file, named.columns, columns)
        frames.append(named[columns])
    return pl.concat(frames, how="vertical_relaxed")


def usable(
    frame: "pl.DataFrame", name: str, empty: Sequence[str], otherwise: str, blank: bool = False
) -> "pl.DataFrame":
    """A table of this name without its empty cells and, unless ``blank``, lines; ``otherwise`` is said if
    nothing is left."""
    import polars as pl

    frame = cleaned(frame, [*MISSING, *empty], blank)
    if frame.height == 0 or frame.width == 0:
        raise UserError(otherwise)
    return frame.with_columns(pl.lit(name).alias(FILE))


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
    raise UserError(f"no file matches {where.sought(path)}: check the 'path' option")


def _read_one(path: Path, header: bool, separator: str) -> "pl.DataFrame":
    with reading(path):
        if is_parquet(path):
            return scan_parquet(path).collect()
        lazy, names = scan_csv(path, header, separator)
        frame = lazy.collect()
    other = next((sign for sign in ";\t|" if header and len(names) == 1 and sign in names[0]), None)
    if other is not None:
        raise UserError(
            f"{path} separates its columns by {other!r}: set separator={other!r}, or save it with commas"
        )
    return named(frame, names, path)


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """The one place where Polars' complaints about a file become a sentence: some are no Exception at all."""
    import polars as pl

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


def scan_csv(path: Path, header: bool = True, separator: str = ",") -> tuple["pl.LazyFrame", list[str]]:
    """Every cell as text, and the names of the columns as the file has them."""
    import polars as pl

    source = read_bytes(path) if is_gzipped(path) else path
    scan = partial(pl.scan_csv, source, separator=separator, infer_schema=False, glob=False)
    table = scan(has_header=header)
    if not header:
        return table, [f"column_{number}" for number in range(1, len(table.collect_schema()) + 1)]
    # Not read as a header: Polars would quietly rename the second of two equal columns.
    first = scan(has_header=False, n_rows=1).collect()
    return table, ["" if name is None else name.strip() for name in first.row(0)]


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


def _refuse_odd(column: "pl.Series") -> None:
    """Parquet can hold lists, tables and bytes in a cell."""
    import polars as pl

    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration):
        raise UserError(
            f"column '{column.name}' holds {column.dtype}, not numbers or words: convert it first"
        )


def as_numbers(column: "pl.Series") -> np.ndarray | None:
    """The column as float64 with NaN where empty, or None if it holds words."""
    import polars as pl

    _refuse_odd(column)
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean)):
        return None
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() > column.null_count():
        return None
    return numbers.to_numpy()


def _nearly_numbers(column: "pl.Series") -> bool:
    """Whether nearly all known cells are numbers, or would be with a decimal point."""
    import polars as pl

    if column.dtype != pl.String:
        return False
    column = column.alias(PLAIN)
    numbers = column.cast(pl.Float64, strict=False).is_not_null() | column.str.contains(COMMA)
    return bool(numbers.sum() >= NEARLY_ALL * (len(column) - column.null_count()))


def refuse_word(frame: "pl.DataFrame", name: str, cure: str = "") -> NoReturn:
    """Of a column of numbers, tell the first cell that is none; unless ``cure`` is given, that of a table to
    train on."""
    import polars as pl

    words = frame[name].alias(PLAIN).cast(pl.String)
    is_word = words.is_not_null() & words.cast(pl.Float64, strict=False).is_null()
    at = int(is_word.arg_true()[0])
    word, file = words[at], frame[FILE][at]
    row = int((frame[FILE][: at + 1] == file).sum())
    first = f"correct it, add '{word}' to 'empty'"
    if re.match(COMMA, word):
        first = "write numbers with a point instead of the comma"
    cure = cure or f"{first}, or add the column to 'categorical'"
    raise UserError(f"column '{name}' holds numbers, but '{word}' in row {row} of {file}: {cure}")


def label_column(frame: "pl.DataFrame", name: str) -> np.ndarray:
    """Each row's label: numbers if all are, else words."""
    column = _complete(frame, name, "label")
    numbers = as_numbers(column)
    if numbers is not None:
        return numbers
    _refuse_long(column)
    return np.array(column.to_list(), dtype=str)


def client_column(frame: "pl.DataFrame", name: str | None) -> np.ndarray | None:
    """Each row's client, if a column names it."""
    return None if name is None else as_names(_complete(frame, name, "client"))


def _complete(frame: "pl.DataFrame", name: str, option: str) -> "pl.Series":
    require(frame, name, option)
    if missing := frame[name].null_count():
        raise UserError(f"{option} '{name}' is empty in {missing} rows: remove those rows first")
    return frame[name]


@dataclass(frozen=True)
class Column:
    """How one column becomes features, learnt from the training table."""

    name: str
    levels: tuple[str, ...] | None = None  # categories; None for numbers and texts
    text_width: Annotated[int, between(0, 2**16)] = 0
    fill: bool = False  # a number may be missing: NaN, until the data are scaled

    @property
    def kind(self) -> str:
        return "texts" if self.text_width else "numbers" if self.levels is None else "categories"

    @property
    def width(self) -> int:
        return self.text_width or (1 if self.levels is None else len(self.levels))

    def encode(self, frame: "pl.DataFrame") -> np.ndarray:
        """Features [n, width] of this column; a category that training never saw is all zeros."""
        column = frame[self.name]
        if self.text_width:
            return hash_texts(as_words(column), self.text_width)
        if self.levels is not None:
            words = as_names(column)
            return (words[:, None] == np.array(self.levels)[None]).astype(np.float32)
        numbers = as_numbers(column)
        if numbers is None:
            refuse_word(frame, self.name)
        self._refuse_odd(numbers)
        return numbers.astype(np.float32)[:, None]

    def _refuse_odd(self, numbers: np.ndarray) -> None:
        infinite, missing = int(np.isinf(numbers).sum()), int(np.isnan(numbers).sum())
        if infinite:
            raise UserError(
                f"column '{self.name}' has {infinite} infinite values: remove those rows or the column"
            )
        if (largest := np.abs(numbers).max(where=~np.isnan(numbers), initial=0)) > LARGEST:
            raise UserError(
                f"column '{self.name}' has values up to {largest:g}: correct or remove those rows"
            )
        if missing and not self.fill:
            raise UserError(
                f"column '{self.name}' is empty in {missing} of {len(numbers)} rows: "
                "set missing='mean', or remove those rows or the column"
            )


def row_order(frame: "pl.DataFrame", *columns: str | None) -> np.ndarray:
    """The order of rows by what is in these columns, so that nothing depends on the order in the file."""
    import polars as pl

    keys = {str(place): frame[name] for place, name in enumerate(sorted(filter(None, columns)))}
    for column in keys.values():
        _refuse_odd(column)
    rows = pl.DataFrame(keys).cast(pl.String).with_row_index("row")
    return rows.sort(list(keys))["row"].to_numpy().astype(np.int64)


def as_words(column: "pl.Series") -> list[str]:
    """Each cell as text, empty where missing; the code 3.0 of one file is the code 3 of another."""
    import polars as pl

    _refuse_odd(column)
    column = column.alias(PLAIN)
    return column.cast(pl.String).fill_null("").str.replace(r"^(-?\d+)\.0+$", "$1").to_list()


def as_names(column: "pl.Series") -> np.ndarray:
    """The same as an array."""
    _refuse_long(column)
    return np.array(as_words(column), dtype=str)


def _refuse_long(column: "pl.Series") -> None:
    """In an array every cell takes the room of the longest: a single one could take all memory."""
    import polars as pl

    _refuse_odd(column)
    lengths = column.alias(PLAIN).cast(pl.String).fill_null("").str.len_chars()
    longest = int(lengths.to_numpy().max(initial=0))
    if longest > NAME:
        raise UserError(
            f"column '{column.name}' names a label, client or category by {longest:,} characters: "
            "shorten it, or add the column to 'text'"
        )


def learn_column(
    frame: "pl.DataFrame", name: str, text: Sequence[str], categorical: Sequence[str], fill: bool, width: int
) -> Column:
    """Decide what a column is and remember its categories. Empty ones are a category of their own.

    Numbers with a few words among them are refused: as categories, every number would be a word too.
    """
    if name in text:
        return Column(name, text_width=width)
    numbers = None if name in categorical else as_numbers(frame[name])
    if numbers is None:
        if name not in categorical and _nearly_numbers(frame[name]):
            refuse_word(frame, name)
        levels = tuple(np.unique(as_names(frame[name])).tolist())
        if len(levels) > LEVELS:
            raise UserError(
                f"column '{name}' has {len(levels)} different words: remove it, or add it to 'text'"
            )
        return Column(name, levels=levels)
    return Column(name, fill=fill)
