"""docs/ranks.md: all methods side by side on the federations of the grid, ranked, and skew by skew.

On each federation methods are ranked by accuracy. Friedman's test says whether ranks differ at all; two mean
ranks that are farther apart than Nemenyi's critical difference do, at 5 %, all pairs considered.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from fedcohort.core.method import Method
from fedcohort.runs.advice.evidence import Measured
from fedcohort.stats.label_distances import Array
from fedcohort.util.expression import parse_one
from scripts.chart import label, picture
from studies.dealing import markdown

LEVEL = 0.05
NUMBER = r"[0-9.]+"
SITUATIONS = {  # skews that call for the same
    "a class or two each": ("C 1", "C 2", "S 0.0"),
    "strongly skewed": ("Dir 0.1", "Dir by client 0.5", "C 3"),
    "skewed": ("Dir 0.3", "Dir by client 2.0", "S 0.3"),
    "a little skewed": ("Dir 1.0", "Dir by client 6.0"),
    "all alike": ("Dir 100.0",),
    "as the data have them (HAR)": ("natural",),
}
BEST = 3  # methods that are named
FEWEST = 3  # methods and federations that Friedman's test can say anything of
WIDE, LEFT, ROW = 760, 210, 18  # of the picture, in pixels
BAR, POINT = "#9db8d2", "#1f4e79"
SHORT = {
    "dirichlet": "Dir",
    "dirichlet_clientwise": "Dir by client",
    "classes_per_client": "C",
    "similarity": "S",
}


class Ranked(NamedTuple):
    """Methods, the best first."""

    methods: tuple[str, ...]
    mean: Array  # rank
    difference: float  # of two mean ranks that is more than chance
    p: float  # of ranks like these if all methods were equally good
    federations: int


def ranked(evidence: Measured, methods: Sequence[str]) -> Ranked | None:
    """On the federations that none of them refused; None where these are too few."""
    gains = np.stack([evidence.gain[method] for method in methods], axis=1)
    gains = gains[~np.isnan(gains).any(axis=1)]
    count, of = gains.shape
    if min(count, of) < FEWEST:
        return None
    mean = rankdata(-gains, axis=1).mean(axis=0)
    order = np.argsort(mean, kind="stable")
    spread = studentized_range.ppf(1 - LEVEL, of, np.inf) / 2**0.5
    critical = float(spread * (of * (of + 1) / (6 * count)) ** 0.5)
    p = float(friedmanchisquare(*gains.T).pvalue)
    return Ranked(tuple(methods[place] for place in order), mean[order], critical, p, count)


def one_model(methods: Sequence[str]) -> list[str]:
    return [method for method in methods if Method.parse(method).one_model]


def diagram(found: Ranked, title: str) -> str:
    """A critical-difference diagram, a line a method: whose bars do not overlap differ surely."""
    last = len(found.methods)

    def at(rank: float) -> float:
        return LEFT + (rank - 1) / (last - 1) * (WIDE - LEFT - 40)

    tall, half = ROW * (last + 4), found.difference / 2
    body = [label(8, 16, title, "start", "bold")]
    for rank in range(1, last + 1, max(1, last // 8)):
        body.append(label(at(rank), 2.2 * ROW, str(rank), "middle"))
        body.append(f'<path d="M{at(rank):.1f},{2.5 * ROW} V{tall - ROW}" stroke="#eee"/>')
    for place, (method, mean) in enumerate(zip(found.methods, found.mean.tolist(), strict=True)):
        y, low, high = ROW * (place + 3.2), at(max(1, mean - half)), at(min(last, mean + half))
        body.append(label(LEFT - 12, y + 4, method, "end"))
        body.append(f'<path d="M{low:.1f},{y:.1f} H{high:.1f}" stroke="{BAR}" stroke-width="5"/>')
        body.append(f'<circle cx="{at(mean):.1f}" cy="{y:.1f}" r="4" fill="{POINT}"/>')
    return picture(WIDE, tall, body)


def words(found: Ranked) -> str:
    """What the diagram shows, for those who do not look at it."""
    near = found.mean - found.mean[0] <= found.difference
    tied = [method for method, close in zip(found.methods, near, strict=True) if close]
    behind = f"not surely better than {_listed(tied[1:])}" if tied[1:] else "surely better than all others"
    chance = "all of it may be chance" if found.p >= LEVEL else "ranks differ"
    return (
        f"Of {len(found.methods)} methods on {found.federations} federations `{found.methods[0]}` has the "
        f"best mean rank, {found.mean[0]:.1f}: it is {behind}. The critical difference is "
        f"{found.difference:.1f}; {chance} (Friedman's test, p {_small(found.p)})."
    )


def _listed(methods: Sequence[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods)


def _small(p: float) -> str:
    return f"= {p:.2g}" if p >= 1e-4 else "below 0.0001"


def skew_of(names: Mapping[str, str]) -> str:
    """``Dir 0.1``, as a heading."""
    name, settings = parse_one(names["skew"], "skew")
    level = next((value for key, value in settings.items() if key != "min_size"), "")
    return f"{SHORT.get(name, name)} {level}".strip()


def size_of(names: Mapping[str, str]) -> str:
    clients = f"K = {names['clients dealt']}" if names["clients dealt"] != "0" else "K as found"
    return f"{clients}, {100 * float(names['cohort asked']):g}%"


def by(evidence: Measured, kind: Callable[[Mapping[str, str]], str], methods: Sequence[str]) -> str:
    """Mean gains over FedAvg, in points, of each method on the federations of each kind."""
    kinds = np.array([kind(names) for names in evidence.names])
    columns = sorted(set(kinds.tolist()), key=_in_order)
    best = {name: _best(evidence, methods, kinds == name) for name in columns}

    def cells(method: str) -> Iterator[str]:
        yield f"`{method}`"
        for name in columns:
            gain = _mean(evidence.gain[method][kinds == name])
            yield f"**{gain:+.1f}**" if gain == best[name] else f"{gain:+.1f}" if gain == gain else ""

    head = [f"{name} ({int((kinds == name).sum())})" for name in columns]
    accuracy = [
        "*FedAvg's accuracy*",
        *(f"{_mean(evidence.accuracy[kinds == name]):.1f}" for name in columns),
    ]
    return markdown(["method", *head], [accuracy, *(list(cells(method)) for method in methods)])


def _best(evidence: Measured, methods: Sequence[str], chosen: Array) -> float:
    return float(np.nanmax([_mean(evidence.gain[method][chosen]) for method in methods]))


def choices(evidence: Measured, methods: Sequence[str], single: Sequence[str]) -> str:
    """Of each kind of federation: whose mean gains are largest, with one model and with several."""
    skews = np.array([skew_of(names) for names in evidence.names])
    sizes = np.array([size_of(names) for names in evidence.names])
    several = [method for method in methods if method not in single]

    def best(among: Sequence[str], chosen: Array) -> str:
        gains = {method: _mean(evidence.gain[method][chosen]) for method in among}
        known = sorted(
            (method for method in gains if gains[method] == gains[method]), key=lambda m: -gains[m]
        )
        return ", ".join(f"`{method}` {gains[method]:+.1f}" for method in known[:BEST])

    chosen = {about: np.isin(skews, kinds) for about, kinds in SITUATIONS.items()}
    chosen |= {
        f"{size} of the clients a round": sizes == size
        for size in sorted({*sizes.tolist()}, key=_in_order)
        if (sizes == size).sum() > 1
    }
    rows = [
        [
            about,
            str(int(own.sum())),
            f"{_mean(evidence.accuracy[own]):.1f}",
            best(single, own),
            best(several, own),
        ]
        for about, own in chosen.items()
        if own.any()
    ]
    return markdown(["clients", "federations", "FedAvg", "one model for all", "several models"], rows)


def _mean(values: Array) -> float:
    """In points, of what is known."""
    known = values[~np.isnan(values)]
    return round(100 * float(known.mean()), 1) if len(known) else float("nan")


def _in_order(name: str) -> tuple[str, list[float]]:
    """By its words, then by its numbers."""
    return re.sub(NUMBER, "", name), [float(number) for number in re.findall(NUMBER, name)]


def ranks_page(evidence: Measured) -> dict[str, str]:
    """The page and its pictures by their names; nothing while there is too little to rank."""
    exact = evidence.where(np.isnan(evidence.epsilon))
    both = {"any": list(exact.gain), "one_model": one_model(list(exact.gain))}
    found = {kind: ranked(exact, methods) for kind, methods in both.items()}
    if found["any"] is None or found["one_model"] is None:
        return {}
    every, single = found["any"], found["one_model"]
    drawn = {
        "ranks-any.svg": diagram(every, "Mean ranks of all methods"),
        "ranks-one-model.svg": diagram(single, "Mean ranks of methods with one model for all"),
    }
    text = PAGE.format(
        choices=choices(exact, every.methods, single.methods),
        any=words(every),
        one_model=words(single),
        skews=by(exact, skew_of, every.methods),
        sizes=by(exact, size_of, every.methods),
    )
    return {"ranks.md": text, **drawn}


PAGE = """\
<!-- Written by python -m studies.advice_grid from studies/advice_runs.csv. -->

# All methods, side by side

The five papers compare with different methods, on different skews, each tuned by its authors. Here all
methods are trained on the same federations, a random share of a grid of data, skews, numbers of clients and
cohorts, with the same budget: four learning rates were tried for each method and data set, on held-out rows
of one federation, and nothing else was tuned: other settings are the defaults, but for those named.
[How the runs were made](../studies/advice_grid.md): small networks, 2,000 training samples and 40 rounds, a
scaled test that is smaller than the *small* scale of [the papers' tables](replications.md), and mostly one
seed a federation. FedProx has mu = 0.1, since with its default, 0.01, it is FedAvg to three digits in
[FedLECC's Table II](replications-fedlecc.md). Accuracy is that of all test samples, each answered by the
model that serves its client: methods with several models profit from knowing whose sample it is.

## What to use when

Three methods with the largest mean gains over FedAvg, in points of accuracy, on federations of each kind (a
federation is in a row by its skew, and in another by its size):

{choices}

- **One model, or several?** A model of its own, or of its group, serves a client well where clients have few
  classes, and need not know any class that they lack; where clients are alike, it loses what the others know.
- **The best of so many methods** on few federations owes something to chance: differences of a point or two
  say little, and [the ranks](#ranks) say which methods differ surely.
- **FedGWC** hardly parts anybody in 40 rounds: it needs [thousands](../studies/fedgwc_groups.md).

What suits your own clients, `fedcohort advise` says by the [federations nearest to yours](advice.md).

## Ranks

{any} A rank counts how many methods are better on
a federation, and a mean gain by how much: a method that is far ahead where clients have few classes, and far
behind where they are alike, has a larger gain than rank.

![Mean ranks of all methods with their critical difference](ranks-any.svg)

Among methods that give everybody the same model:

{one_model}

![Mean ranks of methods with one model, with their critical difference](ranks-one-model.svg)

On each federation the best method has rank 1; a bar is as long as the critical difference (Nemenyi, 5 %,
all pairs), so methods whose bars do not overlap differ surely. Federations that were dealt from the same
data are not independent, so *surely* says too much.

## By skew

Mean gain over FedAvg in points of accuracy; the best of a column is bold. In brackets: federations. *Dir*:
Dirichlet's alpha over clients' shares of a class, *Dir by client*: over a client's classes, *C*: classes of
a client, *S*: share of clients' samples that are dealt at random, *natural*: clients as the data have them.

{skews}

## By number of clients and share that trains a round

{sizes}
"""
