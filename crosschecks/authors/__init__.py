"""Methods beside the code that their authors published, which stands in clones beside the project.

Each module is one such code: ``theirs`` is their side, in a process of its own where their modules can be
imported, and ``rows`` are the comparisons.
"""

from importlib import import_module

from crosschecks.authors.clone import FOLDER, Clone
from crosschecks.rows import Row

TITLE = "Whole methods: the authors' code"
ABOUT = """Each method beside what its authors published. Theirs is computed by their own functions, in a
clone that stays as it is; what had to be put around them says `crosschecks/authors/`. Where nothing else is
said, the ten clients of the training above take part in every round, the models of all groups or clients are
compared after each, and clients of other kinds have other labels for the same digits. FedGWC and FeSEM are
given losses and models from a script. Where code draws at random, both are given the same draws, and groups
have the same numbers. *Mended* undoes the mistake that is named below, and nothing else."""

METHODS = {
    "FedGWC": "fedgwc",
    "CFL": "cfl",
    "IFCA": "ifca",
    "FeSEM": "fesem",
    "FedSoft": "fedsoft",
    "FedConcat": "fedconcat",
    "CAFA": "cafa",
}  # and the module here


def run() -> tuple[list[Row], dict[str, str]]:
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for method, name in METHODS.items():
        module = import_module(f"crosschecks.authors.{name}")
        clone = Clone(name, module.REPOSITORY, FOLDER)
        if clone.missing:
            nothing = float("nan")
            rows.append(Row(method, "-", "-", nothing, nothing, skipped=clone.missing))
            continue
        print(f"{method}: {clone.folder} ...", flush=True)
        rows += module.rows(clone)
        versions[clone.repository] = clone.version
    return rows, versions
