"""Tries cases of one target and keeps the smallest that fails at each place."""

import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fedcohort.util.errors import UserError
from fuzz.draw import Draw, smaller
from fuzz.guard import CANARY, Hang, watched

TARGETS = ("toml", "tables", "files", "models", "run_dirs", "papers", "tunings", "messages")
MINIMISING = 20.0  # seconds for making a failing case smaller
LONGEST = 2000  # characters of a sentence


class Target(Protocol):
    """A module of this package: makes cases, and tries one in a directory of its own.

    A case is made of Python literals, so that a failure can be kept as text. ``try_case`` returns what came
    of it in a word; UserError is an answer too, anything else is a failure.
    """

    SHARE: int  # of a thousand cases
    SECONDS: float  # that one case may take

    def make(self, draw: Draw) -> Any: ...

    def try_case(self, case: Any, home: Path) -> str: ...


@dataclass
class Finding:
    """A case that failed, at a place in the library."""

    target: str
    place: str
    what: str
    case: Any
    times: int = 1


@dataclass
class Catch:
    """What a number of cases came to."""

    words: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, found: Finding) -> None:
        known = self.findings.setdefault(found.place, found)
        if known is not found:
            known.times += found.times
            if len(repr(found.case)) < len(repr(known.case)):
                known.case, known.what = found.case, found.what


def target(name: str) -> Target:
    return import_module(f"fuzz.{name}")  # type: ignore[return-value]


def attempt(name: str, case: Any, home: Path) -> tuple[str, Finding | None]:
    """One case in an empty directory: what came of it, and what was wrong."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / f"{CANARY}.py").write_text("")
    before, chosen = Path.cwd(), target(name)
    os.chdir(home)
    tempfile.tempdir = str(home)
    try:
        with watched(home, chosen.SECONDS):
            return chosen.try_case(case, home), None
    except UserError as error:
        if "\n" in str(error).strip() or len(str(error)) > LONGEST:
            return "long", Finding(name, f"{name}: a refusal of several lines", str(error)[:500], case)
        return "refused", None
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        what = "".join(traceback.format_exception(error))[-6000:]
        return "failed", Finding(name, place_of(error), what, case)
    finally:
        os.chdir(before)
        tempfile.tempdir = None


def place_of(error: BaseException) -> str:
    """The type of an error and the innermost line of the library it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fedcohort/" in frame.filename] or frames
    last = ours[-1]
    file = last.filename.rpartition("/fedcohort/")[2]
    where = f"{file}, in {last.name}" if isinstance(error, Hang) else f"{file}:{last.lineno}, in {last.name}"
    return f"{type(error).__name__} at {where}"


def hunt(
    name: str,
    cases: int,
    seed: int,
    home: Path,
    known: Collection[str] = (),
    before: Callable[[Any], None] = lambda case: None,
) -> Catch:
    """Tries ``cases`` cases, the same for the same seed; failures at places not ``known`` are minimised."""
    catch, make = Catch(), target(name).make
    for number in range(cases):
        draw = Draw(seed * 1_000_003 + number)
        case = make(draw)
        before(case)
        word, finding = attempt(name, case, home)
        catch.words[word] += 1
        if finding is not None:
            new = finding.place not in known and finding.place not in catch.findings
            catch.add(finding)
            if new and "Hang" not in finding.place:
                _minimise(finding, draw.made, home, before)
    return catch


def _minimise(finding: Finding, choices: list[int], home: Path, before: Callable[[Any], None]) -> None:
    """Replaces the finding's case by a smaller one that fails at the same place."""
    make, until = target(finding.target).make, time.monotonic() + MINIMISING

    def fails(fewer: list[int]) -> bool:
        if time.monotonic() > until:
            return False
        case = make(Draw(fewer))
        before(case)
        _, other = attempt(finding.target, case, home)
        if other is None or other.place != finding.place:
            return False
        finding.case, finding.what = other.case, other.what
        return True

    smaller(choices, fails)
