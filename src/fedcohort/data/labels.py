"""Labels of any kind into class numbers."""

import numpy as np
import torch
from torch import Tensor

from fedcohort.util.errors import UserError

LARGEST = 2**53  # beyond it floats skip whole numbers
MANY = 1000  # more classes than this: the column is something else


def encode_labels(
    train: np.ndarray,
    test: np.ndarray | None = None,
    names: tuple[str, ...] | None = None,
    every: tuple[str, ...] | None = None,
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Class numbers of both parts and the names: the sorted values, ``every`` value there is, or ``names``
    for labels 0 to C-1."""
    for part in (train, test):
        if part is not None and (part.ndim != 1 or part.dtype.kind not in "biufUS"):
            raise UserError(
                f"labels are of type {part.dtype} and shape {part.shape}: give one label for each example"
            )
    both = train if test is None else np.concatenate([train, test])
    if both.dtype.kind == "S":
        both = np.char.decode(both, "utf-8", "replace")
    if both.dtype.kind == "f":
        if not np.isfinite(both).all():
            raise UserError(f"{int((~np.isfinite(both)).sum())} labels are missing: remove those rows first")
        if (both % 1).any():
            raise UserError(
                "labels hold fractions, but classes are whole numbers or words: check the label column"
            )
        if np.abs(both).max(initial=0) > LARGEST:
            raise UserError(f"labels are as large as {np.abs(both).max():g}: check the label column")
        both = both.astype(np.int64)
    if names is not None:
        codes = both.astype(np.int64)
    else:
        values, codes = np.unique(both, return_inverse=True)
        if len(values) > MANY:
            raise UserError(
                f"the labels have {len(values)} different values, hardly classes: check the label column"
            )
        names = tuple(str(value) for value in values)
        if every is not None:
            if unknown := [name for name in names if name not in every]:
                raise UserError(f"label '{unknown[0]}' is not among 'classes' ({', '.join(every)}): add it")
            codes, names = np.array([every.index(name) for name in names])[codes], every
    y = torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int64))
    return y[: len(train)], None if test is None else y[len(train) :], names
