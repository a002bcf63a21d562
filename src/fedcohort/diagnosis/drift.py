"""Whether clients' labels still look as they did: PSI of new against old counts, client by client.

The bands 0.1 and 0.25 are those by which credit scoring reads PSI. They presume large samples: two samples
of n and m from the same distribution of C classes give about (1/n + 1/m) times a chi-square variable with
C - 1 degrees of freedom, and a shift that this explains (at 5 %) is called chance, whatever its band. Counts
are smoothed by half a sample, so that a rare class that comes or goes is no catastrophe.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcohort.diagnosis.assign import NOT_EXECUTED, distances
from fedcohort.diagnosis.read import Counts
from fedcohort.methods.one import One
from fedcohort.runs.stored import FinishedRun
from fedcohort.stats.label_distances import Array, proportions, psi_terms
from fedcohort.util.errors import UserError
from fedcohort.util.words import some

Band = Literal["stable", "moderate", "major", "chance"]
MODERATE, MAJOR = 0.1, 0.25
LUCK = 0.05  # how often chance alone may exceed what is put down to chance


@dataclass(frozen=True)
class Moved:
    """A client that is now nearer to another group of a run."""

    group: int
    nearest: int
    distance: float  # to its own group, by the rule
    nearest_distance: float


@dataclass(frozen=True, eq=False)
class Drift:
    """The result of :func:`measure_drift`, for the clients that both tables hold."""

    clients: list[str]
    classes: list[str]
    old: Array  # K x C label counts
    new: Array
    terms: Array  # K x C: what each class adds to PSI
    chance: Array  # K: PSI that luck alone exceeds one time in twenty
    moved: dict[str, Moved]  # of the clients that should change group; empty without a run
    rule: str = ""  # by which groups were compared
    notes: tuple[str, ...] = ()

    @property
    def psi(self) -> Array:
        return self.terms.sum(axis=1)

    @property
    def by_luck(self) -> NDArray[np.bool_]:
        """Whether chance explains the shift."""
        return self.psi <= self.chance

    @property
    def bands(self) -> list[Band]:
        """How each shift reads; "chance" where it is not stable, but luck explains it."""
        read = zip(map(band, self.psi.tolist()), self.by_luck.tolist(), strict=True)
        return ["chance" if luck and name != "stable" else name for name, luck in read]

    @property
    def shift(self) -> Array:
        """Change of each class's share."""
        return proportions(self.new) - proportions(self.old)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "classes": self.classes,
            "rule": self.rule,
            "notes": list(self.notes),
            "clients": [
                {
                    "client": name,
                    "psi": float(self.psi[row]),
                    "band": self.bands[row],
                    "chance": float(self.chance[row]),
                    "by_luck": bool(self.by_luck[row]),
                    "shift": self.shift[row].tolist(),
                    "moved": vars(self.moved[name]) if name in self.moved else None,
                }
                for row, name in enumerate(self.clients)
            ],
        }


def band(psi: float) -> Band:
    """How credit scoring reads a PSI."""
    return "stable" if psi < MODERATE else "moderate" if psi < MAJOR else "major"


def measure_drift(old: Counts, new: Counts, run: FinishedRun | None = None) -> Drift:
    """Compares clients of the same name; with ``run``, also which of them should change their group."""
    names = [name for name in old.client_names if name in set(new.client_names)]
    if not names:
        raise UserError(
            f"no client is in both tables ({old.client_names[0]} ..., {new.client_names[0]} ...): "
            "give the same names, and their column with --client"
        )
    classes = [*old.class_names, *(name for name in new.class_names if name not in old.class_names)]
    before, after = _rows(old, names, classes), _rows(new, names, classes)
    for name, *sizes in zip(names, before.sum(1), after.sum(1), strict=True):
        if not all(sizes):
            raise UserError(f"client '{name}' has no samples in one of the tables: remove it from that one")
    pairs = zip(before, after, strict=True)
    terms = np.concatenate([psi_terms(b[None], "laplace", reference=a[None]) for a, b in pairs])
    result = Drift(names, classes, before, after, terms, chance(before, after), {}, "", _notes(old, new))
    return result if run is None else _regroup(result, run)


def chance(old: Array, new: Array) -> Array:
    """The PSI that two samples of these sizes from one distribution exceed one time in twenty."""
    from scipy.special import chdtri

    seen = ((old + new) > 0).sum(axis=1)
    return np.where(seen > 1, chdtri(np.maximum(seen - 1, 1), LUCK), 0) * (1 / old.sum(1) + 1 / new.sum(1))


def _regroup(drift: Drift, run: FinishedRun) -> Drift:
    """Who was nearest to its own group and, by more than luck, no longer is."""
    unknown = [name for name in drift.clients if name not in run.group]
    if unknown:
        raise UserError(f"client '{unknown[0]}' was not in the run {run.directory}: leave --run out, or it")
    group = np.array([run.group[name] for name in drift.clients])
    grouping = run.grouping or One()
    then, now = (distances(grouping, group, drift.old, rows) for rows in (drift.old, drift.new))
    moved, misfits = {}, 0
    for row, name in enumerate(drift.clients):
        own, best = then.groups.index(group[row]), int(now.value[row].argmin())
        if int(then.value[row].argmin()) != own:
            misfits += 1
        elif best != own and not drift.by_luck[row]:
            value = now.value[row]
            moved[name] = Moved(int(group[row]), now.groups[best], float(value[own]), float(value[best]))
    notes = [*drift.notes, *([] if run.grouping else [NOT_EXECUTED])]
    if misfits:
        notes.append(f"Nearer to another group before already, and so not judged: {misfits} of the clients.")
    parts = drift.clients, drift.classes, drift.old, drift.new, drift.terms, drift.chance
    return Drift(*parts, moved, now.rule, tuple(notes))


def _rows(counts: Counts, names: list[str], classes: list[str]) -> Array:
    place = {name: row for row, name in enumerate(counts.client_names)}
    table = np.zeros((len(names), len(classes)))
    columns = [classes.index(name) for name in counts.class_names]
    table[:, columns] = counts.matrix[[place[name] for name in names]]
    return table


def _notes(old: Counts, new: Counts) -> tuple[str, ...]:
    """What only one of the tables holds."""
    notes = []
    for what, a, b in (
        ("clients", old.client_names, new.client_names),
        ("classes", old.class_names, new.class_names),
    ):
        for where, only in (("old", sorted(set(a) - set(b))), ("new", sorted(set(b) - set(a)))):
            if only:
                notes.append(f"Only the {where} table has the {what} {some(only, 5)}.")
    return tuple(notes)
