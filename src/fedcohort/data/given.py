"""Data that are in memory already: arrays, a data frame, or any map-style ``torch.utils.data.Dataset``.

Whatever is given is copied and never changed.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from fedcohort.data.dataset import Dataset
from fedcohort.data.features import numbers_of
from fedcohort.data.federation import Split, fingerprint
from fedcohort.data.labels import encode_labels
from fedcohort.util.errors import UserError
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.settings import build

if TYPE_CHECKING:
    import polars as pl

    from fedcohort.data.tables import TableFormat

COPIES, FLOAT = 2, 4  # of all examples while they are gathered; bytes of a number
OF_FILES = ("path", "test_path", "header", "separator", "decimal")  # options that a frame has no use for
KINDS = (
    "data are arrays (X, y) or (X, y, clients), a data frame with label=..., a map-style "
    "torch.utils.data.Dataset, or what fc.load gives"
)


class Arrays(NamedTuple):
    """Examples, their labels, and perhaps whose each is."""

    x: np.ndarray | None
    y: np.ndarray | None
    client: np.ndarray | None = None


NOTHING = Arrays(None, None)


def dataset_of(data: Any, **options: Any) -> Dataset:
    """The data set in these data; ``options`` as in :func:`fedcohort.data.load`."""
    if isinstance(data, Dataset):
        if options:
            raise UserError(f"a fedcohort Dataset is complete: leave {', '.join(options)} out")
        return data
    if is_frame(data):
        return _of_frame(data, **options)
    if unknown := [name for name in options if name not in ("y", "clients", "test", "normalise")]:
        raise UserError(f"arrays take y, clients, test and normalise, but no '{unknown[0]}': leave it out")
    test, normalise = options.pop("test", None), options.pop("normalise", True)
    tested = NOTHING if test is None else _arrays(test)
    return of_arrays(_arrays(data, **options), tested, normalise, {"source": "memory"})


def of_arrays(train: Arrays, test: Arrays, normalise: bool, story: Mapping[str, Any]) -> Dataset:
    """Bytes of rank 3 or 4 are images, other numbers columns; labels are of any kind."""
    if train.x is None or train.y is None:
        raise UserError(f"the examples have no labels: {KINDS}")
    x, test_x, numbers = numbers_of(train.x, test.x, normalise)
    y, test_y, classes = encode_labels(train.y, test.y)
    told = {**story, "normalised": normalise}
    return Dataset(x, y, classes, test_x, test_y, train.client, test.client, told, numbers=numbers)


def fingerprint_of(dataset: Dataset) -> str:
    """A sha256 of all that a data set holds."""
    parts = [(dataset.x, dataset.y), (dataset.test_x, dataset.test_y)]
    splits = [Split.of(x, y, []) for x, y in parts if x is not None and y is not None]
    owners = [None if ids is None else ids.tolist() for ids in (dataset.owner, dataset.test_owner)]
    numbers = None if dataset.numbers is None else dataset.numbers.tolist()
    return fingerprint(splits, dataset.classes, json.dumps([*owners, numbers, dataset.gaps], default=str))


def _arrays(data: Any, y: Any = None, clients: Any = None) -> Arrays:
    """Out of ``(X, y)``, ``(X, y, clients)``, X alone, or a torch Dataset."""
    if isinstance(data, tuple):
        if not 2 <= len(data) <= 3:
            raise UserError(f"a tuple of {len(data)} is no (X, y) and no (X, y, clients): {KINDS}")
        if y is not None or (clients is not None and len(data) == 3):
            raise UserError("labels or clients are given twice, in the tuple and beside it: give them once")
        return _arrays(data[0], data[1], clients if len(data) == 2 else data[2])
    if isinstance(data, str | Mapping | torch.utils.data.IterableDataset) or data is None:
        raise UserError(f"{type(data).__name__} cannot be dealt to clients: {KINDS}")
    if isinstance(data, np.ndarray | torch.Tensor | list) or hasattr(data, "__array__"):
        return Arrays(
            as_array(data), None if y is None else as_array(y), None if clients is None else _names(clients)
        )
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise UserError(f"{type(data).__name__} cannot be dealt to clients: {KINDS}")
    if y is not None:
        raise UserError("labels are given twice, in the Dataset and beside it: give them once")
    return Arrays(*_gathered(data), None if clients is None else _names(clients))


def _gathered(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Every item of a torch Dataset, asked for once: what it draws at random is drawn once, too."""
    if len(data) == 0:
        raise UserError("the Dataset is empty: check how it was made")
    examples, labels = np.zeros(0), []
    for place in range(len(data)):
        item = data[place]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise UserError(f"item {place} of the Dataset is a {type(item).__name__}, not (example, label)")
        example, label = _pixels(item[0]), as_array(item[1])
        if label.size != 1:
            raise UserError(f"item {place} of the Dataset has {label.size} labels: give one for each example")
        if place == 0:
            refuse_beyond(COPIES * FLOAT * len(data) * example.size, "the Dataset", "give fewer items")
            examples = np.empty((len(data), *example.shape), dtype=example.dtype)
        if example.shape != examples.shape[1:]:
            raise UserError(
                f"item {place} of the Dataset has shape {example.shape} and item 0 {examples.shape[1:]}: "
                "make all examples alike"
            )
        examples[place] = example
        labels.append(label.item())
    return examples, np.array(labels)


def _pixels(example: Any) -> np.ndarray:
    """Of a PIL image its channels first, as everywhere here."""
    array = as_array(example)
    return np.moveaxis(array, -1, 0) if hasattr(example, "getbands") and array.ndim == 3 else array


def as_array(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        array = np.asarray(values)
        return np.array(array.tolist()) if array.dtype == object else array  # words, as pandas keeps them
    except ValueError:
        raise UserError("some rows are longer than others: make all examples alike") from None


def _names(clients: Any) -> np.ndarray:
    """Whose each row is, copied."""
    listed = np.asarray(clients, dtype=object) if isinstance(clients, list) else np.asarray(clients)
    if listed.dtype == object and any(each is None or each != each for each in listed.tolist()):
        raise UserError("some client ids are missing: name the client of every row")
    return np.array(as_array(clients))


def is_frame(data: Any) -> bool:
    """A table of pandas or Polars; neither is imported to find out."""
    package = type(data).__module__.partition(".")[0]
    return package in ("pandas", "polars") and hasattr(data, "columns")


def _of_frame(frame: Any, test: Any = None, **options: Any) -> Dataset:
    """By the rules of the source ``table``."""
    from fedcohort.data.sources.table import Table

    if "label" not in options:
        raise UserError(
            "a frame needs the name of its label column: label='...', and client='...' if it has one"
        )
    if unfit := [name for name in OF_FILES if name in options]:
        raise UserError(f"'{unfit[0]}' is about files: leave it out")
    source = build(Table, {"path": "", **options}, "data")
    tested = None if test is None else as_polars(test, source.layout)
    dataset = source.of(as_polars(frame, source.layout), tested)
    return replace(dataset, provenance={**dataset.provenance, "source": "memory"})


def as_polars(frame: Any, layout: "TableFormat", blank: bool = False) -> "pl.DataFrame":
    """The same table for Polars, column by column: what else it would need to read pandas may be missing."""
    import polars as pl

    from fedcohort.data.tables import usable

    if not isinstance(frame, pl.DataFrame):
        if not frame.columns.is_unique:
            raise UserError("two columns of the frame have the same name: rename one")
        frame = pl.DataFrame({str(name): _cells(frame[name]) for name in frame.columns}, strict=False)
    return usable(frame, "the frame", layout, "the frame holds no rows: check how it was made", blank)


def _cells(column: Any) -> Any:
    if column.dtype.kind in "biuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    missing = column.isna().to_numpy()
    return [None if gone else _cell(cell) for cell, gone in zip(column.tolist(), missing, strict=True)]


def _cell(cell: Any) -> Any:
    return cell if isinstance(cell, bool | int | float) else str(cell)
