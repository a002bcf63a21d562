"""What our runs say of a paper's claim: the one place where the words are defined.

A claim is a difference: a method's number minus another's, or minus a number. Ours are paired, seed by seed,
with Student's 95 % interval of their mean; signs are turned so that the paper's difference is positive.

- open: fewer than 3 seeds;
- reversed: the whole interval is below 0;
- undecided: both 0 and the paper's difference are in the interval, so these seeds cannot tell;
- not reproduced: 0 is in the interval, and the paper's difference is above it;
- weaker: the whole interval is above 0, but the mean is less than half of the paper's difference;
- confirmed: it is above 0, and the mean at least half of the paper's.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fedcohort.runs.replication.folders import UNITS, Cell, Claim, Folder, measured
from fedcohort.runs.replication.results import ResultRow
from fedcohort.stats.paired import SEEDS, Paired, paired
from fedcohort.util.errors import UserError

Verdict = Literal["open", "reversed", "undecided", "not reproduced", "weaker", "confirmed"]
HALF = 0.5
DIGITS = 12


class Judged(NamedTuple):
    """A claim, and what became of it."""

    claim: Claim
    paper: float
    gaps: list[float]  # ours, one for each seed
    ours: Paired | None  # None: too few seeds
    verdict: Verdict
    unit: str


def verdict(paper: float, ours: Paired | None) -> Verdict:
    if ours is None:
        return "open"
    sign = math.copysign(1, paper)
    low, high = sorted((sign * ours.low, sign * ours.high))
    if high < 0:
        return "reversed"
    if low <= 0:
        return "not reproduced" if high < abs(paper) else "undecided"
    return "weaker" if sign * ours.mean < HALF * abs(paper) else "confirmed"


def judge(folder: Folder, results: Sequence[ResultRow]) -> list[Judged]:
    """Every claim of a table, by results of one scale."""
    return [_judged(folder, claim, results) for claim in folder.claims]


def by_seed(results: Sequence[ResultRow], cell: Cell, metric: str) -> dict[int, float]:
    """What is known of a cell."""
    told = {result.seed: measured(metric, result.values) for result in results if result.cell == cell}
    return {seed: value for seed, value in told.items() if not math.isnan(value)}


def interval(ours: Sequence[float], theirs: Sequence[float]) -> Paired | None:
    return paired(ours, theirs) if len(ours) >= SEEDS else None


def _judged(folder: Folder, claim: Claim, results: Sequence[ResultRow]) -> Judged:
    sides = [side for side in (claim.method, claim.against) if isinstance(side, str)]
    about = [each for each in folder.published if each.metric == claim.metric]
    known = [[each for each in about if each.cell == (claim.conditions, side)] for side in sides]
    unit = known[0][0].unit if known[0] else ""
    paper = claim.paper
    if paper is None:
        if not all(known):
            raise UserError(f"{folder.name}: '{claim.about}': the paper's numbers are not in expected.csv")
        own, *others = (each[0].value for each in known)
        other = others[0] if others else float(claim.against)
        paper = own / other - 1 if claim.relative else own - other
    if math.isnan(paper):
        raise UserError(f"{folder.name}: '{claim.about}': expected.csv has no number of the paper's for it")
    if not paper:
        raise UserError(f"{folder.name}: '{claim.about}': the paper's difference is 0, which is no claim")
    mine = by_seed(results, Cell(claim.conditions, claim.method), claim.metric)
    if isinstance(claim.against, str):
        cell = Cell(claim.conditions, claim.method)
        read = {(each.seed, each.about.get("data")) for each in results if each.cell == cell}
        alike = [each for each in results if (each.seed, each.about.get("data")) in read]
        theirs = by_seed(alike, Cell(claim.conditions, claim.against), claim.metric)
    else:
        theirs = dict.fromkeys(mine, claim.against / UNITS[unit])
    pairs = [(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]
    if claim.relative:
        gaps = [one / other - 1 for one, other in pairs if other]
    else:
        gaps = [(one - other) * UNITS[unit] for one, other in pairs]
    gaps = [round(gap, DIGITS) for gap in gaps if math.isfinite(gap)]  # roundings are no difference
    ours = interval(gaps, [0.0] * len(gaps))
    return Judged(claim, paper, gaps, ours, verdict(paper, ours), "" if claim.relative else unit)
