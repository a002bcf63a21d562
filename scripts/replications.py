"""docs/replications.md and its picture: what became of the papers' claims, by papers/*/*/results.csv.

``papers/PAPER/README.md`` says in words what we make of it. ``fedcohort replicate`` shows a table with all of
its numbers.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from fedcohort.cli.replication_tables import ComparedNumber, claim_cells, spread
from fedcohort.runs.replication.folders import RESULTS, Folder, folders
from fedcohort.runs.replication.results import ResultRow, read_results
from fedcohort.runs.replication.verdicts import Judged, Verdict, judge

PAPERS = Path(__file__).parents[1] / "papers"
VERDICTS: tuple[Verdict, ...] = (
    "confirmed", "weaker", "not reproduced", "reversed", "undecided", "open"
)  # fmt: skip
COLOURS = {
    "confirmed": "#2f8f5b",
    "weaker": "#9a9a2e",
    "not reproduced": "#8a8a8a",
    "reversed": "#c8553d",
    "undecided": "#c9c9c9",
}
NAMES = {
    "cafa": "CAFA",
    "clust-psi-pfl": "Clust-PSI-PFL",
    "fedentopt": "FedEntOpt",
    "fedgwc": "FedGWC",
    "fedlecc": "FedLECC",
}
READINGS = "readings"  # a folder of ours, not a table of a paper
LISTED = 10  # open claims of a table that are named one by one
WIDE, LEFT, ROW, LOW, HIGH = 860, 470, 22, -1.5, 2.5  # of the picture: pixels, and shares of the paper's gain


class Checked(NamedTuple):
    """A claim at a scale."""

    folder: Folder
    scale: str
    judged: Judged


def known(folder: Folder, scale: str) -> list[ResultRow]:
    """What results.csv has at a scale (a test sees to it that all of it is of today's experiment file)."""
    return [each for each in read_results(folder.path / RESULTS) if each.about["scale"] == scale]


def checked(paper: str) -> Iterator[Checked]:
    """Every claim of a paper: at each scale that has runs, or as an open one. What two tables of a paper
    claim alike is told once."""
    told = set()
    for folder in folders(PAPERS):
        if folder.paper != paper:
            continue
        judged = {scale: judge(folder, known(folder, scale)) for scale in ("paper", "small")}
        for number, claim in enumerate(folder.claims):
            same = (claim.method, claim.against, claim.conditions, claim.metric)
            if same in told:
                continue
            told.add(same)
            having = [scale for scale, claims in judged.items() if claims[number].gaps]
            for scale in having or ["paper"]:
                yield Checked(folder, scale, judged[scale][number])


def page() -> str:
    every = {paper: list(checked(paper)) for paper in NAMES}
    chapters = "\n\n".join(chapter(paper, claims) for paper, claims in every.items())
    return PAGE.format(glance=glance(every), chapters=chapters)


def glance(every: Mapping[str, Sequence[Checked]]) -> str:
    """How many claims of a paper have which verdict; the same claims under other readings count apart."""
    rows: dict[str, Counter[str]] = {}
    for paper, claims in every.items():
        for each in claims:
            name = f"{NAMES[paper]}, other readings" if each.folder.path.name == READINGS else NAMES[paper]
            rows.setdefault(name, Counter())[each.judged.verdict] += 1
    cells = [[name, *(str(count[word] or "") for word in VERDICTS)] for name, count in rows.items()]
    return table(["paper", *VERDICTS], cells)


def chapter(paper: str, claims: Sequence[Checked]) -> str:
    """A paper: our words, its claims, and all numbers of tables that were made again."""
    words = (PAPERS / paper / "README.md").read_text(encoding="utf-8").partition("\n\n")[2].strip()
    judged = [each for each in claims if each.judged.verdict != "open"]
    rows = []
    for each in judged:
        about, theirs, ours, between, seeds, word = claim_cells(each.judged)
        link = f"[{each.folder.path.name}](../papers/{each.folder.name}/README.md)"
        rows.append([about, link, each.scale, theirs, ours, between, seeds, f"**{word}**"])
    columns = ("claim", "table", "scale", "paper", "ours", "95 % interval", "seeds", "verdict")
    parts = [f"## {NAMES[paper]}", words]
    if rows:
        parts.append(table(columns, rows))
    if waiting := [each for each in claims if each not in judged]:
        parts.append("Still open, with fewer than three seeds:\n\n" + open_claims(waiting))
    own = [folder for folder in folders(PAPERS) if folder.paper == paper]
    parts += [text for folder in own for scale in ("paper", "small") if (text := numbers(folder, scale))]
    return "\n\n".join(parts)


def open_claims(claims: Sequence[Checked]) -> str:
    """A line for each table, which says how many there are where they are too many to be read."""
    lines = []
    for name in dict.fromkeys(each.folder.name for each in claims):
        about = [each.judged.claim.about for each in claims if each.folder.name == name]
        told = "; ".join(about) if len(about) <= LISTED else f"{len(about)} claims"
        lines.append(f"- [{name}](../papers/{name}/README.md): {told}")
    return "\n".join(lines)


def numbers(folder: Folder, scale: str) -> str:
    """The paper's table, each number followed by ours; empty where nothing of it was made."""
    results = known(folder, scale)
    lines = [ComparedNumber(each, results) for each in folder.published]
    made = [line for line in lines if line.values]
    if not made:
        return ""
    rows = dict.fromkeys(line.published.row for line in made)
    columns = dict.fromkeys(line.published.column for line in made)
    cell = {(line.published.row, line.published.column): both(line) for line in made}
    body = [[row, *(cell.get((row, column), "") for column in columns)] for row in rows]
    seeds = sorted({len(line.values) for line in made})
    among = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    head = f"### {folder.path.name.capitalize()}: {folder.about}"
    about = (
        f"{scale.capitalize()} scale: {folder.called(scale)}. Each number is the paper's → ours, as mean ± "
        f"standard deviation, ours of {among} seeds; `fedcohort replicate {folder.name} --scale {scale}`."
    )
    return "\n\n".join([head, about, table(["", *columns], body)])


def both(line: ComparedNumber) -> str:
    published = line.published
    ours = spread(line.mean, line.std if len(line.values) > 1 else math.nan, "")
    return f"{spread(published.value, published.std, '')} → {ours} {published.unit}".strip()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def picture() -> str:
    """Every claim that has a verdict: our difference as a share of the paper's, with its interval."""
    claims = [(paper, each) for paper in NAMES for each in checked(paper) if each.judged.ours]
    tall = ROW * (len(claims) + 3)
    body = []
    for value, name in ((0.0, "no difference"), (1.0, "as in the paper")):
        x = across(value)
        body.append(f'<path d="M{x:.1f},{ROW} V{tall - ROW}" stroke="#999" stroke-dasharray="3 3"/>')
        body.append(text(x, tall - 6, name, "middle"))
    for number, (paper, each) in enumerate(claims):
        y, ours, theirs = ROW * (number + 1.5), each.judged.ours, each.judged.paper
        assert ours is not None
        low, high = sorted((across(ours.low / theirs), across(ours.high / theirs)))
        colour = COLOURS[each.judged.verdict]
        about = f"{NAMES[paper]}, {each.scale}: {each.judged.claim.about}"
        body.append(text(LEFT - 12, y + 4, about if len(about) < 76 else about[:74] + "…", "end"))
        body.append(f'<path d="M{low:.1f},{y} H{high:.1f}" stroke="{colour}" stroke-width="3"/>')
        body.append(f'<circle cx="{across(ours.mean / theirs):.1f}" cy="{y}" r="5" fill="{colour}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" role="img">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"


def across(share: float) -> float:
    """Where a share of the paper's difference is; what is beyond the picture is at its edge."""
    within = min(max(share, LOW), HIGH)
    return LEFT + (within - LOW) / (HIGH - LOW) * (WIDE - LEFT - 20)


def text(x: float, y: float, words: str, anchor: str) -> str:
    look = 'font-family="sans-serif" font-size="11" fill="#222"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {look}>{escape(words)}</text>'


PAGE = """\
<!-- Written by scripts/update_docs.py from papers/*/*/results.csv, with the words of papers/*/README.md. -->

# What became of the claims

Five papers say how to train when clients' labels differ, each with tables of its own. Here their claims stand
beside what came out when we ran them again on the same data: our own implementation of every method, the
papers' settings where they state them, choices of ours, written down, where they do not. A claim is a
difference between two methods (or from a number); [how it is judged](replicate.md#verdicts), and what *paper*
and *small* scale mean, is one page for all. *small* is a scaled test and no replication: it can make a claim
doubtful, not refute it. A verdict is about our reading of a paper; where the authors' code reads it
differently, the words say so.

{glance}

![Our differences as shares of the papers', with 95 % intervals](replications.svg)

One line each: the point is our mean difference divided by the paper's, the bar its 95 % interval over seeds;
what lies beyond the edge is drawn at it. Green: confirmed. Yellow: weaker. Grey: not reproduced. Red:
reversed. Light grey: undecided, since both no difference and the paper's are within the bar.

{chapters}

## What the papers do not say

Each paper compares its own choice of methods under its own conditions. [All methods, side by side](ranks.md)
are trained on the same federations, each tuned with the same budget, and ranked.
"""
