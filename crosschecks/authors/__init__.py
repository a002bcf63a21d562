"""Methods beside the code that their authors published, which stands in clones beside the project.

Each module is one such code: what both sides are given, ``theirs`` (in a process of its own, where their
modules can be imported) and ``rows``, which are the comparisons.
"""

from importlib import import_module

from crosschecks.authors.clone import FOLDER, Clone
from crosschecks.rows import Row

TITLE = "Groups and models: the authors' code"
ABOUT = """Each method beside the code that its authors published. What is compared is computed by their own
functions, in a clone that stays as it is; what had to be put around it stands in `crosschecks/authors/`. The
federation is that of the training above with everybody in each round, and clients of two or three kinds:
the second and third kind have other labels for the same digits. Where code is random, both sides are given
the same draws; groups are numbered alike. *As the code has it* are options that read the method as the code
does, not as the paper."""

CODES = {
    "FedGWC": "fedgwc",
    "CFL": "cfl",
    "IFCA": "ifca",
    "FeSEM": "fesem",
    "FedSoft": "fedsoft",
    "FedConcat": "fedconcat",
    "CAFA": "cafa",
}  # method, and the module here


def run() -> tuple[list[Row], dict[str, str]]:
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for method, name in CODES.items():
        module = import_module(f"crosschecks.authors.{name}")
        clone = Clone(name, module.REPOSITORY, FOLDER)
        if clone.missing:
            nothing = float("nan")
            rows.append(Row(method, "-", clone.repository, nothing, nothing, skipped=clone.missing))
            continue
        rows += module.rows(clone)
        versions[clone.repository] = clone.version
    return rows, versions
