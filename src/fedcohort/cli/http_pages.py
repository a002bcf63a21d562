"""The pages of ``fedcohort serve`` besides the reports."""

import hashlib
import html
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from fedcohort.cli.board import percent
from fedcohort.runs.status import Status

Found = list[Status] | str  # the runs of a comparison, or why they cannot be read
PAUSE = 15  # seconds before an open report looks for new rounds: making one takes time from training
GLANCE = 3  # ... and before the list of runs does


def version_of(comparisons: Iterable[Found]) -> str:
    """Changes whenever one of these has something new to show."""
    facts = [
        found if isinstance(found, str) else [(str(run.directory), run.state, run.done) for run in found]
        for found in comparisons
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def index_page(root: Path, comparisons: dict[str, Found]) -> str:
    """All runs with their state and accuracy, and links to their reports."""
    parts = [_section(home, found) for home, found in comparisons.items()]
    body = "".join(parts) or "<p>No runs yet: start one with <code>fedcohort run</code>.</p>"
    title, version = html.escape(f"Runs in {root}"), version_of(comparisons.values())
    return f"{PAGE.format(title=title, body=body)}{follow('', version, GLANCE)}"


def _section(home: str, found: Found) -> str:
    if isinstance(found, str):
        return f"<h2>{html.escape(home)}</h2><p>{html.escape(found)}</p>"
    rows = "".join(_row(home, status) for status in found)
    head = "<tr><th>method<th>seed<th>state<th>round<th>global accuracy<th>so far<th>groups</tr>"
    table = f"<div><table>{head}{rows}</table></div>" if rows else "<p>No run has started.</p>"
    return f'<h2><a href="/report/{quote(os.fsencode(home))}">{html.escape(home)}</a></h2>{table}'


def _row(home: str, status: Status) -> str:
    run = status.directory.name
    alone = run == home  # a single run, not one of a comparison
    link = f"/report/{quote(os.fsencode(home))}" + ("" if alone else f"/{quote(os.fsencode(run))}")
    cells = (
        f'<a href="{link}">{html.escape(status.method)}</a>',
        str(status.seed),
        f'<span class="{status.state}">{status.state}</span>',
        f"{status.done}/{status.rounds}",
        percent(status.curve[-1]) if status.curve else "",
        curve(status.curve),
        f"{status.numbers['groups']:.0f}" if "groups" in status.numbers else "",
    )
    if status.trouble:
        return f"<tr><td>{html.escape(run)}<td><td>{cells[2]}<td colspan=4>{html.escape(status.trouble)}</tr>"
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def curve(values: Sequence[float]) -> str:
    """A line from 0 at the bottom to 1 at the top."""
    wide = max(1, len(values) - 1)
    known = [(place, value) for place, value in enumerate(values) if not math.isnan(value)]
    points = " ".join(f"{120 * place / wide:.1f},{23 - 22 * value:.1f}" for place, value in known)
    return f'<svg width="120" height="24"><polyline points="{points}"/></svg>'


def message_page(title: str, sentence: str) -> str:
    return PAGE.format(title=html.escape(title), body=f"<p>{html.escape(sentence)}</p>")


def follow(name: str, version: str, seconds: int) -> str:
    """A script that looks every few ``seconds`` whether there is something new and then loads the page again,
    unless nobody sees it."""
    page = {"place": f"/version/{quote(os.fsencode(name))}", "seen": version, "every": 1000 * seconds}
    return FOLLOW.replace("PAGE", json.dumps(page))


FOLLOW = """<script>
const followed = PAGE;
addEventListener("beforeunload", () => (followed.left = true)); // a reload now would call a click back
setInterval(async () => {
  if (document.hidden) return;
  try {
    const now = await (await fetch(followed.place)).json();
    if (now !== followed.seen && !followed.left) location.reload();
  } catch { /* the server was stopped: the page stays as it is */ }
}, followed.every);
</script>
"""
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{
  --blue: #0072b2;
  --orange: #b54f00;
  color-scheme: light dark;
  font: 16px/1.5 system-ui, sans-serif;
}}
@media (prefers-color-scheme: dark) {{ :root {{ --blue: #56b4e9; --orange: #ff9d57; }} }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
a {{ color: var(--blue); }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid #8884; }}
.running {{ color: var(--blue); font-weight: 600; }}
.stopped, .damaged {{ color: var(--orange); }}
polyline {{ fill: none; stroke: var(--blue); stroke-width: 2; }}
</style>
<h1>{title}</h1>
{body}
"""
