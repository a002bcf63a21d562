"""What the columns of a table that nobody described seem to be, and which of them no model should read.

What a rule saw is told with every column, so that its owner can see where it is wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fedcohort.data.columns import LEVELS, NAME, NEARLY_ALL, PLAIN, as_names, as_numbers, is_odd
from fedcohort.data.dates import Order, as_dates, date_numbers, in_doubt
from fedcohort.data.tables import COMMA, FILE

if TYPE_CHECKING:
    import polars as pl

ENOUGH = 20  # known cells from which it can be said that they hardly repeat
NEARLY_UNIQUE = 0.95  # of them that are different
OFTEN_UNIQUE = 0.5  # ... in a column that is called an identifier
CODES = range(3, 13)  # different whole numbers that may be codes
LONG = 3  # blanks in a cell, on average, that make a text of it
ODD = 3  # different words among numbers that may all say that there is none
SURE = 0.99  # of the rows of every class that a column tells alone: it is the label in other words
TRIED = 20_000  # rows by which that is found out
PER_VALUE = 10  # rows of a category, or of two classes: with fewer, one tells the other by chance
SHOWN = 30  # characters of what is in a column

IDENTIFIER = re.compile(r"(^|[\W_])(?i:id|uuid|guid|key|index|mrn|ssn|serialno|no|nr)$|[a-z]I[dD]$")
CLIENT = re.compile(r"client|hospital|site|cent(er|re)|clinic|ward|branch|state|region|user|subject", re.I)
LABEL = re.compile(r"label|target|outcome|class|diagnos|disease|result|status|sentiment|activity|^y$", re.I)

ColumnKind = Literal[
    "numbers", "dates", "categories", "texts",
    "identifier", "copy of the label", "constant", "empty", "unclear",
]  # fmt: skip
READ = ("numbers", "dates", "categories", "texts")


@dataclass(frozen=True)
class Seen:
    """One column, as it is understood."""

    name: str
    kind: ColumnKind
    what: str  # is in it, in a few words
    values: int = 0  # different ones
    empty: int = 0  # cells
    codes: bool = False  # numbers that may be codes
    odd: tuple[str, ...] = ()  # words among numbers that seem to say that there is none

    @property
    def read(self) -> bool:
        """Whether a model should read it."""
        return self.kind in READ


class Roles(NamedTuple):
    """The columns that seem to name each row's client, and its label."""

    client: str | None
    label: str | None


def survey(frame: "pl.DataFrame", classes: np.ndarray, whose: np.ndarray | None, order: Order) -> list[Seen]:
    """Every column of ``frame``, beside the class and perhaps the client of each row."""
    return [_beside(look(column, order), column, classes, whose, order) for column in frame]


def order_of_dates(columns: Sequence["pl.Series"]) -> tuple[Order, bool]:
    """In which order days, months and years stand in cells that do not tell, and whether that is sure."""
    told = [column.drop_nulls() for column in columns if in_doubt(column)]
    fit: list[Order] = ["dmy", "mdy"]
    fit = [order for order in fit if all(as_dates(column, order) is not None for column in told)]
    return (fit[0], len(fit) == 1) if told and fit else ("ymd", True)


def roles(frame: "pl.DataFrame") -> Roles:
    """By what columns are called and how many values they have. Of equals a label is last, a client first."""
    columns = [look(column) for column in frame if column.name != FILE]
    few = [seen for seen in columns if 2 <= seen.values <= max(2, (frame.height - seen.empty) / 2)]
    fit = [seen for seen in few if seen.kind in ("numbers", "categories") and seen.values <= LEVELS]
    named = min(
        reversed(fit), key=lambda seen: (not LABEL.search(seen.name), seen.values > max(CODES)), default=None
    )
    label = None if named is None else named.name
    clients = [seen.name for seen in few if CLIENT.search(seen.name)]
    clients += [seen.name for seen in fit if seen.kind == "categories"]
    return Roles(next((name for name in clients if name != label), None), label)


def look(column: "pl.Series", order: Order = "ymd") -> Seen:
    """What a column is by itself."""
    import polars as pl

    if is_odd(column) or column.dtype == pl.Time:
        return Seen(column.name, "unclear", f"neither numbers nor words, but {column.dtype}")
    known = column.drop_nulls()
    seen = Seen(column.name, "empty", "no cell is filled", known.n_unique(), column.null_count())
    if not len(known):
        return seen
    if (numbers := as_numbers(known)) is not None:
        return _numbers(seen, numbers)
    if (dates := as_dates(known, order)) is not None:
        return replace(seen, kind="dates", what=f"{dates.dt.date().min()!s} to {dates.dt.date().max()!s}")
    if in_doubt(known):
        return replace(seen, kind="unclear", what="dates of another order than others")
    return _words(seen, known.cast(pl.String).alias(PLAIN))


def _numbers(seen: Seen, numbers: np.ndarray) -> Seen:
    low, high, values = numbers.min(), numbers.max(), len(np.unique(numbers))
    seen = replace(seen, kind="numbers", what=f"{low:.6g} to {high:.6g}", values=values)
    if values == 1:
        return replace(seen, kind="constant", what=f"always {low:.6g}")
    if not np.isfinite(numbers).all() or (numbers % 1).any():  # what is measured may well be unique
        return seen
    if _names_rows(seen, len(numbers)):
        in_a_row = values == len(numbers) == high - low + 1
        return replace(
            seen, kind="identifier", what=f"row numbers, {seen.what}" if in_a_row else _unique(seen)
        )
    return replace(seen, what=f"{seen.what}, perhaps codes", codes=True) if values in CODES else seen


def _words(seen: Seen, words: "pl.Series") -> Seen:
    """``words`` are the known cells of a column."""
    import polars as pl

    is_number = words.cast(pl.Float64, strict=False).is_not_null()
    if is_number.sum() >= NEARLY_ALL * len(words):
        odd, numbers = tuple(sorted({*words.filter(~is_number)})), as_numbers(words.filter(is_number))
        if len(odd) > ODD or numbers is None:
            return replace(seen, kind="unclear", what=f"numbers with {len(odd)} different words among them")
        seen = _numbers(replace(seen, empty=seen.empty + len(words) - len(numbers), odd=odd), numbers)
        return replace(seen, what=f"{seen.what}; {', '.join(map(repr, odd))} as empty")
    if words.str.contains(COMMA).sum() >= NEARLY_ALL * len(words):
        return replace(seen, kind="unclear", what=f"commas in numbers, as in {words[0]}")
    blanks, longest = np.mean(words.str.count_matches(" ").to_list()), max(words.str.len_chars().to_list())
    if longest > NAME or (blanks >= LONG and seen.values > max(CODES)):
        return replace(seen, kind="texts", what=f"{1 + blanks:.0f} words on average")
    if _names_rows(seen, len(words)):
        return replace(seen, kind="identifier", what=_unique(seen))
    if seen.values > LEVELS:
        return replace(seen, kind="unclear", what=f"{seen.values:,} different words, too many for categories")
    if seen.values == 1 and not seen.empty:
        return replace(seen, kind="constant", what=f"always {words[0]}"[:SHOWN])
    told = f"{seen.values}: {', '.join(sorted({*words}))}"
    told = told if len(told) <= SHOWN else f"{told[: SHOWN - 1].rstrip(' ,')}…"
    return replace(seen, kind="categories", what=told)


def _names_rows(seen: Seen, known: int) -> bool:
    """Whether a column names rows rather than describes them."""
    share = OFTEN_UNIQUE if IDENTIFIER.search(seen.name) else NEARLY_UNIQUE
    return known >= ENOUGH and seen.values >= share * known


def _unique(seen: Seen) -> str:
    return f"nearly unique, {seen.values:,} values"


def _beside(
    seen: Seen, column: "pl.Series", classes: np.ndarray, whose: np.ndarray | None, order: Order
) -> Seen:
    """What a column is beside the label and the client."""
    if seen.kind not in ("numbers", "dates", "categories"):
        return seen
    numbers = _as_numbers(seen, column, order)
    if whose is not None and seen.kind == "numbers" and _numbered(numbers, whose):
        return replace(seen, kind="identifier", what="row numbers of each client")
    if _tells(seen, numbers, classes):
        return replace(seen, kind="copy of the label", what="tells it alone")
    return seen


def _as_numbers(seen: Seen, column: "pl.Series", order: Order) -> np.ndarray:
    """One for each row, of categories their places in order; NaN where empty."""
    if seen.kind == "categories":
        return np.unique(as_names(column), return_inverse=True)[1].astype(np.float64)
    if seen.kind == "dates" and (dates := as_dates(column, order)) is not None:
        return date_numbers(dates)[:, -1]
    return column.cast(float, strict=False).to_numpy()


def _numbered(numbers: np.ndarray, whose: np.ndarray) -> bool:
    """Whether each client's rows are numbered, from the same number on."""
    rows = np.unique(whose, return_counts=True)[1]
    if len(numbers) < ENOUGH or len(numbers) < 3 * len(rows):
        return False
    place = np.concatenate([np.arange(each) for each in rows])
    return len({*(numbers[np.lexsort((numbers, whose))] - place).tolist()}) == 1


def _tells(seen: Seen, numbers: np.ndarray, classes: np.ndarray) -> bool:
    """Whether a few questions to this column alone tell nearly all rows of every class."""
    from sklearn.metrics import recall_score
    from sklearn.tree import DecisionTreeClassifier

    rows = np.flatnonzero(np.isfinite(numbers))
    rows = rows[:: max(1, len(rows) // TRIED)]
    x, y, kinds = numbers[rows, None], classes[rows], len(np.unique(classes))
    each = np.unique(y, return_counts=True)[1]
    categories = seen.values if seen.kind == "categories" else 0
    if len(rows) < PER_VALUE * categories or len(each) < max(2, kinds) or 2 * each.min() < PER_VALUE:
        return False
    leaves = max(2 * kinds, categories)
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(x, y)
    return bool(recall_score(y, tree.predict(x), average=None).min() >= SURE)
