"""What the columns of a table that nobody described seem to be, and which of them no model should read.

What a rule saw is told with every column, so that its owner can see where it is wrong.
"""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fedcohort.data.columns import LEVELS, NAME, NEARLY_ALL, PLAIN, as_names, as_numbers
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
PER_LEVEL = 10  # rows of a category, on average: with fewer, categories tell labels by chance
SEVERAL = 3  # rows of a client, on average: with fewer, any numbers follow each other
SHOWN = 30  # characters of what is in a column

IDENTIFIER = re.compile(r"(^|[_\s.-])(u?u?id|guid|key|index|mrn|ssn|serial(no)?|no|nr)$|[a-z]I[dD]$", re.I)
CLIENT = re.compile(
    r"client|hospital|site|cent(er|re)|clinic|ward|branch|domain|state|region|user|subject", re.I
)
LABEL = re.compile(r"label|target|outcome|class|diagnos|disease|result|status|sentiment|activity|^y$", re.I)

Kind = Literal[
    "numbers", "dates", "categories", "texts", "names", "identifier", "constant", "empty", "label", "unwanted"
]  # fmt: skip
READ = ("numbers", "dates", "categories", "texts")


@dataclass(frozen=True)
class Seen:
    """One column, as it is understood."""

    name: str
    kind: Kind
    what: str  # is in it, in a few words
    values: int = 0  # different ones
    empty: int = 0  # cells
    order: Order = "ymd"  # of dates
    doubtful: bool = False  # dates that could have another order, too
    number: bool = False  # all cells are
    codes: bool = False  # numbers that may be codes
    odd: tuple[str, ...] = ()  # words among numbers that seem to say that there is none

    @property
    def read(self) -> bool:
        """Whether a model should read it."""
        return self.kind in READ

    @property
    def reason(self) -> str:
        """Why none should."""
        return f"{'copy of the label' if self.kind == 'label' else self.kind}: {self.what}"


class Roles(NamedTuple):
    """The columns that seem to name each row's client, and its label."""

    client: str | None
    label: str | None


class Answer(NamedTuple):
    """What is to be learnt of each row."""

    classes: np.ndarray  # numbers
    amounts: np.ndarray | None  # of which classes were made, perhaps


def survey(frame: "pl.DataFrame", label: str, client: str | None, classes: np.ndarray) -> list[Seen]:
    """Every column but these two, of rows that have both; ``classes`` are numbers of each row's class."""
    whose = None if client is None else as_names(frame[client])
    answer = Answer(classes, as_numbers(frame[label]))
    others = [column for column in frame if column.name not in (label, client, FILE)]
    return [_beside(look(column), column, answer, whose) for column in others]


def look(column: "pl.Series") -> Seen:
    """What a column is by itself."""
    import polars as pl

    known = column.drop_nulls()
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration, pl.Time):
        return Seen(column.name, "names", f"neither numbers nor words, but {column.dtype}")
    seen = Seen(column.name, "empty", "no cell is filled", known.n_unique(), len(column) - len(known))
    if not len(known):
        return seen
    if (numbers := as_numbers(known)) is not None:
        return _numbers(seen, numbers)
    if (dates := _dates(seen, known)) is not None:
        return dates
    return _words(seen, known)


def roles(frame: "pl.DataFrame") -> Roles:
    """By what columns are called and how many values they have. Of equals a label is last, a client first."""
    few = {
        seen.name: seen
        for column in frame
        if column.name != FILE and (seen := look(column)).values >= 2 and _repeats(seen, len(column))
    }
    fit = [
        name for name, seen in few.items() if seen.kind in ("categories", "numbers") and seen.values <= LEVELS
    ]
    labels = sorted(fit, key=lambda name: (not LABEL.search(name), _place(frame, name, few[name])))
    label = next(iter(labels), None)
    clients = [name for name in few if name != label and CLIENT.search(name)]
    clients += [name for name in fit if name != label and few[name].kind == "categories"]
    return Roles(next(iter(clients), None), label)


def _place(frame: "pl.DataFrame", name: str, seen: Seen) -> tuple[bool, int]:
    """Few values first, then from the end."""
    return seen.values > max(CODES), -frame.columns.index(name)


def _repeats(seen: Seen, rows: int) -> bool:
    return seen.values <= max(2, (rows - seen.empty) / 2)


def _numbers(seen: Seen, numbers: np.ndarray) -> Seen:
    """Of known cells that are all numbers."""
    seen = replace(seen, number=True, values=len(np.unique(numbers)))
    low, high = numbers.min(), numbers.max()
    what = f"{low:.6g} to {high:.6g}"
    if seen.values == 1:
        return replace(seen, kind="constant", what=f"always {low:.6g}")
    if (numbers % 1).any() or not np.isfinite(numbers).all():  # decimals are measured: they may well differ
        return replace(seen, kind="numbers", what=what)
    if len(numbers) >= ENOUGH and seen.values == len(numbers) == high - low + 1:
        return replace(seen, kind="identifier", what=f"row numbers, {what}")
    if (why := _nearly_unique(seen, len(numbers))) is not None:
        return replace(seen, kind="identifier", what=why)
    codes = seen.values in CODES
    return replace(seen, kind="numbers", what=f"{what}, perhaps codes" if codes else what, codes=codes)


def _nearly_unique(seen: Seen, known: int) -> str | None:
    """Why a column names rows rather than describes them, if it does."""
    share = OFTEN_UNIQUE if IDENTIFIER.search(seen.name) else NEARLY_UNIQUE
    if known < ENOUGH or seen.values < share * known:
        return None
    return f"nearly unique: {seen.values:,} values in {known:,} rows"


def _dates(seen: Seen, known: "pl.Series") -> Seen | None:
    orders: list[Order] = ["dmy", "mdy"] if in_doubt(known) else ["ymd"]
    read = {order: dates for order in orders if (dates := as_dates(known, order)) is not None}
    if not read:
        return None
    order, dates = next(iter(read.items()))
    if seen.values == 1:
        return replace(seen, kind="constant", what=f"always {known[0]}"[:SHOWN])
    first, last = dates.dt.date().min(), dates.dt.date().max()
    return replace(seen, kind="dates", what=f"{first!s} to {last!s}", order=order, doubtful=len(read) > 1)


def _words(seen: Seen, known: "pl.Series") -> Seen:
    import polars as pl

    words = known.cast(pl.String).alias(PLAIN)
    is_number = words.cast(pl.Float64, strict=False).is_not_null()
    if is_number.sum() >= NEARLY_ALL * len(words):
        odd = tuple(sorted({*words.filter(~is_number)}))
        if len(odd) <= ODD:
            numbers = as_numbers(words.filter(is_number))
            assert numbers is not None  # noqa: S101  # the others were left out
            told = f"; {', '.join(map(repr, odd))} as empty"
            found = _numbers(seen, numbers)
            return replace(
                found, what=found.what + told, empty=seen.empty + len(words) - len(numbers), odd=odd
            )
        return replace(seen, kind="names", what=f"numbers with {len(odd)} different words among them")
    if bool(words.str.contains(COMMA).sum() >= NEARLY_ALL * len(words)):
        return replace(seen, kind="names", what=f"commas in numbers, as in {words[0]}")
    blanks, longest = words.str.count_matches(" ").mean(), words.str.len_chars().max()
    if longest > NAME or (blanks >= LONG and seen.values > max(CODES)):  # type: ignore[operator]
        return replace(seen, kind="texts", what=f"{1 + blanks:.0f} words on average")  # type: ignore[operator]
    if (why := _nearly_unique(seen, len(words))) is not None:
        return replace(seen, kind="identifier", what=why)
    if seen.values > LEVELS:
        return replace(seen, kind="names", what=f"{seen.values:,} different words")
    if seen.values == 1 and not seen.empty:
        return replace(seen, kind="constant", what=f"always {words[0]}"[:SHOWN])
    return replace(seen, kind="categories", what=_listed(sorted({*words}), seen.values))


def _listed(words: list[str], values: int) -> str:
    """As many as there is room for."""
    told = f"{values}: {', '.join(words)}"
    return told if len(told) <= SHOWN else f"{told[: SHOWN - 1].rstrip(' ,')}…"


def _beside(seen: Seen, column: "pl.Series", answer: Answer, whose: np.ndarray | None) -> Seen:
    """What a column is beside the label and the client."""
    if not seen.read or seen.kind == "texts":
        return seen
    if whose is not None and seen.kind != "dates":
        if _same(as_names(column), whose):
            return replace(seen, kind="identifier", what="another name of the client")
        if seen.kind == "numbers" and _numbered(column, whose):
            return replace(seen, kind="identifier", what="row numbers of each client")
    if _tells(seen, column, answer.classes) or _follows(seen, column, answer.amounts):
        return replace(seen, kind="label", what="tells it alone")
    return seen


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two columns name the same things by different words."""
    pairs = len({*zip(one.tolist(), other.tolist(), strict=True)})
    return pairs == len(np.unique(one)) == len(np.unique(other)) > 1


def _numbered(column: "pl.Series", whose: np.ndarray) -> bool:
    """Whether each client's rows are numbered, from the same number on."""
    numbers = as_numbers(column)
    if numbers is None or len(numbers) < ENOUGH or np.isnan(numbers).any() or (numbers % 1).any():
        return False
    rows = np.unique(whose, return_counts=True)[1]
    in_order = numbers[np.lexsort((numbers, whose))]
    place = np.concatenate([np.arange(each) for each in rows])
    return len(numbers) >= SEVERAL * len(rows) and len({*(in_order - place).tolist()}) == 1


def _tells(seen: Seen, column: "pl.Series", classes: np.ndarray) -> bool:
    """Whether a few questions to this column alone tell nearly all rows of every class."""
    from sklearn.metrics import recall_score
    from sklearn.tree import DecisionTreeClassifier

    rows = _some(column)
    x, y, kinds = _values(seen, column)[rows], classes[rows], len(np.unique(classes))
    if len(rows) < PER_LEVEL * seen.values and seen.kind == "categories":
        return False
    if len(np.unique(y)) < kinds or np.unique(y, return_counts=True)[1].min() * 2 < PER_LEVEL:
        return False
    leaves = max(2 * kinds, seen.values if seen.kind == "categories" else 0)
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(x, y)
    return bool(recall_score(y, tree.predict(x), average=None).min() >= SURE)


def _follows(seen: Seen, column: "pl.Series", amounts: np.ndarray | None) -> bool:
    """Whether it rises or falls with the amount that classes were made of."""
    from scipy.stats import spearmanr

    rows = _some(column)
    if amounts is None or seen.kind != "numbers" or min(seen.values, len(np.unique(amounts))) < min(CODES):
        return False
    found = spearmanr(_values(seen, column)[rows, 0], amounts[rows]).statistic
    return len(rows) >= ENOUGH and bool(abs(found) >= SURE)


def _some(column: "pl.Series") -> np.ndarray:
    """Rows in which something is known, not too many."""
    rows = np.flatnonzero(column.is_not_null().to_numpy())
    return rows[:: max(1, len(rows) // TRIED)]


def _values(seen: Seen, column: "pl.Series") -> np.ndarray:
    """``[n, 1]`` numbers, of categories their places in order."""
    if seen.kind == "dates":
        dates = as_dates(column, seen.order)
        assert dates is not None  # noqa: S101  # it was read so before
        return date_numbers(dates)[:, -1:]
    if seen.kind == "categories":
        return np.unique(as_names(column), return_inverse=True)[1][:, None].astype(np.float64)
    return column.cast(float, strict=False).to_numpy()[:, None]
