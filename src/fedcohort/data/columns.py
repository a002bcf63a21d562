"""Columns of a table into features: numbers as they are, dates as numbers, categories one-hot, texts hashed.

A cell becomes a number or a date only if its whole column does. What a column is, is learnt once and kept, so
that rows of a test table, and those that a model is asked about later, are read in the same way.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import numpy as np

from fedcohort.data.dates import PARTS, Order, as_dates, date_numbers, in_doubt
from fedcohort.data.features import hash_texts
from fedcohort.data.tables import COMMA, FILE, PLAIN, require
from fedcohort.util.errors import UserError
from fedcohort.util.settings import between
from fedcohort.util.words import counted, some

if TYPE_CHECKING:
    import polars as pl

LARGEST = 1e30  # of a number: its square is one too
NAME = 200  # characters of a label, a client or a category
LEVELS = 200  # more categories than this in one column: it is a name or a text
NEARLY_ALL = 0.9  # of a column's cells that are numbers: the others are mistakes rather than categories
SHOWN = 5  # columns that a sentence names
REMOVE = "remove those rows first"

Missing = Literal["refuse", "mean", "median", "constant"]


def is_odd(column: "pl.Series") -> bool:
    """Whether cells are neither numbers nor words: Parquet can hold lists, tables and bytes."""
    import polars as pl

    return column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration)


def _refuse_odd(column: "pl.Series") -> None:
    if is_odd(column):
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

    words = _as_texts(frame[name])
    word, where = _first(frame, words.is_not_null() & words.cast(pl.Float64, strict=False).is_null(), words)
    first = f"correct it, add '{word}' to 'empty'"
    if re.match(COMMA, word):
        first = "set decimal=',', or write numbers with a point"
    cure = cure or f"{first}, or add the column to 'categorical'"
    raise UserError(f"column '{name}' holds numbers, but '{word}' in {where}: {cure}")


def refuse_no_date(frame: "pl.DataFrame", name: str, order: Order, cure: str = "") -> NoReturn:
    """The same of a column of dates."""
    import polars as pl

    words = _as_texts(frame[name])
    odd = pl.Series([word is not None and as_dates(pl.Series([word]), order) is None for word in words])
    word, where = _first(frame, odd, words)
    cure = cure or "write dates like 2024-12-31, set 'date_order', or add the column to 'exclude'"
    raise UserError(f"column '{name}' holds dates, but '{word}' in {where}: {cure}")


def _as_texts(column: "pl.Series") -> "pl.Series":
    import polars as pl

    _refuse_odd(column)
    return column.alias(PLAIN).cast(pl.String)


def _first(frame: "pl.DataFrame", odd: "pl.Series", words: "pl.Series") -> tuple[str, str]:
    """The first odd cell, and where it stands."""
    at = int(odd.arg_true()[0])
    file = frame[FILE][at]
    return words[at], f"row {int((frame[FILE][: at + 1] == file).sum())} of {file}"


def label_column(frame: "pl.DataFrame", name: str, cure: str = REMOVE) -> np.ndarray:
    """Each row's label: numbers if all are, else words; ``cure`` is for rows that lack it."""
    column = _complete(frame, name, "label", cure)
    numbers = as_numbers(column)
    if numbers is not None:
        return numbers
    names, rows = different(column)
    return names[rows]


def client_column(frame: "pl.DataFrame", name: str | None, cure: str = REMOVE) -> np.ndarray | None:
    """Each row's client, if a column names it."""
    return None if name is None else as_names(_complete(frame, name, "client", cure))


def client_numbers(frame: "pl.DataFrame", name: str) -> tuple[list[str], np.ndarray]:
    """Which clients a column names, and which of them is each row's."""
    names, rows = different(_as_codes(_complete(frame, name, "client", REMOVE)))
    return names.tolist(), rows


def _complete(frame: "pl.DataFrame", name: str, option: str, cure: str) -> "pl.Series":
    require(frame, name, option)
    if missing := frame[name].null_count():
        raise UserError(f"{option} '{name}' is empty in {counted(missing, 'row')}: {cure}")
    return frame[name]


@dataclass(frozen=True)
class Column:
    """How one column becomes features, learnt from the training table."""

    name: str
    levels: tuple[str, ...] | None = None  # categories
    text_width: Annotated[int, between(0, 2**16)] = 0  # of texts
    dates: Order | None = None  # of dates; else, without any of these three, the column holds numbers
    fill: bool = False  # a number may be missing: NaN, until the data are scaled
    constant: float | None = None  # stands in for missing numbers at once

    @property
    def kind(self) -> str:
        if self.text_width:
            return "texts"
        return "dates" if self.dates else "numbers" if self.levels is None else "categories"

    @property
    def is_quantity(self) -> bool:
        return self.kind in ("numbers", "dates")

    @property
    def needed(self) -> bool:
        """Whether nothing stands in for its cells."""
        return self.is_quantity and not self.fill and self.constant is None

    @property
    def width(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The attributes of which the features tell, and how many features each takes."""
        if self.dates:
            return {f"{self.name} ({part})": 1 for part in PARTS}
        return {self.name: self.text_width or (1 if self.levels is None else len(self.levels))}

    def encode(self, frame: "pl.DataFrame") -> np.ndarray:
        """Features [n, width] of this column; a category that training never saw is all zeros."""
        if self.is_quantity:
            return self.quantities(frame).astype(np.float32)
        column = frame[self.name]
        if self.text_width:
            return hash_texts(as_words(column), self.text_width)
        words = as_names(column)
        return (words[:, None] == np.array(self.levels)[None]).astype(np.float32)

    def quantities(self, frame: "pl.DataFrame", cure: str = "") -> np.ndarray:
        """Numbers [n, width] of a column of numbers or dates, NaN where they are missing and will be filled
        later."""
        column = frame[self.name]
        if self.dates and column.null_count() == len(column):
            return np.full((len(column), self.width), np.nan)
        if self.dates:
            if (dates := as_dates(column, self.dates)) is None:
                refuse_no_date(frame, self.name, self.dates, cure)
            return date_numbers(dates)
        if (numbers := as_numbers(column)) is None:
            refuse_word(frame, self.name, cure)
        self._refuse_odd(numbers)
        if self.constant is not None:
            numbers = np.where(np.isnan(numbers), self.constant, numbers)
        return numbers[:, None]

    def _refuse_odd(self, numbers: np.ndarray) -> None:
        if infinite := int(np.isinf(numbers).sum()):
            raise UserError(
                f"column '{self.name}' has {counted(infinite, 'infinite value')}: remove such rows, or the "
                "column"
            )
        if (largest := np.abs(numbers).max(where=~np.isnan(numbers), initial=0)) > LARGEST:
            raise UserError(
                f"column '{self.name}' has values up to {largest:g}: correct or remove those rows"
            )


def refuse_gaps(columns: Sequence[Column], frame: "pl.DataFrame", cure: str) -> None:
    """Of numbers and dates that nothing fills."""
    empty = {each.name: n for each in columns if each.needed and (n := frame[each.name].null_count())}
    if empty:
        (first, rows), *others = empty.items()
        told = f"column '{first}' is empty in {rows} of {frame.height} rows"
        if others:
            named = some([f"'{name}' ({missing})" for name, missing in empty.items()], SHOWN)
            told = f"columns are empty in some of {frame.height} rows: {named}"
        raise UserError(f"{told}: {cure}")


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
    return _as_codes(column).to_list()


def as_names(column: "pl.Series") -> np.ndarray:
    """The same as an array."""
    names, rows = different(_as_codes(column))
    return names[rows]


def _as_codes(column: "pl.Series") -> "pl.Series":
    return _as_texts(column).fill_null("").str.replace(r"^(-?\d+)\.0+$", "$1").alias(column.name)


def different(column: "pl.Series") -> tuple[np.ndarray, np.ndarray]:
    """The words that a column holds, and which of them is in each row: no Python object for a row."""
    _refuse_long(column)
    cells = column.alias(PLAIN).to_frame()
    words = cells.unique(maintain_order=True).with_row_index("number")
    rows = cells.join(words, on=PLAIN, how="left", maintain_order="left")["number"]
    return np.array(words[PLAIN].to_list(), dtype=str), rows.to_numpy()


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


@dataclass(frozen=True)
class Hints:
    """What a user says of the columns of a table; what is not said is found out."""

    text: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    date_order: Order = "ymd"
    missing: Missing = "refuse"
    constant: float = 0.0
    text_width: int = 512


def learn_column(frame: "pl.DataFrame", name: str, hints: Hints) -> Column:
    """Decide what a column is and remember its categories. Empty ones are a category of their own.

    Numbers with a few words among them are refused: as categories, every number would be a word too.
    """
    if name in hints.text:
        return Column(name, text_width=hints.text_width)
    column, fill = frame[name], hints.missing in ("mean", "median")
    if name in hints.categorical:
        return Column(name, levels=_levels(column))
    if name not in hints.dates and as_numbers(column) is not None:
        return Column(name, fill=fill, constant=hints.constant if hints.missing == "constant" else None)
    if name in hints.dates or as_dates(column, hints.date_order) is not None:
        return Column(name, dates=hints.date_order, fill=fill)
    if _nearly_numbers(column):
        refuse_word(frame, name)
    if in_doubt(column):
        raise UserError(
            f"column '{name}' holds dates such as '{column.drop_nulls()[0]}': set date_order='dmy' if the "
            "day comes first, 'mdy' if the month does, or add the column to 'categorical' or 'exclude'"
        )
    return Column(name, levels=_levels(column))


def _levels(column: "pl.Series") -> tuple[str, ...]:
    levels = tuple(np.unique(as_names(column)).tolist())
    if len(levels) > LEVELS:
        raise UserError(
            f"column '{column.name}' has {len(levels)} different words: add it to 'exclude', or to 'text'"
        )
    return levels
