"""Clients that come after training: which group of a finished run each should join, and how far it is.

Label counts are compared with each group's, by the rule of the run's own method where it has one (the hook
``place``) and by Hellinger distance otherwise; or each group's model is tried on the newcomer's data and the
lowest mean loss decides, which needs no labels counted at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedcohort.core.roles import Grouping
from fedcohort.core.roles.optional import PlacesNewcomers
from fedcohort.diagnosis.read import Counts
from fedcohort.methods.one import One
from fedcohort.runs.stored import FinishedRun
from fedcohort.stats.label_distances import Array, hellinger_to_pool, psi
from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest

NOT_EXECUTED = "How this run formed its groups is code of its own, which is not executed to look at it."
ROUNDING = 1e-9  # a copy of a member is not farther than that member


class Distances(NamedTuple):
    """How far clients are from groups: rows are clients, columns are ``groups``."""

    rule: str
    groups: list[int]
    value: Array  # by the rule
    hellinger: Array
    psi: Array
    farthest: Array  # [groups]: Hellinger distance of the farthest member


def distances(
    grouping: Grouping, group: NDArray[np.int64], counts: NDArray[Any], clients: NDArray[Any]
) -> Distances:
    """From label counts of ``clients`` to the groups of members who hold ``counts``; empty members say
    nothing."""
    held = counts.sum(axis=1) > 0
    group, members, rows = group[held], counts[held].astype(float), clients.astype(float)
    groups = np.unique(group).tolist()
    pools = [members[group == number] for number in groups]
    hellinger, index = (
        np.stack([measure(rows, reference=pool) for pool in pools], 1) for measure in (hellinger_to_pool, psi)
    )
    tensors = torch.from_numpy(group), torch.from_numpy(members)
    own = None
    if isinstance(grouping, PlacesNewcomers):
        own = grouping.place(*tensors, torch.from_numpy(rows))
    if own is None:
        rule, value = "Hellinger distance of label distributions", hellinger
    else:
        rule, value = f"the distance by which {grouping.name} groups", own.numpy()
    farthest = np.array([hellinger_to_pool(pool, reference=pool).max() for pool in pools])
    return Distances(rule, groups, value, hellinger, index, farthest)


@dataclass(frozen=True, eq=False)
class Joining:
    """Where newcomers belong; ``value`` is the distance, or the loss, that decided."""

    rule: str
    groups: list[int]
    members: list[int]  # clients of each group
    clients: list[str]
    value: Array  # [clients, groups]
    note: str = ""
    hellinger: Array | None = None  # unknown when losses decide
    psi: Array | None = None
    farthest: Array | None = None

    @property
    def group(self) -> list[int]:
        """The nearest group of each newcomer."""
        return [self.groups[column] for column in self.value.argmin(axis=1).tolist()]

    @property
    def far(self) -> list[bool]:
        """Whether a newcomer's labels are farther from every group than those of all its members."""
        if self.hellinger is None or self.farthest is None:
            return [False] * len(self.clients)
        return [bool((row > self.farthest + ROUNDING).all()) for row in self.hellinger]

    @property
    def nearer(self) -> dict[str, int]:
        """Of the newcomers whose labels are nearer to another group than to theirs: that group."""
        if self.hellinger is None:
            return {}
        by_labels = [self.groups[column] for column in self.hellinger.argmin(axis=1).tolist()]
        chosen = zip(self.clients, self.group, by_labels, strict=True)
        return {client: other for client, group, other in chosen if group != other}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        by_labels = self.hellinger is not None
        known = {"value": self.value, "hellinger": self.hellinger, "psi": self.psi}
        return {
            "rule": self.rule,
            "note": self.note,
            "groups": [
                {
                    "group": number,
                    "members": members,
                    "farthest_member": None if self.farthest is None else float(self.farthest[column]),
                }
                for column, (number, members) in enumerate(zip(self.groups, self.members, strict=True))
            ],
            "clients": [
                {
                    "client": name,
                    "group": self.group[row],
                    "far": self.far[row],
                    "nearest_by_labels": self.nearer.get(name, self.group[row]) if by_labels else None,
                    **{key: table[row].tolist() for key, table in known.items() if table is not None},
                }
                for row, name in enumerate(self.clients)
            ],
        }


def join_by_counts(run: FinishedRun, newcomers: Counts) -> Joining:
    """The nearest group by label counts."""
    _refuse_alone(run)
    counts, classes = run.counts()
    rows = aligned(newcomers, classes)
    empty = [name for name, size in zip(newcomers.client_names, rows.sum(1), strict=True) if not size]
    if empty:
        raise UserError(f"client '{empty[0]}' has no samples, so nothing tells its group: remove it")
    about, group = run.about, np.array(list(run.group.values()))
    found = distances(run.grouping or One(), group, counts, rows)
    members = [int((group == number).sum()) for number in found.groups]
    note = ""
    if about.personal:
        note = "Every client of this run has its own model, so a newcomer needs to train one too."
    elif len(found.groups) == 1:
        note = "One model serves all clients of this run, so newcomers can only join it."
    elif run.grouping is None:
        note = NOT_EXECUTED
    elif not about.groups_by_labels:
        note = (
            f"{about.grouping} did not group by labels, so they are a makeshift here: "
            "--losses asks the groups' models themselves."
        )
    shown = found.hellinger, found.psi, found.farthest
    return Joining(found.rule, found.groups, members, newcomers.client_names, found.value, note, *shown)


def join_by_losses(run: FinishedRun, losses: Array, clients: list[str], titles: Sequence[str]) -> Joining:
    """The group whose model has the lowest mean loss on the newcomer's data, as IFCA chooses."""
    _refuse_alone(run)
    wanted = [str(number) for number in range(run.models)]
    column = {title.lower().removeprefix("group").strip(" _-"): place for place, title in enumerate(titles)}
    missing = [number for number in wanted if number not in column]
    if missing or len(titles) != len(wanted):
        raise UserError(
            f"the losses have columns {', '.join(titles)}: "
            f"give one for each model of the run, {', '.join(wanted)}"
        )
    members = [list(run.group.values()).count(number) for number in range(run.models)]
    value = losses[:, [column[number] for number in wanted]]
    return Joining("lowest mean loss of the groups' models", list(range(run.models)), members, clients, value)


def _refuse_alone(run: FinishedRun) -> None:
    """Raises UserError if there is nothing to join."""
    if run.about.silent:
        raise UserError(
            f"every client of {run.directory} has its own model, so a newcomer needs one too: "
            "let it train alone, or name a run whose clients share models"
        )


def aligned(counts: Counts, classes: Sequence[str]) -> NDArray[Any]:
    """The counts with the run's classes as columns; a class that is not given has none."""
    place: Mapping[str, int] = {name: column for column, name in enumerate(classes)}
    unknown = [name for name in counts.class_names if name not in place]
    if unknown:
        raise UserError(f"the run has no class '{unknown[0]}'{nearest(unknown[0], classes)}")
    table = np.zeros((len(counts.matrix), len(classes)))
    table[:, [place[name] for name in counts.class_names]] = counts.matrix
    return table
