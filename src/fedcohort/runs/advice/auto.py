"""``method = "auto"``: the method that is advised for an experiment's federation, chosen before it runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcohort.core.method import Method
from fedcohort.core.task import Task
from fedcohort.runs.advice import Advice, advise
from fedcohort.runs.method_entries import listed, read_methods
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.settings import build

AUTO = re.compile(r"(^|\+)\s*auto\s*([(+]|$)")  # among the parts of a method's text
KEPT = ("name", "label", "local")  # of an entry that is a table; the rest are wishes


@dataclass(frozen=True)
class Wish:
    """What ``auto(...)`` may ask for."""

    one_model: bool = False  # the same model is to serve every client


def wish_of(entry: Any) -> Wish | None:
    """What an entry of ``method`` asks for if it is ``auto``; None if it is anything else."""
    text = entry.get("name") if isinstance(entry, Mapping) else entry
    if not isinstance(text, str) or not AUTO.search(text):
        return None
    (_, values), *others = parse(text)
    if others:
        raise UserError(f"method: '{text}' is several parts, but auto chooses all of them: write it alone")
    own = {key: value for key, value in entry.items() if key not in KEPT} if text is not entry else {}
    return build(Wish, {**values, **own}, "method.auto")


def asks_for_auto(table: Mapping[str, Any]) -> bool:
    """Whether an experiment file does, which may be wrong in other ways."""
    entries = table.get("method")
    known = isinstance(entries, str | list | tuple)
    return known and any(wish_of(entry) is not None for entry in listed(entries))


def refuse_auto(table: Mapping[str, Any]) -> None:
    """Where clients are elsewhere, and tell their label counts only once the method is known."""
    if asks_for_auto(table):
        raise UserError(
            "method = 'auto' looks at the label counts of clients that are here, and these are elsewhere: "
            "ask 'fedcohort advise' about a table of their counts, and name the method that it says"
        )


def advice_for(task: Task, wish: Wish) -> Advice:
    """What is advised for this task, from as much as its clients reveal."""
    counts = task.profile(Method.of()).known_counts("advice")
    epsilon = task.privacy.epsilon if task.privacy.counts == "noised" else None
    return advise(counts, task.cohort_size, one_model=wish.one_model, epsilon=epsilon)


def settle(entries: Sequence[Any], task: Task) -> tuple[list[Any], tuple[str, ...], list[str]]:
    """The entries with a method in place of each ``auto``, unless it is listed anyway; where advice leaves
    the choice to tuning, with all that are to be tuned, and their names; and notes on that."""
    others = [entry for entry in entries if wish_of(entry) is None]
    named = {str(method) for method in read_methods(others)} if others else set[str]()
    settled, undecided, notes = list[Any](), list[str](), list[str]()
    for entry in entries:
        wish = wish_of(entry)
        if wish is None:
            settled.append(entry)
            continue
        advice = advice_for(task, wish)
        new = [method for method in advice.choices if method not in named]
        own = {key: entry[key] for key in KEPT if key in entry} if isinstance(entry, Mapping) else {}
        if len(advice.choices) > 1:
            own.pop("label", None)
            undecided += new
        settled += [{**own, "name": method} for method in new]
        named |= {*new}
        notes.append(f"auto is {advice.words}" if len(advice.choices) == 1 else several(advice))
    return settled, tuple(undecided), notes


def several(advice: Advice) -> str:
    """Why it is not one method."""
    names = ", ".join(advice.choices)
    return f"auto is one of {names}: label counts do not tell which is best here, tuning does"
