"""Writes docs/methods/ and pages beside it: what they say is said in the files of methods and papers.

.venv/bin/python scripts/update_docs.py

The test suite compares the committed pages with what this script would write.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import house
import reference_traffic
import replications
import role_page
from reference_traffic import traffic

from fedcohort.core.method import METHODS
from fedcohort.core.roles import ROLES
from fedcohort.core.roles.optional import Broadcasts
from fedcohort.core.schema import EVERY
from fedcohort.presets import papers
from fedcohort.presets.experiments import Shown, shown
from fedcohort.runs import client_messages
from fedcohort.runs.method_catalogue import describe
from fedcohort.testing.pairs import parts, refusal

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
SOURCE = REPOSITORY / "src/fedcohort/methods"
NAMES = [name for name in METHODS.names() if (SOURCE / f"{name}.py").exists()]

LETTERS = """\
| letter | meaning |
|---|---|
| x, x_k, x_g | the model that is sent; client k's after local training; that of group g |
| delta_k | x_k - x, what client k's training changed |
| F_k(x), l_ks | mean loss of x on client k's training data; loss of its local step s |
| n_k, n_kc, l_k | client k's samples; those of class c; all its label counts |
| p_k | n_k / the sum of n over the clients that answered |
| K, C, m | clients of the group, classes, clients asked in a round |
| S | the clients that answered |
| lr, T_k, r_k | local learning rate, local steps, reach: how far a constant gradient of 1 would move x |
"""


def main() -> None:
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    entries = {name: describe(name) for name in NAMES}
    texts = {f"methods/{name}.md": method_page(entry) for name, entry in entries.items()}
    texts["methods/index.md"] = overview(list(entries.values()))
    texts["compositions.md"] = composition_page(entries)
    texts["what-leaves-a-client.md"] = leaving_page(entries)
    texts["papers.md"] = papers_page()
    texts["house.md"], texts["house.svg"] = house.page(REPOSITORY / "src/fedcohort"), house.picture()
    texts["roles.md"] = role_page.page()
    texts |= replications.pages()
    return {DOCS / path: text for path, text in texts.items()}


def stale() -> list[Path]:
    """Pages of methods that are no more."""
    return [path for path in (DOCS / "methods").glob("*.md") if path.stem not in {*NAMES, "index"}]


def method_page(entry: dict[str, Any]) -> str:
    name = entry["name"]
    roles = spoken(entry["roles"]) + (" (the default)" if entry["default_for"] else "")
    sections = [
        generated(f"src/fedcohort/methods/{name}.py"),
        f"# {name}",
        entry["title"],
        f"- **Role:** {roles}\n- **Paper:** {linked(entry['paper'])}\n"
        f"- **File:** [src/fedcohort/methods/{name}.py](../../src/fedcohort/methods/{name}.py)",
        entry["remarks"] and f"## Behaviour\n\n{linked(entry['remarks'])}",
        f"## Equation\n\n```text\n{entry['equation']}\n```\n\n[What the letters mean](index.md#letters)",
        f"## Parameters\n\n{parameter_table(entry)}",
        f"## What it asks of clients\n\n{asks(entry)}",
        f"## Where we differ from the paper\n\n{entry['differences']}",
        "[All methods](index.md) · [What it composes with](../compositions.md)",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def parameter_table(entry: dict[str, Any]) -> str:
    if not entry["parameters"]:
        return "None."
    rows = [
        (f"`{p['name']}`", f"{p['type']} {p['range']}".strip(), f"`{p['default']!r}`", p["about"])
        for p in entry["parameters"]
    ]
    return table(("parameter", "takes", "default", "meaning"), rows)


def asks(entry: dict[str, Any]) -> str:
    """What clients tell, and the bytes of it."""
    needs = "\n".join(f"- `{use}`: {meaning}" for use, meaning in entry["needs"].items())
    bytes_ = table(
        ("megabytes", "before training, up", "a round, up", "a round, down"),
        [
            (f"`{name}`", *(megabytes(count) for count in traffic(name)))
            for name in dict.fromkeys([entry["name"], "fedavg"])
        ],
    )
    sections = [
        needs or "Nothing but its number of samples.",
        f"What travels: {entry['sends']}.",
        bytes_,
        reference_traffic.ABOUT,
    ]
    return "\n\n".join(sections)


def overview(entries: Sequence[dict[str, Any]]) -> str:
    sections = [generated("src/fedcohort/methods/"), "# Methods", INTRODUCTION]
    for role in (*ROLES, "reference"):
        own = [entry for entry in entries if first_role(entry) == role]
        rows = [
            (
                f"[{entry['name']}]({entry['name']}.md)" + (" (default)" if entry["default_for"] else ""),
                entry["title"],
                linked(entry["paper"]) if role != "reference" else "",
                spoken(entry["roles"][role != "reference" :]),
                against_fedavg(entry["name"]),
            )
            for entry in own
        ]
        columns = ("method", "what it does", "paper", "also", "up / down")
        sections.append(f"## {HEADINGS[role]}\n\n{table(columns, rows)}")
    return "\n\n".join([*sections, f"## Letters\n\n{LETTERS}"])


INTRODUCTION = """\
A method is one part for each of six roles and any number of transforms, and
[any two parts compose](../compositions.md) unless they claim the same role or the table there says why not.
*also*: further roles that a part claims. *up / down*: bytes of a round, as a multiple of FedAvg's, measured
as each page says. `fedcohort methods NAME` shows a page in the terminal."""
HEADINGS = {
    "selector": "Selectors: who trains",
    "objective": "Objectives: what a client minimises",
    "averaging": "Averagings: how updates become one move",
    "server_optimiser": "Server optimisers: how the server steps along it",
    "grouping": "Groupings: which model serves whom",
    "adaptation": "Adaptations: what a client makes of it before it uses it",
    "transform": "Transforms: what becomes of an update on its way",
    "reference": "Reference lines",
}


def composition_page(entries: dict[str, dict[str, Any]]) -> str:
    reasons: dict[str, int] = {}
    tables = []
    for one, other in combinations(ROLES, 2):
        rows, columns = (
            [name for name, entry in entries.items() if entry["roles"][0] == role and name in parts()]
            for role in (one, other)
        )
        if len(rows) < len(columns):
            rows, columns = columns, rows
        heads = ["", *(f"[{column}](methods/{column}.md)" for column in columns)]
        cells = [
            [f"[{row}](methods/{row}.md)", *(verdict(row, column, reasons) for column in columns)]
            for row in rows
        ]
        tables.append(f"## {spoken([one])} × {spoken([other])}\n\n{table(heads, cells)}")
    notes = "\n".join(f"{number}. {reason}." for reason, number in reasons.items())
    head = generated("src/fedcohort/testing/pairs.py")
    return "\n\n".join([head, COMPOSITIONS, *tables, f"## Why not\n\n{notes}\n"])


COMPOSITIONS = """\
# What composes with what

✓ runs: two rounds, three where there are groups, the last of them as on the reference engine, with finite
weights, counted bytes and nobody chosen for a group that is not theirs. The test suite tries every pair. A
number is refused, with the sentence under [Why not](#why-not).
Two parts that claim the same role never compose, since a method has one of each, but transforms do: they run
in the order in which they are named. A part that claims several roles stands in the tables of the first.
`centralised` is a whole and takes no partner."""


def leaving_page(entries: dict[str, dict[str, Any]]) -> str:
    sections = [
        generated("src/fedcohort/core/schema/"),
        LEAVING,
        *listed(entries, "leaves", "## Every method", "## What a method adds or changes"),
        LEAVING_END,
        "## What a client receives\n\n" + RECEIVING,
        *listed(entries, "receives", "### With every method", "### What a method adds or changes there"),
        NOT_LEAVING,
    ]
    return "\n\n".join(sections) + "\n"


def listed(entries: dict[str, dict[str, Any]], key: str, every: str, further: str) -> tuple[str, str]:
    """The messages of every method, and those in which others differ; memories are asked for only where a
    grouping, here CFL, changes groups."""
    usual = {each["message"]: each for each in entries["fedavg"][key]}
    rows = [
        (f"[{name}](methods/{name}.md)", *_row(each))
        for name, entry in entries.items()
        for each in entry[key]
        if each != usual.get(each["message"])
    ]
    rows += [
        (f"[{name}](methods/{name}.md) with groups that change", *_row(each))
        for name in NAMES
        if issubclass(METHODS.get(name), Broadcasts)
        for each in describe(f"{name}+cfl")[key]
        if each["message"] == "memory"
    ]
    columns = ("message", "when, and whose", "what", "bytes")
    return (
        f"{every}\n\n{table(columns, [_row(each) for each in usual.values()])}",
        f"{further}\n\n{table(('method', *columns), rows)}",
    )


def _row(each: dict[str, Any]) -> tuple[str, str, str, str]:
    return each["message"], each["when"], each["what"], f"{each['bytes']:,}"


LEAVING = f"""\
# What leaves a client

In a [deployment](deploy.md) a client answers messages, and nothing leaves it but these answers. This page
lists them all, with the bytes of one answer of one client ({client_messages.REFERENCE}),
and what a client [receives](#what-a-client-receives).
`fedcohort methods NAME` shows those of one method. The test suite runs every method through Flower's messages
and compares each answer with this list, byte by byte. A number that is sent by itself counts as
eight bytes; names, and what Flower adds to a message, are not counted: see [below](#on-the-wire)."""

LEAVING_END = """\
A method made of several parts asks for what each of its parts asks for. The answers to an evaluation and to
the training that follows it may come in one message; they are the same answers. A network with BatchNorm
sends its running statistics with every update."""

RECEIVING = f"""\
With each question a client is sent at most this ({client_messages.REFERENCE}), and with all of them
{", ".join(EVERY.values())}. Bytes are those of tensors: whatever else is said is text, which results do not
count. Nor do they count a model twice that a client holds already: Flower's messages
bring it with each question, but for the one that is evaluated and then trained."""

NOT_LEAVING = """\
## On the wire

What is sent, up and down, is written down once, in `src/fedcohort/core/schema/`: names, shapes and kinds of
numbers and, of what clients tell, the bounds. This page, the bytes in results, what `fedcohort methods` says,
Flower's messages and the checks of what arrives are made of it. Flower carries a tensor as a NumPy file (a
header of 128 bytes before the same numbers), numbers by themselves as JSON text, and frames both in protocol
buffers with their names. A test takes messages of both directions apart and finds every byte in one of these
four.

## What does not leave

- Examples, and single labels. `centralised`, which needs them in one place, is refused.
- The words of an error: they may quote data. The server is told one of six codes; the client's log has the
  rest.
- What a client remembers between rounds, except under `memory`. It is kept on the client's disk.
- BatchNorm statistics, if `local.bn = "local"` in the [experiment file](experiment-file.md#batchnorm).

## Label counts

`privacy.counts` in the [experiment file](experiment-file.md) says what a run asks for, `--privacy` of the
[client](deploy.md#what-a-client-allows) what it gives; the stricter of the two holds. `exact`: as they are,
to methods that use them, and evaluation tells what test samples of each class were answered with, and of two
classes how sure the model was of them, in bins (16,384 bytes). `noised`: with discrete Laplace noise of scale
2 / epsilon, drawn once at the client by OpenDP and told again whenever it is asked; evaluation tells totals
only. `withheld`: nothing by class at all. How many samples a client has is told in every case: averages need
it.

A client whose policy is not `exact` tells counts of right answers in steps of its `--min-samples` (5), and
losses in steps as large as that many samples could make: a model that always answers alike would else tell
how many samples of a class there are. Nothing is told that rests on fewer samples than that.

Where examples have numbers to be [scaled](experiment-file.md#scaling) by everybody's mean (`data.scale =
"federated"`, tables and images), a client whose policy is `exact` tells three numbers a column or channel
more in its profile, 24 bytes: how many values it has, their mean and their spread.

An update is not anonymous: who holds a client's update and the model before it can learn about the client's
data, its label counts too, and a server that sends models made for it can learn more. Differential privacy
of updates and secure aggregation are not part of fedcohort."""


def papers_page() -> str:
    sections = [generated("src/fedcohort/presets/*.toml"), PAPERS]
    for paper, citation in papers().items():
        rows = [
            (entry.what, entry.about, condition_names(entry), method_names(entry), where_to_look(entry))
            for entry in shown(paper)
        ]
        columns = ("", "shows", "conditions", "methods", "where to look")
        sections.append(f"## {paper}\n\n{linked(citation)}\n\n{table(columns, rows)}")
    return "\n\n".join(sections) + "\n"


PAPERS = """\
# The papers' tables and figures

What makes each table and figure of the five papers whose comparisons are
[presets](experiment-file.md#presets). Names are short: under `fedentopt`, the conditions `cifar10/vgg11` are
`conditions = "fedentopt/cifar10/vgg11"`, and the method `fedprox` is `"fedentopt/fedprox"`. Parts in braces
are a choice, and one that may be empty ends with a comma. Settings are the papers'; whether the numbers are
too is what [papers made again](replicate.md) is about: most of these runs take days on a large machine."""


def condition_names(entry: Shown) -> str:
    parts = []
    for choice in entry.conditions:
        separator = "/" if parts else ""
        given = [part for part in choice if part]
        shared = {part.partition("=")[0] for part in given}
        if len(choice) == 1:
            parts.append(separator + choice[0])
        elif len(given) == len(choice) and len(shared) == 1 and "=" in given[0]:
            values = ",".join(part.partition("=")[2] for part in given)
            parts.append(f"{separator}{shared.pop()}={{{values}}}")
        else:
            parts.append("{" + ", ".join(separator + part for part in given) + "," * ("" in choice) + "}")
    return f"`{''.join(parts)}`" if parts else ""


def method_names(entry: Shown) -> str:
    return "all" if entry.methods == ("*",) else ", ".join(f"`{name}`" for name in entry.methods)


def where_to_look(entry: Shown) -> str:
    if entry.refused:
        return f"not made: {entry.refused}"
    return "; ".join(text for text in (entry.read, entry.how) if text)


def verdict(one: str, other: str, reasons: dict[str, int]) -> str:
    """A tick, or the number of the sentence; that of two parts with one role is the same for all pairs."""
    sentence = refusal(one, other)
    if sentence is None:
        return "✓"
    if sentence.endswith("and a method has one"):
        sentence = f"These two {sentence[sentence.index('cannot') :]}"
    return str(reasons.setdefault(sentence, len(reasons) + 1))


def first_role(entry: dict[str, Any]) -> str:
    return "reference" if entry["reference"] else str(entry["roles"][0])


def against_fedavg(name: str) -> str:
    """How many times FedAvg's bytes go up and down in a round."""
    ours, theirs = traffic(name), traffic("fedavg")
    return f"{ours.up / theirs.up:.3g} / {ours.down / theirs.down:.3g}"


def spoken(roles: Sequence[str]) -> str:
    return ", ".join(role.replace("_", " ") for role in roles)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.3f}" if count else "0"


def linked(text: str) -> str:
    return re.sub(r"https?://\S+", lambda url: f"<{url[0]}>", text)


def generated(source: str) -> str:
    return f"<!-- Written by scripts/update_docs.py; change {source} instead. -->"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    main()
