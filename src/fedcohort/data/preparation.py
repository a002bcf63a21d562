"""How rows become the examples that a network reads: kept with a run, and with a model that is in use.

What is not told here are numbers that clients may keep to themselves: by what their columns are scaled.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.data.columns import Column, as_words, refuse_gaps
from fedcohort.data.features import numbers_of
from fedcohort.data.federation import Federation
from fedcohort.data.scaling import Gaps, Scale, ScaleRule, Scaling
from fedcohort.data.tables import TableFormat, require
from fedcohort.data.texts import RESERVED, encode_texts
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.files import RESTORE, damaged, read_json
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.settings import between, build

if TYPE_CHECKING:
    import polars as pl

FLOAT, COPIES = 4, 3  # bytes of a feature; of each column, of all together, and of these in order
LONGEST = 2**16  # tokens of a text
FILL = "set missing='mean' ('median', 'constant'), drop_incomplete=true, or add the columns to 'exclude'"


@dataclass(frozen=True)
class Preparation:
    """Of a table with ``columns``, of texts with ``words``, else of arrays."""

    columns: tuple[Column, ...] = ()
    text: str = ""  # the column with the texts
    words: tuple[str, ...] = ()  # that have ids of their own, in their order
    length: Annotated[int, between(0, LONGEST)] = 0  # tokens of a text
    layout: TableFormat = field(default_factory=TableFormat)  # how files of such rows are read
    gaps: Gaps = "none"  # what fills numbers that are missing
    scale: ScaleRule = "none"  # whose rows say by what numbers are scaled

    @property
    def kind(self) -> str:
        return "table" if self.columns else "texts" if self.words else "arrays"

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns) or ((self.text,) if self.words else ())

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, RESERVED)}

    @property
    def width(self) -> int:
        """Features of a row of a table."""
        return sum(column.width for column in self.columns)

    @cached_property
    def numbers(self) -> Tensor:
        """Of a table: which features are quantities."""
        return torch.tensor([own.is_quantity for own in self.columns for _ in range(own.width)])

    def fits(self, shape: tuple[int, ...], vocabulary: int) -> bool:
        """Whether such examples come of it."""
        if self.columns:
            return shape == (self.width,) and not vocabulary
        return not self.words or (shape, vocabulary) == ((self.length,), len(self.words) + RESERVED)

    def encode(self, rows: "pl.DataFrame | np.ndarray") -> Tensor:
        """Examples in the order of rows, before their numbers are scaled; gaps are NaN."""
        if isinstance(rows, np.ndarray):
            return numbers_of(rows, None, False)[0]
        if self.words:
            return encode_texts(as_words(rows[self.text]), self.ids, self.length)
        known = set(rows.columns)  # asked for once: it is a list made anew each time
        for column in self.columns:
            if column.name not in known:
                require(rows, column.name, "features")
        refuse_gaps(self.columns, rows, FILL)
        needed = COPIES * FLOAT * rows.height * self.width
        refuse_beyond(needed, f"a table of {self.width:,} features", "give fewer columns")
        return torch.from_numpy(np.concatenate([column.encode(rows) for column in self.columns], axis=1))

    @property
    def own(self) -> bool:
        """Whether the rows of who uses the model say by what they are scaled or filled."""
        return self.scale == "client" or (self.scale == "none" and self.gaps != "none")

    def own_scale(self, x: Tensor) -> Scale | None:
        """By which somebody's own rows are."""
        numbers = self.numbers if self.columns else torch.ones(x.shape[1], dtype=torch.bool)
        everything = torch.arange(len(x)), torch.zeros(len(x), dtype=torch.int64), 1
        found = Scaling.learnt(numbers, x, *everything, self.scale, self.gaps).scale
        return None if found is None else Scale(*(table.reshape(-1) for table in found))

    def facts(self) -> dict[str, Any]:
        """For JSON; what is as usual is left out."""
        usual = asdict(Preparation())
        told = {key: value for key, value in asdict(self).items() if value != usual[key]}
        return json.loads(json.dumps(told))

    @classmethod
    def of(cls, facts: Any, path: Path, cure: str = RESTORE) -> "Preparation":
        """The inverse, of a file that may be anybody's."""
        try:
            columns = tuple(build(Column, own, "columns") for own in facts.get("columns", ()))
            known = {each.name: facts[each.name] for each in fields(cls) if each.name in facts}
            layout = build(TableFormat, facts.get("layout", {}), "layout")
            return build(cls, {**known, "columns": columns, "layout": layout}, "preparation")
        except (UserError, AttributeError, TypeError, OverflowError) as error:
            raise damaged(path, error, cure) from None

    def write(self, path: Path) -> None:
        """For the owner's eyes, as words of examples are in it."""
        write_atomically(path, (json.dumps(self.facts()) + "\n").encode(), private=True)

    @classmethod
    def read(cls, path: Path) -> "Preparation":
        return cls.of(read_json(path), path)


def preparation_of(federation: Federation, rule: ScaleRule) -> Preparation:
    """That of the data of a federation whose numbers, if it has any to be scaled, are scaled by ``rule``."""
    found: Preparation = federation.provenance["data"].get("preparation", Preparation())
    return replace(found, scale="none" if federation.moments is None else rule)
