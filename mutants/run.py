"""``python -m mutants.run`` (``make mutants``): plants one mistake after the other in a copy of the library
and runs the tests that should notice it. A mistake that none of them notices has survived.

The list is in the TOML files beside this one, one for each area. An entry says what the mistake is, in which
``file`` below src/fedcohort it replaces what, and which ``tests`` below tests/ should fail; ``equivalent``
says why no test can, ``reason`` why none does so far. The library itself is never changed.
"""

import argparse
import compileall
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import cache_from_source
from pathlib import Path

HOME = Path(__file__).parent
ROOT = HOME.parent
PACKAGE = "fedcohort"
ENOUGH = 0.95  # of the mistakes that can be noticed
PATIENCE, SLOWER = 30.0, 5.0  # seconds, and times as long as without a mistake, after which tests hang
ELSEWHERE = 99  # the exit code of tests that saw another copy of the library
ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
OUTCOMES = ("killed", "survived", "equivalent", "not equivalent")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "torch", "sklearn.cluster"])  # all tests need them


@dataclass(frozen=True)
class Mutant:
    """One mistake."""

    area: str
    what: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    equivalent: str = ""
    reason: str = ""

    def plant(self, src: Path) -> None:
        """Makes the mistake in this copy of the sources."""
        path = src / PACKAGE / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise SystemExit(f"{self.area}: what '{self.what}' replaces is not once in {self.file}")
        path.write_text(text.replace(self.find, self.replace), encoding="utf-8")
        # Bytecode is told apart by size and second, which may be the same.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def load(home: Path = HOME) -> list[Mutant]:
    """The list, area by area."""
    found = []
    for path in sorted(home.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            found.append(Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])}))
    return found


@contextmanager
def copy_of(src: Path) -> Iterator[Path]:
    """Where mistakes can be made."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        yield Path(shutil.copytree(src, Path(place) / "src"))


def passing(src: Path, root: Path, tests: Sequence[str], limit: float | None = None) -> float | None:
    """How many seconds the library in ``src`` takes to pass these tests; None if it does not by then."""
    began, child = time.monotonic(), PROCESSES.Process(target=_test, args=(src, root, tests))
    child.start()
    child.join(limit)
    if child.exitcode is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
    if child.exitcode == ELSEWHERE:
        raise SystemExit("the tests saw another copy of the library: nothing was tried")
    return time.monotonic() - began if child.exitcode == 0 else None


def _test(src: Path, root: Path, tests: Sequence[str]) -> None:
    os.setsid()  # what tests start ends with them
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    os.chdir(root)
    os.environ |= {"PYTHONPATH": f"{src}{os.pathsep}{root}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.environ |= ONE_CORE | {"PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode, sys.argv = True, ["pytest"]
    sys.path[:0] = [str(src), str(root)]
    import pytest

    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in tests)])
    seen = getattr(sys.modules.get(PACKAGE), "__file__", None) or str(src)
    os._exit(int(code) if Path(seen).is_relative_to(src) else ELSEWHERE)


def attempt(mutant: Mutant, pristine: Path, root: Path, limit: float) -> str:
    """What became of it."""
    with copy_of(pristine) as src:
        mutant.plant(src)
        survived = passing(src, root, mutant.tests, limit) is not None
    if mutant.equivalent:
        return "equivalent" if survived else "not equivalent"
    return "survived" if survived else "killed"


def _file(test: str) -> str:
    return test.partition("::")[0]


def hunt(mutants: Sequence[Mutant], workers: int, root: Path = ROOT) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and what became of it, in the order of the list. First all tests must fail where nothing
    can be imported, and pass as things are; a mistake that makes them much slower than that hangs them."""
    files: dict[str, list[str]] = {}
    for name in sorted({name for mutant in mutants for name in mutant.tests}):
        files.setdefault(_file(name), []).append(name)
    with copy_of(root / "src") as pristine, copy_of(root / "src") as bad, ThreadPoolExecutor(workers) as pool:
        compileall.compile_dir(pristine, quiet=2)
        (bad / PACKAGE / "__init__.py").write_text("raise ImportError", encoding="utf-8")
        if any(passing(bad, root, own) is not None for own in list(files.values())[:1]):
            raise SystemExit("tests pass where nothing can be imported: nothing was tried")
        took = dict(
            zip(files, pool.map(lambda file: passing(pristine, root, files[file]), files), strict=True)
        )
        if failing := [file for file, seconds in took.items() if seconds is None]:
            raise SystemExit(f"tests fail without any mistake: {', '.join(failing)}")
        usual = [sum(took[file] or 0 for file in set(map(_file, mutant.tests))) for mutant in mutants]
        limits = [PATIENCE + SLOWER * seconds for seconds in usual]
        tried = pool.map(lambda mutant, limit: attempt(mutant, pristine, root, limit), mutants, limits)
        yield from zip(mutants, tried, strict=True)


def page(found: Sequence[tuple[Mutant, str]], words: str) -> str:
    """What RESULTS.md says."""
    lines = ["# Mutants", "", words, "", f"| area | {' | '.join(OUTCOMES[:3])} |", "|---|---|---|---|"]
    for area in [*dict.fromkeys(mutant.area for mutant, _ in found), ""]:
        count = Counter(outcome for mutant, outcome in found if area in (mutant.area, ""))
        lines.append(f"| {area or 'all'} | {' | '.join(str(count[each]) for each in OUTCOMES[:3])} |")
    for outcome in OUTCOMES[1:]:
        some = [mutant for mutant, became in found if became == outcome]
        lines += ["", f"## {outcome.capitalize()}", ""] if some else []
        lines += [f"- `{m.file}`: {m.what}: {m.equivalent or m.reason or 'no test yet'}." for m in some]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants.run", description=__doc__)
    parser.add_argument("--only", default="", help="those whose area, file or words hold this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    options = parser.parse_args(arguments)
    os.environ |= ONE_CORE
    began, chosen = time.monotonic(), [m for m in load() if options.only in f"{m.area} {m.file} {m.what}"]
    found = []
    for number, (mutant, outcome) in enumerate(hunt(chosen, options.workers), 1):
        found.append((mutant, outcome))
        print(f"{number:4} of {len(chosen)}  {outcome:10}  {mutant.file}: {mutant.what}", flush=True)
    count = Counter(outcome for _, outcome in found)
    real = count["killed"] + count["survived"]
    words = (
        f"`make mutants`, {datetime.now(UTC).date()}, {(time.monotonic() - began) / 60:.0f} minutes with "
        f"{options.workers} workers: of {len(found)} mistakes tests notice {count['killed']} "
        f"({count['killed'] / max(1, real):.1%} of those that can be) and miss {count['survived']}; no test "
        f"could notice the other {count['equivalent']}."
    )
    print(words.replace("`", ""))
    if not options.only:
        (HOME / "RESULTS.md").write_text(page(found, words), encoding="utf-8")
    return int(count["killed"] < ENOUGH * real or count["not equivalent"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
