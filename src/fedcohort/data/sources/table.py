"""Users' own tables: CSV (also gzipped) and Parquet, one row per example."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedcohort.data.dataset import Dataset
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.preparation import Preparation
from fedcohort.data.sources import register
from fedcohort.data.tables import (
    FILE,
    Column,
    client_column,
    label_column,
    learn_column,
    read_table,
    require,
    row_order,
)
from fedcohort.util.errors import UserError
from fedcohort.util.settings import between

if TYPE_CHECKING:
    import polars as pl


@register
@dataclass(frozen=True)
class Table:
    """Numbers stay as they are, to be scaled by training rows once these are known; words become one-hot
    categories, columns named in ``text`` bags of words.

    Categories come from the training table; without a test table from all rows, including those that a split
    later sets aside. Columns stand in the order of their names, unless ``features`` lists them, and rows in
    the order of what is in them: how a file is sorted changes nothing.
    """

    path: DataPath  # a file, or a pattern such as "hospitals/*.csv"
    label: str
    client: str | None = None  # the column with each row's client; "@file": the name of the row's file
    features: tuple[str, ...] | None = None  # all other columns, unless given
    text: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()  # numbers that are codes, not quantities
    missing: Literal["refuse", "mean"] = "refuse"  # for empty cells of number columns
    empty: tuple[str, ...] = ()  # words that stand for an empty cell, besides tables.MISSING
    threshold: float | None = None  # makes a number column a yes/no label: above the threshold or not
    classes: tuple[str, ...] | None = None  # every label there is, if the table may lack some
    test_path: DataPath | None = None
    text_width: Annotated[int, between(2, 2**16)] = 512
    header: bool = True  # without one, columns are column_1, column_2, ...
    separator: str = ","

    def load(self, where: Places, share: bool = False) -> Dataset:
        """``share``: the table is one client's own."""
        frame = read_table(self.path, where, self.header, self.separator, self.empty)
        test = None
        if self.test_path is not None:
            test = read_table(self.test_path, where, self.header, self.separator, self.empty)
        return self.of(frame, test, share)

    def of(self, frame: "pl.DataFrame", test: "pl.DataFrame | None", share: bool = False) -> Dataset:
        """The data set in tables that were read."""
        self._require_columns(frame)
        preparation = self.learn(frame)
        labels, test_labels = self._labels(frame), None if test is None else self._labels(test)
        names = None
        if self.threshold is not None:
            names = (f"at most {self.threshold:g}", f"above {self.threshold:g}")
        y, test_y, classes = encode_labels(labels, test_labels, names, self.classes)
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
            {**self._story(frame, preparation.columns), "preparation": preparation},
            share=share,
            numbers=preparation.numbers if preparation.numbers.any() else None,
            gaps=preparation.gaps,
        )

    def learn(self, frame: "pl.DataFrame") -> Preparation:
        """How the rows of such a table become examples."""
        fill = self.missing == "mean"
        columns = tuple(
            learn_column(frame, name, self.text, self.categorical, fill, self.text_width)
            for name in self._features(frame)
        )
        return Preparation(columns, "", (), 0, self.header, self.separator, self.empty, fill)

    def _sorted(self, preparation: Preparation, frame: Any, y: Any) -> tuple[Any, Any, Any]:
        """Examples, labels and clients in an order that does not depend on the file's."""
        if frame is None:
            return None, None, None
        x, owner = preparation.encode(frame), client_column(frame, self.client)
        order = row_order(frame, *preparation.reads, self.label, self.client)
        return x[order], y[order], None if owner is None else owner[order]

    def _require_columns(self, frame: "pl.DataFrame") -> None:
        require(frame, self.label, "label")
        if self.client is not None:
            require(frame, self.client, "client")
        if self.client == self.label:
            raise UserError(f"'label' and 'client' both name '{self.label}': name two columns")
        for option in ("features", "text", "categorical"):
            for name in getattr(self, option) or ():
                require(frame, name, option)

    def _features(self, frame: "pl.DataFrame") -> list[str]:
        """Other clients' tables may have the same columns in another order."""
        others = sorted(name for name in frame.columns if name not in (self.label, self.client, FILE))
        names = list(self.features) if self.features is not None else others
        names += [name for name in self.text if name not in names]
        if self.label in names:
            raise UserError(
                f"the label '{self.label}' is among the features: remove it, or nothing is to be learnt"
            )
        if not names:
            raise UserError("the table has no feature column besides label and client: add one")
        return names

    def _labels(self, frame: "pl.DataFrame") -> np.ndarray:
        labels = label_column(frame, self.label)
        if self.threshold is None:
            return labels
        if labels.dtype.kind == "U":
            raise UserError(f"label '{self.label}' holds words: 'threshold' is for numbers, remove it")
        return (labels > self.threshold).astype(np.int64)

    def _story(self, frame: "pl.DataFrame", columns: tuple[Column, ...]) -> dict[str, Any]:
        filled = {
            column.name: n
            for column in columns
            if column.kind == "numbers" and (n := frame[column.name].null_count())
        }
        empty = {column.name: frame[column.name].null_count() / frame.height for column in columns}
        widths = {column.name: column.width for column in columns}
        read = _account(Counter(column.kind for column in columns), filled, frame.height)
        found = {"columns": widths, "filled": filled, "empty_shares": empty, "read": read}
        return {"source": "table", **vars(self), **found}


def _account(kinds: Counter[str], filled: dict[str, int], rows: int) -> str:
    """How the columns were read, in words."""
    named = [f"{kinds[kind]} of {kind}" for kind in ("numbers", "categories", "texts") if kinds[kind]]
    told = f"columns of the table: {', '.join(named)}"
    if not filled:
        return told
    cells, most = kinds["numbers"] * rows, max(filled, key=lambda name: filled[name])
    return (
        f"{told}; {sum(filled.values()):,} of {cells:,} numbers are missing and filled with the mean, "
        f"most in '{most}' ({filled[most] / rows:.0%})"
    )
