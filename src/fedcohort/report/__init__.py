"""Reports: one self-contained HTML file that opens offline, about runs or about a diagnosis."""

from collections.abc import Sequence
from pathlib import Path

from fedcohort.diagnosis.diagnosis import Diagnosis
from fedcohort.diagnosis.features import FeatureSkew
from fedcohort.report.page import MARK, Page, render
from fedcohort.runs.stored import CONFIG, ENVIRONMENT
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError

REPORT = "report.html"  # in the directory of a comparison
HEAD = 1000  # bytes of a page that hold its mark


def write_report(runs: Sequence[Path], out: Path, private: bool = False) -> Path:
    """A report on the runs in these directories, each of one run or of a comparison, complete or not. Only
    its owner can read one that is ``private``, like the label counts that it was made of."""
    from fedcohort.report.compose import runs_page
    from fedcohort.report.evidence import gather

    return write_page(runs_page(gather(runs)), out, private)


def write_diagnosis(diagnosis: Diagnosis, out: Path, features: FeatureSkew | None = None) -> Path:
    """A report on label counts, and on attributes where they were compared too."""
    from fedcohort.report.diagnosed import diagnosis_page

    return write_page(diagnosis_page(diagnosis, features), out)


def write_page(page: Page, out: Path, private: bool = False) -> Path:
    """As a file, which replaces none but a report."""
    try:
        _refuse_to_destroy(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, render(page).encode(errors="replace"), private=private)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another file") from None
    return out


def _refuse_to_destroy(out: Path) -> None:
    """Reports replace reports and nothing else; of a run's directory, only ``REPORT`` is theirs."""
    home = out.resolve().parent
    if out.name != REPORT and (home / CONFIG).exists() and (home / ENVIRONMENT).exists():
        raise UserError(f"{out} would be among the files of a run: choose a place outside its directory")
    if out.exists() and not (out.is_file() and _is_report(out)):
        raise UserError(f"{out} exists and is no report of fedcohort, so it is kept: choose another file")


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(HEAD)
