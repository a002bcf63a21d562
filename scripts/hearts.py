"""The UCI heart disease data as the tables of somebody who begins: patients to learn from, new ones, a
hospital that comes later, and patients of another kind.

.venv/bin/python scripts/hearts.py FOLDER    from the folder heart_disease_uci below $FEDCOHORT_DATA
"""

import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = (
    *("age", "sex", "pain", "pressure", "cholesterol", "sugar", "ecg", "pulse", "angina"),
    *("st_depression", "slope", "vessels", "thal"),
)
HOSPITALS = ("cleveland", "hungarian", "va")
NEWCOMER = "switzerland"
KEPT_BACK = 20  # every so many patients one is kept back


def write_tables(source: Path, folder: Path) -> None:
    """``patients.csv``; ``new.csv``, others of the first hospital, has no answers; ``later.csv`` has only
    patients with angina."""
    patients = [row for hospital in HOSPITALS for row in _rows(source, hospital)]
    for number, row in enumerate(patients, start=1):
        row["patient"] = f"P{number:04}"
    back = patients[::KEPT_BACK]
    known = [row for row in patients if row not in back]
    new = [row for row in back if row["hospital"] == HOSPITALS[0]]
    _write(folder / "patients.csv", known)
    _write(folder / "new.csv", [{key: row[key] for key in row if key != "disease"} for row in new])
    _write(folder / "newcomer.csv", list(_rows(source, NEWCOMER)))
    _write(folder / "later.csv", [row for row in known if row["angina"] in ("1", "1.0")])


def _rows(source: Path, hospital: str) -> Iterator[dict[str, str]]:
    with (source / f"heart_disease_uci/processed.{hospital}.data").open(newline="") as file:
        for *cells, degree in csv.reader(file):
            told = dict(zip(COLUMNS, cells, strict=True))
            yield {"patient": "", "hospital": hospital, **told, "disease": "yes" if float(degree) else "no"}


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write_tables(Path(os.environ["FEDCOHORT_DATA"]), Path(sys.argv[1]))
