"""Tables and figures for which nothing is trained: a program of ``studies/`` makes their numbers."""

import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template

from fedcohort.runs.experiment import config_hash
from fedcohort.runs.replication.folders import ABOUT, FIRST, LAST, Folder, Study, number, rows_of
from fedcohort.runs.replication.results import ResultRow, check_seed
from fedcohort.util.errors import UserError

STANDARD_ERROR = 2  # results alone go to standard output


def study_results(folder: Folder, study: Study, scale: str, where: Path) -> list[ResultRow]:
    """The rows of a study's file as results; what names their settings is the row without its time."""
    path, found, ours = where / study.file, [], version("fedcohort")
    for row in rows_of(path) if path.exists() else []:
        seconds, data = row.pop("seconds", ""), row.get("labels", "")
        check_seed(row.get("seed", "0"), path)
        told = {
            "conditions": Template(study.conditions).safe_substitute(row),
            "method": Template(study.method).safe_substitute(row),
            "scale": scale,
            "seed": row.get("seed", "0"),
            "seconds": seconds,
            "config": config_hash(row),
            "data": data,
            "version": ours,
            "command": f"fedcohort replicate {quote(folder.name)}",
        }
        values = {key: number(row.get(key, ""), path) for key in folder.metrics}
        found.append(ResultRow({key: told.get(key, "") for key in (*FIRST, *LAST)}, values))
    return [each for each in found if scale == "smoke" or each.cell in folder.cells]  # smoke has other data


def run_study(folder: Folder, study: Study, scale: str, where: Path) -> None:
    """Carries it out; its rows go to ``where``. A program of another tree than ours has to be trusted."""
    program = folder.root / "studies" / f"{study.name}.py"
    if not program.is_file():
        raise UserError(f"there is no {program}: {folder.name} is made by it, copy 'studies' beside 'papers'")
    if not folder.trusted and folder.root != _tree():
        raise UserError(
            f"to make {folder.name} again would run {program}, as its {ABOUT} says: if you know what that "
            "does, add --trust"
        )
    where.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", f"studies.{study.name}", "--out", str(where.resolve())]
    words += ["--smoke"] if scale == "smoke" else []
    done = subprocess.run(words, cwd=folder.root, check=False, stdout=STANDARD_ERROR)  # noqa: S603  # our own
    if done.returncode:
        raise UserError(f"{program} ended with an error: see what it says above")


def _tree() -> Path:
    """The tree that this library is run from."""
    return Path(str(files("fedcohort"))).resolve().parents[1]
