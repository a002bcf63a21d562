"""Who earns more than 50,000 dollars a year? Persons of the American Community Survey (ACS), by state.

The task ACSIncome of Ding, Hardt, Miller, Schmidt: Retiring Adult (NeurIPS 2021),
https://arxiv.org/abs/2108.04884, read from the Census Bureau's files (PUMS) or from an extract of their
columns. Of the ten features and the four filters those are used whose columns a file has.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedcohort.data.columns import as_names, as_numbers, row_order
from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register
from fedcohort.data.tables import find_files, read_columns
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    import polars as pl

FOLDERS = ("acs_pums", "acs_income")
NUMBERS = ("AGEP", "OCCP", "POBP", "SCHL", "WKHP")  # occupation and birthplace have hundreds of codes
CODES = {"COW": range(1, 10), "MAR": range(1, 6), "RAC1P": range(1, 10), "RELP": range(18), "SEX": (1, 2)}
ABOVE = {"AGEP": 16, "PINCP": 100, "PWGTP": 0, "WKHP": 0}  # who is left out has no more than this
INCOME, RICH = "PINCP", 50_000
STATES = ("STABBR", "ST")  # the state's letters, else its number: the person's client


@register
@dataclass(frozen=True)
class ACSIncome:
    """Age, schooling, hours of work, occupation and birthplace as numbers, what has few codes one-hot.

    An empty cell is a 0, as in the task's own code; persons who fail a filter are left out.
    """

    path: DataPath | None = None  # the file or folder, or a pattern, if not all of <root>/acs_pums
    one_hot: bool = True  # false: codes stay the numbers that they are

    def load(self, where: Places) -> Dataset:
        import polars as pl

        wanted = {*NUMBERS, *CODES, *ABOVE, INCOME, *STATES}
        files = find_files(self.path, FOLDERS, where)
        frame = read_columns(files, wanted)
        if lacking := [name for name in (INCOME, "AGEP") if name not in frame.columns]:
            raise UserError(f"{files[0]} has no column {lacking[0]}: give person records of the ACS")
        for name, least in ABOVE.items():
            if name in frame.columns:
                frame = frame.filter(pl.Series(_numbers(frame, name) > least))
        if frame.is_empty():
            raise UserError(f"nobody in {files[0]} is in the task: give records of adults with an income")
        frame = frame[row_order(frame, *frame.columns)]
        blocks = {name: self._block(frame, name) for name in (*NUMBERS, *CODES) if name in frame.columns}
        quantity = [name in NUMBERS or not self.one_hot for name, own in blocks.items() for _ in own.T]
        y = torch.from_numpy((_numbers(frame, INCOME) > RICH).astype(np.int64))
        state = next((name for name in STATES if name in frame.columns), None)
        return Dataset(
            torch.from_numpy(np.concatenate(list(blocks.values()), axis=1)),
            y,
            (f"at most {RICH:,}", f"above {RICH:,}"),
            owner=None if state is None else as_names(frame[state]),
            provenance=self._story(frame, {name: own.shape[1] for name, own in blocks.items()}),
            numbers=torch.tensor(quantity) if any(quantity) else None,
        )

    def _block(self, frame: "pl.DataFrame", name: str) -> np.ndarray:
        numbers = np.nan_to_num(_numbers(frame, name)).astype(np.float32)[:, None]
        if name in NUMBERS or not self.one_hot:
            return numbers
        return (numbers == np.array(CODES[name])).astype(np.float32)

    def _story(self, frame: "pl.DataFrame", columns: dict[str, int]) -> dict[str, object]:
        absent = [name for name in (*NUMBERS, *CODES) if name not in columns]
        unchecked = [name for name in ABOVE if name not in frame.columns]
        read = f"ACSIncome with the features {', '.join(columns)}"
        read += f"; the files lack {', '.join(absent)}" if absent else ""
        read += f", so nobody is left out for {', '.join(unchecked)}" if unchecked else ""
        return {"source": "acs_income", **vars(self), "columns": columns, "read": read}


def _numbers(frame: "pl.DataFrame", name: str) -> np.ndarray:
    numbers = as_numbers(frame[name])
    if numbers is None:
        raise UserError(f"column {name} holds words: give the Census Bureau's numbers")
    return numbers
