"""New rows for a model, from files or from memory, and what is to be said before they are answered."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.data.columns import as_names, refuse_gaps
from fedcohort.data.given import as_array, as_polars, is_frame
from fedcohort.data.locate import Places
from fedcohort.data.preparation import Preparation
from fedcohort.data.tables import FILE, read_table
from fedcohort.data.unpack import read_arrays
from fedcohort.util.errors import Mistakes, UserError
from fedcohort.util.words import counted

if TYPE_CHECKING:
    import polars as pl

ARRAY = "x"  # of an npz file
NAMED = 3  # categories that a warning quotes


def read_rows(path: Path, preparation: Preparation) -> "pl.DataFrame | np.ndarray":
    """A table like that of training, or the array of an npz file."""
    if preparation.reads:
        if path.suffix == ".npz":
            raise UserError(f"the model reads columns, not arrays: give a table with {_listed(preparation)}")
        return _to_the_last(read_table(str(path), Places.of(), preparation.layout, blank=True))
    arrays = read_arrays(Places.of().file(str(path)))
    if ARRAY not in arrays and len(arrays) != 1:
        held = ", ".join(arrays) or "nothing"
        raise UserError(f"{path} holds {held}: call the array of examples '{ARRAY}'")
    return arrays.get(ARRAY, next(iter(arrays.values())))


def as_rows(data: Any, preparation: Preparation) -> "pl.DataFrame | np.ndarray":
    """Rows that are in memory already."""
    if not preparation.reads:
        return as_array(data)
    if is_frame(data):
        return data if FILE in data.columns else as_polars(data, preparation.layout, blank=True)
    if preparation.words and isinstance(data, list | tuple) and all(isinstance(each, str) for each in data):
        import polars as pl

        return pl.DataFrame({preparation.text: list(data)})
    raise UserError(f"the model reads a frame with {_listed(preparation)}, not a {type(data).__name__}")


def check_rows(rows: "pl.DataFrame | np.ndarray", preparation: Preparation) -> None:
    """Refuses rows that cannot be answered, all missing columns at once; warns of categories that training
    never saw."""
    if len(rows) == 0:
        raise UserError("there are no rows to answer: give at least one")
    if isinstance(rows, np.ndarray):
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            raise UserError(
                f"the rows hold {counted((~np.isfinite(rows)).sum(), 'NaN or infinite value')}: correct them"
            )
        return
    if lacking := [name for name in preparation.reads if name not in rows.columns]:
        named = ", ".join(f"'{name}'" for name in lacking)
        raise UserError(f"the table has no column {named}, which the model reads: add it or correct a name")
    mistakes = Mistakes()
    with mistakes.noted():
        refuse_gaps(preparation.columns, rows, "the model learnt from complete rows, so fill or remove them")
    for column in preparation.columns:
        cells = rows[column.name]
        if column.is_quantity:
            with mistakes.noted():
                column.quantities(rows, "correct it")
        elif column.levels is not None:
            words = as_names(cells)
            if (strange := ~np.isin(words, column.levels)).any():
                some = ", ".join(f"'{word}'" for word in sorted({*words[strange]})[:NAMED])
                warnings.warn(
                    f"column '{column.name}' has a category that training never saw in {int(strange.sum())} "
                    f"of {len(words)} rows ({some}): they are answered as if it were none",
                    RuntimeWarning,
                    stacklevel=4,
                )
    mistakes.tell()


def _to_the_last(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Without the blank lines that files end with; others stay, or answers would stand beside other rows."""
    said = [cells.is_not_null().to_numpy() for cells in frame.get_columns() if cells.name != FILE]
    return frame[: int(np.any(said, axis=0).nonzero()[0].max(initial=-1)) + 1]


def _listed(preparation: Preparation) -> str:
    return f"the columns {', '.join(preparation.reads)}"
