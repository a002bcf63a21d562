"""A labelled data set before it is dealt to clients."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from fedcohort.data.scaling import Gaps
from fedcohort.util.errors import UserError
from fedcohort.util.words import counted


@dataclass(frozen=True)
class Dataset:
    """Examples and labels, with the official test set and the natural client of each row where they exist."""

    x: Tensor  # [n, ...] float32, or [n, length] int64 where examples are token ids
    y: Tensor  # [n] int64, 0 to C-1
    classes: tuple[str, ...]
    test_x: Tensor | None = None
    test_y: Tensor | None = None
    owner: np.ndarray | None = None
    test_owner: np.ndarray | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    vocabulary: int = 0  # kinds of tokens; 0: examples are numbers
    share: bool = False  # one client's own data: its labels may all be equal
    numbers: Tensor | None = None  # bool [shape[0]]: what is to be scaled, see scaling.py; None: nothing
    gaps: Gaps = "none"  # what fills numbers that are missing, for which NaN stands

    def __post_init__(self) -> None:
        """Refuse here, once for every source, what would only surface as a strange number after training."""
        object.__setattr__(
            self, "x", self.x.contiguous()
        )  # else rows of a view are copied whole at each step
        self._check_rows(self.x, self.y, self.owner, "training")
        if (self.test_x is None) != (self.test_y is None):
            raise UserError("the test set needs both examples and labels: give both or neither")
        if self.test_x is not None and self.test_y is not None:
            self._check_rows(self.test_x, self.test_y, self.test_owner, "test")
            if self.test_x.shape[1:] != self.x.shape[1:]:
                raise UserError(
                    f"test examples have shape {tuple(self.test_x.shape[1:])} but training examples "
                    f"{tuple(self.x.shape[1:])}: prepare both in the same way"
                )
        if self.numbers is not None and self.numbers.shape != self.x.shape[1:2]:
            raise UserError(f"'numbers' has shape {tuple(self.numbers.shape)}: give one for each column")
        if len(torch.unique(self.y)) < 2 and not self.share:
            raise UserError("all labels are equal, so there is nothing to learn: check the label column")

    def _check_rows(self, x: Tensor, y: Tensor, owner: np.ndarray | None, what: str) -> None:
        if len(x) == 0:
            raise UserError(f"the {what} set is empty: check that the file holds rows")
        for other, name in ((y, "labels"), (owner, "client ids")):
            if other is not None and other.ndim != 1:
                raise UserError(f"{what} {name} have shape {tuple(other.shape)}: give one for each example")
            if other is not None and len(other) != len(x):
                raise UserError(
                    f"the {what} set has {len(x)} examples but {len(other)} {name}: give one for each example"
                )
        kind, words = (torch.int64, "int64 token ids") if self.vocabulary else (torch.float32, "float32")
        if x.dtype != kind or y.dtype != torch.int64:
            raise UserError(f"the {what} set must be {words} with int64 labels, not {x.dtype} with {y.dtype}")
        if self.vocabulary and not 0 <= int(x.min()) <= int(x.max()) < self.vocabulary:
            raise UserError(
                f"token ids of the {what} set run from {int(x.min())} to {int(x.max())} but there are "
                f"{self.vocabulary} kinds: number them from 0"
            )
        odd = torch.isinf if self.gaps != "none" else lambda values: ~torch.isfinite(values)
        if not torch.isfinite(x.sum()) and (bad := int(odd(x).sum())):
            raise UserError(
                f"the {what} set has {counted(bad, 'NaN or infinite value')}: fill or remove them first"
            )
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= len(self.classes):
            raise UserError(
                f"{what} labels run from {low} to {high} but there are {len(self.classes)} classes: "
                "number them from 0 without gaps"
            )

    @cached_property
    def scaled(self) -> "WeakValueDictionary[bytes, Tensor]":
        """Training examples by the scale that changed them, for as long as a federation uses them."""
        return WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which scales for itself."""
        return {name: value for name, value in vars(self).items() if name != "scaled"}

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.x)
