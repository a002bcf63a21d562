"""What a run directory tells about the method of its run, so that who looks later needs none of its code.

``about.json`` is written when a run starts. Of a directory without one, what can be told follows from the
text of its settings, for methods that come with fedcohort; nothing that it names is ever imported here.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from fedcohort.core.method import METHODS, Method, make
from fedcohort.core.profile import Privacy, Profile
from fedcohort.core.roles import Grouping
from fedcohort.core.task import Task
from fedcohort.runs.client_messages import REFERENCE, Exchanged, leaving, reference
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.files import damaged, fields, read_json
from fedcohort.util.settings import between, build
from fedcohort.util.user_code import comes_with_fedcohort

ABOUT = "about.json"
DELETE = "delete it, and what the settings tell is shown"
MODEST = 1000  # no setting of a method is larger if a look is to compute with it
ANSWER = {"message": str, "when": str, "what": str, "bytes": Annotated[int, between(0, 2.0**53)]}


@dataclass(frozen=True)
class About:
    """A method as reports speak of it; the defaults are for one whose code is not at hand."""

    pooled: bool = False
    silent: bool = False
    personal: bool = False  # every client has its own model
    elsewhere: bool = False  # clients were on other machines
    uses: tuple[str, ...] = ()
    grouping: str = ""  # the name of that part; none: nothing is known
    groups_by_labels: bool = False
    groups_from_start: bool = False  # clients choose among models that are there before the first round
    privacy: Privacy = field(default_factory=Privacy)  # as the method tightens it
    answers: tuple[Exchanged, ...] = ()
    model: str = ""  # with which the answers have these bytes

    @classmethod
    def of(cls, method: Method, task: Task, profile: Profile, elsewhere: bool = False) -> "About":
        """Of a run that begins."""
        return cls._of(method, task.privacy, *_answers(method, task, profile), elsewhere)

    @classmethod
    def rebuilt(cls, text: str, privacy: Privacy, elsewhere: bool) -> "About":
        """From the settings of a directory that says no more, with the documentation's model."""
        method = built_in(text)
        if method is None:
            return cls(privacy=privacy, elsewhere=elsewhere)
        values = [value for _, own in parse(text) for value in own.values()]
        modest = all(abs(value) <= MODEST for value in values if isinstance(value, int | float))
        answers = _listed(lambda: reference(method)[0]) if modest and not method.pooled else ()
        return cls._of(method, privacy, answers, REFERENCE, elsewhere)

    @classmethod
    def _of(
        cls, method: Method, privacy: Privacy, answers: tuple[Exchanged, ...], model: str, elsewhere: bool
    ) -> "About":
        grouping = method.grouping
        return cls(
            method.pooled,
            method.silent,
            method.objective.personal,
            elsewhere,
            tuple(sorted(method.uses)),
            grouping.name,
            "counts" in grouping.uses(),
            grouping.has_own("init_models"),
            method.privacy(privacy),
            answers,
            model,
        )

    def text(self) -> str:
        """As it is kept."""
        answers = [answer._asdict() for answer in self.answers]
        return json.dumps({**dataclasses.asdict(self), "answers": answers}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> "About":
        """The inverse of :meth:`text`."""
        table = read_json(path, DELETE)
        kept = fields(table, {"privacy": dict, "answers": tuple[dict, ...]}, path, DELETE)
        answers = tuple(Exchanged(**fields(answer, ANSWER, path, DELETE)) for answer in kept["answers"])
        try:
            privacy = build(Privacy, kept["privacy"], "privacy")
            return build(cls, {**table, "privacy": privacy, "answers": answers}, "")
        except (UserError, OverflowError) as error:
            raise damaged(path, error, DELETE) from None

    @property
    def known(self) -> bool:
        return bool(self.grouping)

    @property
    def asks_for_tables(self) -> bool:
        """Whether clients are asked for label counts, or for counts of something else."""
        return not {"counts", "summary"}.isdisjoint(self.uses)


def built_in(text: str) -> Method | None:
    """The method of this text, if all of it comes with fedcohort."""
    try:
        named = parse(text)
        if not all(comes_with_fedcohort(METHODS, name) for name, _ in named):
            return None
        return Method.of(*(part for name, values in named for part in make(name, values)))
    except (UserError, ValueError, RecursionError, MemoryError):  # no text of ours
        return None


def built_in_grouping(text: str, name: str) -> Grouping | None:
    """The grouping ``name`` among the parts of this text, if it comes with fedcohort; others may not."""
    try:
        named = [(part, values) for part, values in parse(text) if part == name]
        if not comes_with_fedcohort(METHODS, name):
            return None
        part = make(*named[0])[0] if named else METHODS.get(name)()
    except (UserError, ValueError, RecursionError, MemoryError):
        return None
    return part if isinstance(part, Grouping) else None


def _answers(method: Method, task: Task, profile: Profile) -> tuple[tuple[Exchanged, ...], str]:
    """What leaves a client with this run's model; the one that holds all data sends nothing."""
    if method.pooled:
        return (), ""
    steps = task.local.steps_for(int(np.median(profile.size[profile.eligible])))
    answers = _listed(lambda: leaving(method, profile, task.privacy, steps, task.cohort_size))
    return answers, f"this run's model, {steps} local step{'s' * (steps > 1)}"


def _listed(ask: Callable[[], Sequence[Exchanged]]) -> tuple[Exchanged, ...]:
    try:
        return tuple(ask())
    except Exception:  # somebody else's hooks or settings, called out of turn: anything may happen
        return ()
