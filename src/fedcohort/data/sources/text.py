"""Users' own texts: a CSV (also gzipped) or Parquet table with a column of texts and a column of labels."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcohort.data.columns import as_words, client_column, label_column, row_order
from fedcohort.data.dataset import Dataset
from fedcohort.data.labels import encode_labels, refuse_amounts
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.preparation import Preparation
from fedcohort.data.sources import register
from fedcohort.data.tables import AUTO, TableFormat, read_table, require
from fedcohort.data.texts import RESERVED, tokenise
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class Text:
    """Each text becomes a row of token ids; the vocabulary is learnt from the training table.

    For bags of words beside other columns, use the source ``table``.
    """

    path: DataPath  # a file, or a pattern such as "hospitals/*.csv"
    text: str  # the column with the texts
    label: str  # the column with the labels
    client: str | None = None  # the column with each row's client; "@file": the name of the row's file
    test_path: DataPath | None = None  # a table of the same columns to test on
    words: Annotated[int, at_least(3)] = 10_000  # kinds of tokens, with padding and unknown words
    length: Annotated[int, at_least(1)] = 100  # tokens of a text: its last ones
    header: bool = True  # without one, columns are column_1, column_2, ...
    separator: str = AUTO  # between the cells of a row

    def load(self, where: Places) -> Dataset:
        """Rows stand in the order of their texts: how a file is sorted changes nothing."""
        texts, labels, owner = self._columns(self.path, where)
        test_texts, test_labels, test_owner = (
            (None, None, None) if self.test_path is None else self._columns(self.test_path, where)
        )
        x, test_x, words = tokenise(texts, test_texts, self.words, self.length)
        y, test_y, classes = encode_labels(labels, test_labels)
        kinds = len(words) + RESERVED
        read = Preparation((), self.text, words, self.length, self._layout)
        story = {"source": "text", **vars(self), "vocabulary": kinds, "preparation": read}
        return Dataset(x, y, classes, test_x, test_y, owner, test_owner, story, kinds)

    @property
    def _layout(self) -> TableFormat:
        return TableFormat(self.header, self.separator)

    def _columns(self, path: str, where: Places) -> tuple[list[str], np.ndarray, np.ndarray | None]:
        frame = read_table(path, where, self._layout)
        require(frame, self.text, "text")
        for option in ("label", "client"):
            if (name := getattr(self, option)) is not None:
                require(frame, name, option)
        frame = frame[row_order(frame, self.text, self.label, self.client)]
        labels = label_column(frame, self.label)
        refuse_amounts(labels, self.label, "make classes of it, or write categories as words")
        return as_words(frame[self.text]), labels, client_column(frame, self.client)
