"""Users' own tables: CSV (also gzipped) and Parquet, one row per example."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedcohort.data.columns import (
    Column,
    Hints,
    Missing,
    client_column,
    label_column,
    learn_column,
    refuse_gaps,
    row_order,
)
from fedcohort.data.dataset import Dataset
from fedcohort.data.dates import Order
from fedcohort.data.labels import cut, cut_names, cut_points, encode_labels, refuse_amounts
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.preparation import FILL, Preparation
from fedcohort.data.scaling import Gaps, ScaleRule
from fedcohort.data.sources import register
from fedcohort.data.tables import AUTO, FILE, Decimal, TableFormat, read_table, require
from fedcohort.util.errors import Mistakes, UserError
from fedcohort.util.settings import between

if TYPE_CHECKING:
    import polars as pl

Bins = Annotated[int, between(2, 50)] | tuple[float, ...]
CLASSES = "set bins=4 to make 4 classes of it, or, if it is a category, add '{}' to 'categorical'"
DROP = "set drop_incomplete=true, or remove those rows"
NAMING = ("features", "exclude", "text", "categorical", "dates")  # options that name columns


@register
@dataclass(frozen=True)
class Table:
    """Numbers stay as they are, to be scaled by training rows once these are known; dates become numbers,
    words one-hot categories, columns named in ``text`` bags of words.

    Categories come from the training table; without a test table from all rows, including those that a split
    later sets aside. Columns stand in the order of their names, unless ``features`` lists them, and rows in
    the order of what is in them: how a file is sorted changes nothing.
    """

    path: DataPath  # a file, or a pattern such as "hospitals/*.csv"
    label: str
    client: str | None = None  # the column with each row's client; "@file": the name of the row's file
    features: tuple[str, ...] | None = None  # all other columns, unless given
    exclude: tuple[str, ...] = ()  # ... but these
    text: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()  # numbers that are codes, not quantities; the label may be one of them
    dates: tuple[str, ...] = ()  # found out unless given: for tables of which some lack all dates
    date_order: Order = "ymd"  # where all are numbers: 2024-12-31; "dmy": 31.12.2024; "mdy": 12/31/2024
    missing: Missing = "refuse"  # what fills empty cells of numbers and dates
    constant: float = 0.0  # ... of numbers, if it is "constant"
    drop_incomplete: bool = False  # leave rows out that lack what nothing fills, instead of refusing them
    empty: tuple[str, ...] = ()  # words that stand for an empty cell, besides tables.MISSING
    threshold: float | None = None  # makes a number column a yes/no label: above the threshold or not
    bins: Bins | None = None  # ... several classes: so many of about equal size, or those between numbers
    classes: tuple[str, ...] | None = None  # every label there is, if the table may lack some
    test_path: DataPath | None = None
    text_width: Annotated[int, between(2, 2**16)] = 512
    header: bool = True  # without one, columns are column_1, column_2, ...
    separator: str = AUTO
    decimal: Decimal = "auto"

    @property
    def layout(self) -> TableFormat:
        return TableFormat(self.header, self.separator, self.decimal, self.empty)

    @property
    def gaps(self) -> Gaps:
        """What numbers that are missing wait for."""
        return self.missing if self.missing in ("mean", "median") else "none"

    def load(self, where: Places, share: bool = False) -> Dataset:
        """``share``: the table is one client's own."""
        frame = read_table(self.path, where, self.layout)
        test = None if self.test_path is None else read_table(self.test_path, where, self.layout)
        return self.of(frame, test, share)

    def of(self, frame: "pl.DataFrame", test: "pl.DataFrame | None", share: bool = False) -> Dataset:
        """The data set in tables that were read; all that is wrong with one is told at once."""
        rows = frame.height
        frame, preparation, labels = self._checked(frame)
        test_labels, points, names = None, self.points(labels), None
        if test is not None:
            test, _, test_labels = self._checked(test, preparation)
        if points is not None:
            labels, names = cut(labels, points), cut_names(points)
            test_labels = None if test_labels is None else cut(test_labels, points)
        known = names, self.classes, self.label in self.categorical
        y, test_y, classes = encode_labels(labels, test_labels, *known)
        x, y, owner = self._sorted(preparation, frame, y)
        test_x, test_y, test_owner = self._sorted(preparation, test, test_y)
        return Dataset(
            x,
            y,
            classes,
            test_x,
            test_y,
            owner,
            test_owner,
            {**self._story(frame, preparation.columns, rows - frame.height), "preparation": preparation},
            share=share,
            numbers=preparation.numbers if preparation.numbers.any() else None,
            gaps=preparation.gaps,
        )

    def _checked(
        self, frame: "pl.DataFrame", known: Preparation | None = None
    ) -> tuple["pl.DataFrame", Preparation, np.ndarray]:
        """The rows that are used, how they become examples, unless that is ``known``, and their labels."""
        self._require_columns(frame, known)
        mistakes, labels = Mistakes(), np.zeros(0)
        preparation = known or self._learnt(frame, mistakes)  # mistakes by their rows in the file ...
        if self.drop_incomplete:
            frame = self._complete(frame, preparation)
            preparation = known or self._learnt(frame, mistakes)  # ... but categories of rows that are used
        with mistakes.noted():
            labels = self.labels(frame)
        with mistakes.noted():
            client_column(frame, self.client, DROP)
        for column in preparation.columns:
            if column.is_quantity:
                with mistakes.noted():
                    column.quantities(frame)
        with mistakes.noted():
            refuse_gaps(preparation.columns, frame, FILL)
        mistakes.tell()
        return frame, preparation, labels

    def learn(self, frame: "pl.DataFrame") -> Preparation:
        """How the rows of such a table become examples."""
        mistakes = Mistakes()
        preparation = self._learnt(frame, mistakes)
        mistakes.tell()
        return preparation

    def _learnt(self, frame: "pl.DataFrame", mistakes: Mistakes) -> Preparation:
        """The same, without columns that nothing can be made of."""
        hints = Hints(**{field.name: getattr(self, field.name) for field in fields(Hints)})
        columns = list[Column]()
        for name in self._features(frame):
            with mistakes.noted():
                columns.append(learn_column(frame, name, hints))
        return Preparation(tuple(columns), layout=self.layout, gaps=self.gaps)

    def _sorted(self, preparation: Preparation, frame: Any, y: Any) -> tuple[Any, Any, Any]:
        """Examples, labels and clients in an order that does not depend on the file's."""
        if frame is None:
            return None, None, None
        x, owner = preparation.encode(frame), client_column(frame, self.client)
        order = row_order(frame, *preparation.reads, self.label, self.client)
        return x[order], y[order], None if owner is None else owner[order]

    def _require_columns(self, frame: "pl.DataFrame", known: Preparation | None) -> None:
        mistakes, asked = Mistakes(), [("label", self.label)]
        asked += [] if self.client is None else [("client", self.client)]
        if known is None:
            asked += [(option, name) for option in NAMING for name in getattr(self, option) or ()]
        else:
            asked += [("features", name) for name in known.reads]
        there = {*frame.columns}
        for option, name in asked:
            if name not in there:
                with mistakes.noted():
                    require(frame, name, option)
        mistakes.tell()
        if self.client == self.label:
            raise UserError(f"'label' and 'client' both name '{self.label}': name two columns")

    def _features(self, frame: "pl.DataFrame") -> list[str]:
        """Other clients' tables may have the same columns in another order."""
        apart = {self.label, self.client, FILE}
        names = list(self.features) if self.features is not None else sorted({*frame.columns} - apart)
        names += [name for name in self.text if name not in names]
        names = [name for name in names if name not in self.exclude]
        if self.label in names:
            raise UserError(
                f"the label '{self.label}' is among the features: remove it, or nothing is to be learnt"
            )
        if not names:
            raise UserError("the table has no feature column besides label and client: add one")
        return names

    def _complete(self, frame: "pl.DataFrame", preparation: Preparation) -> "pl.DataFrame":
        """The rows that lack nothing that nothing fills."""
        needed = [self.label, *([] if self.client is None else [self.client])]
        needed += [column.name for column in preparation.columns if self.missing == "refuse" or column.needed]
        known = np.all([frame[name].is_not_null().to_numpy() for name in needed], axis=0)
        if not known.any():
            raise UserError("no row is complete: leave drop_incomplete out, and set 'missing'")
        return frame if known.all() else frame.filter(known)

    def labels(self, frame: "pl.DataFrame") -> np.ndarray:
        """Each row's, as the table has them."""
        labels = label_column(frame, self.label, DROP)
        if self.threshold is None and self.bins is None:
            if self.classes is None and self.label not in self.categorical:
                refuse_amounts(labels, self.label, CLASSES.format(self.label))
        elif labels.dtype.kind == "U":
            option = "bins" if self.threshold is None else "threshold"
            raise UserError(f"label '{self.label}' holds words: '{option}' is for numbers, remove it")
        return labels

    def points(self, labels: np.ndarray) -> tuple[float, ...] | None:
        """Where numbers are cut into classes, if they are."""
        if self.threshold is not None and self.bins is not None:
            raise UserError("'threshold' and 'bins' both make classes of the label: leave one out")
        points = self.bins if self.threshold is None else (self.threshold,)
        points = cut_points(labels, points) if isinstance(points, int) else points
        if points is not None and (not points or any(low >= high for low, high in pairwise(points))):
            raise UserError(
                f"label '{self.label}' makes no classes between {points}: give 'bins' in ascending order"
            )
        return points

    def _story(self, frame: "pl.DataFrame", columns: tuple[Column, ...], dropped: int) -> dict[str, Any]:
        empty = {column: frame[column.name].null_count() for column in columns}
        filled = {column.name: rows for column, rows in empty.items() if column.is_quantity and rows}
        widths = {name: width for column in columns for name, width in column.parts.items()}
        shares = {name: rows / frame.height for column, rows in empty.items() for name in column.parts}
        cells = frame.height * sum(column.is_quantity for column in columns)
        by = f"{self.constant:g}" if self.missing == "constant" else f"the {self.missing}"
        told = [_kinds(columns), _dropped(dropped, frame.height), _filled(filled, cells, frame.height, by)]
        read = "; ".join(filter(None, told))
        found = {"columns": widths, "filled": filled, "empty_shares": shares, "read": read}
        return {"source": "table", **vars(self), **found}


def refuse_apart(options: Mapping[str, Any], scale: ScaleRule) -> None:
    """Of the options of tables that are in several places: what only all rows together could answer."""
    if isinstance(options.get("bins"), int):
        raise UserError(
            "data.bins: so many classes of equal size need the labels of all clients in one place: list the "
            "numbers between the classes instead, as 'fedcohort init --set data.bins=4' does"
        )
    if options.get("missing") == "median" and scale == "federated":
        raise UserError(
            "data.missing: a median of everybody needs the rows of all clients in one place: take 'mean', or "
            "each client's own with data.scale = 'client'"
        )


def _kinds(columns: Sequence[Column]) -> str:
    """How the columns were read, in words."""
    kinds = Counter(column.kind for column in columns)
    in_order = [kind for kind in ("numbers", "dates", "categories", "texts") if kinds[kind]]
    named = [f"{kinds[kind]} of {kind}" for kind in in_order]
    return f"columns of the table: {', '.join(named)}"


def _dropped(dropped: int, kept: int) -> str:
    return f"{dropped:,} of {dropped + kept:,} rows are incomplete and left out" if dropped else ""


def _filled(filled: dict[str, int], cells: int, rows: int, by: str) -> str:
    if not filled:
        return ""
    most = max(filled, key=lambda name: filled[name])
    return (
        f"{sum(filled.values()):,} of {cells:,} numbers are missing and filled with {by}, most in '{most}' "
        f"({filled[most] / rows:.0%})"
    )
