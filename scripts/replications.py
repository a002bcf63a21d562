"""docs/replications*.md: what became of the papers' claims, by papers/*/*/results.csv.

One page for all says what matters: the claims for which ``table.toml`` has a reason (``why``), and each paper
in a sentence, after ``In short:`` in ``papers/PAPER/README.md``. A page for each paper has its other words,
all its claims and all numbers.
"""

import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import claim_charts

from fedcohort.cli.replication_tables import ComparedNumber, claim_cells, spread
from fedcohort.runs.replication.folders import RESULTS, Cell, Folder, folders
from fedcohort.runs.replication.replication import Replication
from fedcohort.runs.replication.results import ResultRow, read_results
from fedcohort.runs.replication.verdicts import Judged, Verdict, judge
from fedcohort.util.words import counted

PAPERS = Path(__file__).parents[1] / "papers"
VERDICTS: tuple[Verdict, ...] = (
    "confirmed", "weaker", "not reproduced", "reversed", "undecided", "open"
)  # fmt: skip
NAMES = {
    "cafa": "CAFA",
    "clust-psi-pfl": "Clust-PSI-PFL",
    "fedentopt": "FedEntOpt",
    "fedgwc": "FedGWC",
    "fedlecc": "FedLECC",
}
READINGS = "other readings"  # what a folder of ours may be, where it is no table of a paper
SCALES = ("paper", "small")
LISTED = 10  # open claims of a table that are named one by one
LINK = re.compile(r"\]\((?!http)([^)]+)\)")
SHORT = "In short: "  # begins the paragraph of a paper's README.md that the page begins with


class Checked(NamedTuple):
    """A claim at a scale."""

    folder: Folder
    scale: str
    judged: Judged


def known(folder: Folder, scale: str) -> list[ResultRow]:
    """What results.csv has at a scale (a test sees to it that all of it is of today's experiment file)."""
    return [each for each in read_results(folder.path / RESULTS) if each.about["scale"] == scale]


def checked(paper: str) -> Iterator[Checked]:
    """Every claim of a paper: at each scale that has runs, or as an open one. What two of its tables claim
    alike is told once."""
    told = set()
    for folder in folders(PAPERS):
        if folder.paper != paper:
            continue
        judged = {scale: judge(folder, known(folder, scale)) for scale in SCALES}
        for number, claim in enumerate(folder.claims):
            same = (folder.ours and folder.name, *claim.cells, str(claim.against), claim.metric)
            if same in told:
                continue
            told.add(same)
            having = [scale for scale, claims in judged.items() if claims[number].gaps]
            for scale in having or ["paper"]:
                yield Checked(folder, scale, judged[scale][number])


def pages() -> dict[str, str]:
    """All pages and their pictures, by name."""
    every = {paper: list(checked(paper)) for paper in NAMES}
    files = {
        "replications.md": PAGE.format(
            headlines=headlines(every),
            short="\n".join(
                f"- **[{NAMES[paper]}]({page_of(paper)})**: {words_of(paper)[0]}" for paper in NAMES
            ),
            glance=glance(every),
        )
    }
    for paper, found in every.items():
        told = [each for each in found if not is_reading(each)]
        files[page_of(paper)] = paper_page(paper, found)
        files[picture_of(paper)] = claim_charts.claims([(each.scale, each.judged) for each in told])
        if under := by_reading(found):
            files[picture_of(paper, "readings")] = claim_charts.readings(under)
    return files


def page_of(paper: str) -> str:
    return f"replications-{paper}.md"


def picture_of(paper: str, what: str = "claims") -> str:
    return f"replications-{paper}-{what}.svg"


def once(claims: Sequence[Checked]) -> list[Checked]:
    """Each claim at one scale: the paper's, which comes first, unless only the other has a verdict."""
    best: dict[tuple[str, str], Checked] = {}
    for each in claims:
        claim = each.folder.name, each.judged.claim.about
        if claim not in best or best[claim].judged.ours is None:
            best[claim] = each
    return list(best.values())


def headlines(every: Mapping[str, Sequence[Checked]]) -> str:
    """The claims that ``table.toml`` gives reasons for."""
    rows = []
    for each in (each for claims in every.values() for each in once(claims) if each.judged.claim.why):
        why = each.judged.claim.why.get(each.judged.verdict, "")
        rows.append([f"{claim_cells(each.judged)[0]}<br>{source(each)}", *verdict_cells(each), why])
    return table(("claim", *JUDGED, "most likely reason"), rows)


def verdict_cells(each: Checked) -> tuple[str, str, str]:
    """The verdict, the paper's difference and ours."""
    _, theirs, ours, between, seeds, word = claim_cells(each.judged)
    return f"**{word}**", theirs, f"{ours} ({between}), {seeds} seeds" if between else ours


def source(each: Checked) -> str:
    """Its table's page, and the scale."""
    return f"[{each.folder.name}](../papers/{each.folder.name}/README.md), {each.scale}"


def is_reading(each: Checked) -> bool:
    return each.folder.ours == READINGS


def by_reading(every: Sequence[Checked]) -> dict[str, dict[str, Judged]]:
    """Of each reading that was tried: its claims, by the method that is compared with."""
    told: dict[str, dict[str, Judged]] = {}
    for each in filter(is_reading, every):
        claim = each.judged.claim
        rows = {line.cell: line for line in each.folder.published if line.metric == claim.metric}
        own, other = rows[claim.conditions, claim.method], rows[claim.conditions, str(claim.against)]
        whole = ", all data" if each.scale == "paper" else ""
        told.setdefault(f"{own.column}: {own.row}{whole}", {})[other.row] = each.judged
    return told


def words_of(paper: str) -> tuple[str, str]:
    """What README.md says of a paper: in a sentence or two, and all the rest."""
    text = (PAPERS / paper / "README.md").read_text(encoding="utf-8").partition(f"\n\n{SHORT}")[2].strip()
    short, _, rest = text.partition("\n\n")
    return " ".join(short.split()), LINK.sub(partial(_from_docs, paper), rest)


def _from_docs(paper: str, link: re.Match[str]) -> str:
    """A link of that file as it is to be written in ``docs/``."""
    return f"]({posixpath.normpath(f'../papers/{paper}/{link[1]}')})"


def glance(every: Mapping[str, Sequence[Checked]]) -> str:
    """How many claims have which verdict; scaled tests, and what is no table of the paper's, count apart."""
    counts: dict[str, Counter[Verdict]] = {}
    for paper, claims in every.items():
        for each in once(claims):
            scaled = "scaled tests" if each.scale == "small" else ""
            name = ", ".join(filter(None, (NAMES[paper], each.folder.ours, scaled)))
            counts.setdefault(name, Counter())[each.judged.verdict] += 1
    cells = [[name, *(str(counts[name][word] or "") for word in VERDICTS)] for name in sorted(counts)]
    return table(["paper", *VERDICTS], cells)


def paper_page(paper: str, every: Sequence[Checked]) -> str:
    """Our words, the claims, and all numbers of tables that were made again."""
    own = [folder for folder in folders(PAPERS) if folder.paper == paper]
    claims = [each for each in every if not is_reading(each)]
    short, rest = words_of(paper)
    parts = [WRITTEN, f"# {NAMES[paper]}: what became of its claims", short[0].upper() + short[1:], rest]
    if judged := [each for each in claims if each.judged.ours]:
        parts += ["## Claims", ABOUT_PICTURE, f"![{ABOUT_CLAIMS}]({picture_of(paper)})", claim_table(judged)]
    if waiting := [each for each in claims if not each.judged.ours]:
        parts.append("Still open, with fewer than three seeds:\n\n" + open_claims(waiting))
    if under := by_reading(every):
        parts += [
            "## Under other readings",
            ABOUT_UNDER,
            f"![{ABOUT_READINGS}]({picture_of(paper, 'readings')})",
        ]
        parts.append(reading_table(under))
    parts += ["## What was run", ABOUT_RUNS, run_table(own)]
    parts += [text for folder in own for scale in SCALES if (text := numbers(folder, scale))]
    return "\n\n".join(parts) + "\n"


def claim_table(every: Sequence[Checked]) -> str:
    rows = [[claim_cells(each.judged)[0], *verdict_cells(each), source(each)] for each in every]
    return table(("claim", *JUDGED, "table, scale"), rows)


def reading_table(under: Mapping[str, Mapping[str, Judged]]) -> str:
    """A line for each reading: how far it is above every method that it is compared with."""
    others = list(dict.fromkeys(other for told in under.values() for other in told))
    rows = []
    for reading, told in under.items():
        cells, seeds = [reading], ""
        for other in others:
            _, _, ours, between, seeds, word = claim_cells(told[other])
            cells.append(f"{ours} ({between}) **{word}**")
        rows.append([*cells, seeds])
    return table(("reading", *(f"minus {other}" for other in others), "seeds"), rows)


def open_claims(claims: Sequence[Checked]) -> str:
    """A line for each table, which says how many there are where they are too many to be read."""
    lines = []
    for name in dict.fromkeys(each.folder.name for each in claims):
        about = [each.judged.claim.about for each in claims if each.folder.name == name]
        told = "; ".join(about) if len(about) <= LISTED else f"{len(about)} claims"
        lines.append(f"- [{name}](../papers/{name}/README.md): {told}")
    return "\n".join(lines)


def run_table(own: Sequence[Folder]) -> str:
    """Of every table at each of its scales: how much of it was made, and what was not."""
    rows = []
    for asked in (Replication(folder, scale, Path()) for folder in own for scale in SCALES):
        folder, made = asked.folder, Counter(each.cell for each in known(asked.folder, asked.scale))
        if not asked.has_scale or (not made and asked.scale == "paper" and folder.ours == READINGS):
            continue
        seeds = 1 if folder.study else len(asked.experiment.seeds)
        done = sum(made.values()) if folder.study else sum(min(made[cell], seeds) for cell in folder.cells)
        runs = done if folder.study else f"{done} of {len(folder.cells) * seeds}"
        link = f"[{folder.path.name}](../papers/{folder.name}/README.md)"
        rows.append([link, asked.scale, str(runs), not_run(folder, made, seeds)])
    return table(("table", "scale", "runs made", "not run"), rows)


def not_run(folder: Folder, made: Counter[Cell], seeds: int) -> str:
    """In words: methods and conditions of which there is nothing, then how many other cells lack what."""
    if not made:
        return "all"
    empty = [cell for cell in folder.cells if not made[cell]]
    words = []
    for kind, name in (("methods", 1), ("conditions", 0)):
        lost = {cell[name] for cell in empty} - {cell[name] for cell in made}
        if lost:
            names = (each.removeprefix(f"{folder.paper}/") for each in sorted(lost))
            words.append(f"{kind} {', '.join(f'`{each}`' for each in names)}")
        empty = [cell for cell in empty if cell[name] not in lost]
    if empty:
        words.append(counted(len(empty), "cell" if not words else "further cell"))
    if some := [made[cell] for cell in folder.cells if 0 < made[cell] < seeds]:
        least = f"{min(some)} to {max(some)}" if min(some) < max(some) else str(max(some))
        words.append(f"{counted(len(some), 'cell')} with {least} of {seeds} seeds")
    return "; ".join(words)


def numbers(folder: Folder, scale: str) -> str:
    """The paper's table, each number followed by ours; empty where nothing of it was made."""
    results = known(folder, scale)
    lines = [ComparedNumber(each, results) for each in folder.published]
    made = [line for line in lines if line.runs]
    if not made:
        return ""
    rows = dict.fromkeys(line.published.row for line in made)
    columns = dict.fromkeys(line.published.column for line in made)
    cell = {(line.published.row, line.published.column): both(line) for line in made}
    body = [[row, *(cell.get((row, column), "") for column in columns)] for row in rows]
    least, most = (pick(line.runs for line in made) for pick in (min, max))
    seeds = f"{least} to {most} seeds" if least < most else counted(most, "seed")
    head = f"## {folder.about[0].upper()}{folder.about[1:]}{', scaled' if scale == 'small' else ''}"
    about = (
        f"{scale.capitalize()} scale: {folder.called(scale)}. Each number is the paper's → ours, or ours "
        f"alone, as mean ± standard deviation, ours of {seeds}; "
        f"`fedcohort replicate {folder.name} --scale {scale}`."
    )
    return "\n\n".join([head, about, table(["", *columns], body)])


def both(line: ComparedNumber) -> str:
    published = line.published
    few = f" ({line.seeds})" if line.values and "of" in line.seeds else ""
    ours = f"{line.ours}{few}"
    if math.isnan(published.value):
        return f"{ours} {published.unit}".strip()
    return f"{spread(published.value, published.std, '')} → {ours} {published.unit}".strip()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


WRITTEN = "<!-- Written by scripts/update_docs.py from papers/*/*/results.csv and the words beside them. -->"
JUDGED = ("verdict", "paper", "ours (95 % interval)")
ABOUT_CLAIMS = "Our differences as shares of the paper's, with 95 % intervals"
ABOUT_READINGS = "Our differences under each reading, with 95 % intervals"
ABOUT_RUNS = """\
A run is a method under some conditions with a seed; `fedcohort replicate PAPER/TABLE --scale SCALE` makes
those that are missing."""
ABOUT_UNDER = """\
m is the share of clients a round, E the local epochs, J the clusters a round; neighbourhoods, xi and noise
are settings of OPTICS, POC is power of choice. Numbers are FedLECC's differences in accuracy under a reading,
with 95 % intervals; verdicts compare them with the paper's differences in Table II. One interval in twenty is
wrong by chance."""
ABOUT_PICTURE = """\
[How a claim is judged](replicate.md#verdicts). The point is our mean difference divided by the paper's, the
bar its 95 % interval over seeds; what lies beyond the edge is drawn at it."""
PAGE = f"""\
{WRITTEN}

# What became of the claims

Five papers say how to train when clients' labels differ. Their tables were made again on the same data, as
far as they are at hand, with our own implementation of every method, the papers' settings where they state
them, and choices of ours, written down, where they do not. A claim is a difference between two methods, or
from a number, and [a rule](replicate.md#verdicts) judges it by our runs. *paper* is the paper's scale.
*small* is a scaled test and no replication: its verdicts are about that test, and make a claim likely or
doubtful, no more. A verdict is about our reading of a paper; where the authors' code reads it differently,
the words say so.

## Headline claims

{{headlines}}

`fedcohort replicate TABLE --scale SCALE` runs what is missing of a claim's table, which may take hours; with
`--show` it only prints the paper's numbers and ours.

## The papers in short

{{short}}

## All claims

{{glance}}

Each claim is counted once, at the paper's scale where that has a verdict; the open ones have fewer than three
seeds. The papers' differences come without an interval: where they print standard deviations, the tables show
them. A page for each paper says which of its tables' runs were made, and which were not.

## What the papers do not say

Each paper compares its own choice of methods under its own conditions. [All methods, side by side](ranks.md)
are trained on the same federations, each tuned with the same budget, and ranked: what to use when.
"""
