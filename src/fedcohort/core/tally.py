"""What models answered to samples of which class, counted: from such counts every number of a class follows.

Counts of several clients, or machines, add up. Of two classes it is also counted how sure a model was, in
narrow bins of its log-odds, so that nobody has to send the scores of single samples.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcohort.core.records import Memory

Ints = NDArray[np.int64]

BINS = 2048  # of the log-odds of the second of two classes ...
PER_UNIT = 64  # ... so many to a unit, around 0


class Tally(NamedTuple):
    """Every combination of client, class and answer that there is, once, with its samples."""

    client: Ints
    label: Ints  # the samples' class
    said: Ints  # the answer
    samples: Ints
    odds: Ints  # [C, BINS] of two classes: everybody's samples by class and log-odds; else [0, BINS]

    @classmethod
    def of(cls, client: Tensor, label: Tensor, said: Tensor, log_odds: Tensor, classes: int) -> "Tally":
        """Of single samples; their log-odds count if there are two classes."""
        cell = (client * classes + label) * classes + said
        found, samples = np.unique(cell.numpy(), return_counts=True)
        pair, answer = np.divmod(found, classes)
        rows = odds_rows(classes)
        bins = ((log_odds.nan_to_num(0.0) * PER_UNIT).floor() + BINS // 2).clamp(0, BINS - 1).long()
        counted = torch.bincount(label * BINS + bins, minlength=rows * BINS) if rows else label.new_zeros(0)
        return cls(*np.divmod(pair, classes), answer, samples, counted.view(rows, BINS).numpy())

    @classmethod
    def told(cls, client: int, tables: Memory) -> "Tally":
        """What a client tells: ``answers``, its samples ``[C, C]`` by class and answer, and ``odds``."""
        answers = tables["answers"].long().numpy()
        label, said = answers.nonzero()
        odds = tables["odds"].long().numpy() if "odds" in tables else np.zeros((0, BINS), dtype=np.int64)
        return cls(np.full(len(label), client), label, said, answers[label, said], odds)

    def of_one(self, classes: int) -> Memory:
        """The same as a client tells it that is alone in the tally."""
        answers = self.confusion(np.zeros(1, dtype=np.int64), 1, classes)[0]
        tables = {"answers": answers, **({"odds": self.odds} if len(self.odds) else {})}
        return {name: torch.from_numpy(table).int() for name, table in tables.items()}

    @classmethod
    def joined(cls, tallies: "Sequence[Tally]") -> "Tally":
        """Of different clients."""
        *counted, odds = zip(*tallies, strict=True)
        return cls._make([*map(np.concatenate, counted), np.sum(odds, axis=0)])

    def moved(self, first: int) -> "Tally":
        """With clients numbered from ``first`` on."""
        return self._replace(client=self.client + first)

    def confusion(self, row: Ints, rows: int, classes: int) -> Ints:
        """``[rows, C, C]``: samples by class and answer, those of a client in its ``row``."""
        table = np.zeros((rows, classes, classes), dtype=np.int64)
        np.add.at(table, (row[self.client], self.label, self.said), self.samples)
        return table

    def by_class(self, clients: int, classes: int) -> tuple[Ints, Ints, Ints]:
        """``[K, C]`` each: a client's samples of every class, those of them that were answered right, and
        those of any class that were answered with it."""
        right = self.label == self.said
        tables = []
        for column, counts in ((self.label, True), (self.label, right), (self.said, True)):
            table = np.zeros((clients, classes), dtype=np.int64)
            np.add.at(table, (self.client, column), self.samples * counts)
            tables.append(table)
        return tables[0], tables[1], tables[2]


def odds_rows(classes: int) -> int:
    """How many classes have their log-odds counted."""
    return classes if classes == 2 else 0
