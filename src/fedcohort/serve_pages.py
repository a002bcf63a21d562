"""The pages of ``fedcohort serve`` besides the reports."""

import hashlib
import html
import json
import math
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from fedcohort.status import Status


def version_of(statuses: Sequence[Status]) -> str:
    """Changes whenever one of these runs has something new to show."""
    facts = [(str(status.directory), status.state, status.done) for status in statuses]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def index_page(root: Path, comparisons: dict[str, list[Status]]) -> str:
    """All runs with their state and accuracy, and links to their reports."""
    parts = []
    for home, statuses in comparisons.items():
        link = f'<a href="/report/{quote(home)}">{html.escape(home)}</a>'
        rows = "".join(_row(home, status) for status in statuses)
        head = "<tr><th>method<th>seed<th>state<th>round<th>global accuracy<th>so far<th>groups</tr>"
        table = f"<table>{head}{rows}</table>" if rows else "<p>No run has started.</p>"
        parts.append(f"<h2>{link}</h2>{table}")
    body = "".join(parts) or "<p>No runs yet: start one with <code>fedcohort run</code>.</p>"
    everything = [status for statuses in comparisons.values() for status in statuses]
    title = html.escape(f"Runs in {root}")
    return f"{PAGE.format(title=title, body=body)}{follow('', version_of(everything))}"


def _row(home: str, status: Status) -> str:
    run = status.directory.name
    alone = run == home  # a single run, not one of a comparison
    link = f"/report/{quote(home)}" + ("" if alone else f"/{quote(run)}")
    cells = (
        f'<a href="{link}">{html.escape(status.method)}</a>',
        str(status.seed),
        f'<span class="{status.state}">{status.state}</span>',
        f"{status.done}/{status.rounds}",
        f"{status.curve[-1]:.1%}" if status.curve else "",
        curve(status.curve),
        f"{status.numbers['groups']:.0f}" if "groups" in status.numbers else "",
    )
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def curve(values: Sequence[float]) -> str:
    """A line from 0 at the bottom to 1 at the top."""
    wide = max(1, len(values) - 1)
    known = [(place, value) for place, value in enumerate(values) if not math.isnan(value)]
    points = " ".join(f"{120 * place / wide:.1f},{23 - 22 * value:.1f}" for place, value in known)
    return f'<svg width="120" height="24"><polyline points="{points}"/></svg>'


def message_page(title: str, sentence: str) -> str:
    return PAGE.format(title=html.escape(title), body=f"<p>{html.escape(sentence)}</p>")


def follow(name: str, version: str) -> str:
    """A script that loads the page again once there is something new."""
    return FOLLOW.replace("PLACE", json.dumps(f"/version/{quote(name)}")).replace("SEEN", json.dumps(version))


FOLLOW = """<script>
setInterval(async () => {
  try {
    const now = await (await fetch(PLACE)).json();
    if (now !== SEEN) location.reload();
  } catch { /* the server was stopped: the page stays as it is */ }
}, 3000);
</script>
"""
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid #8884; }}
.running {{ color: #0072b2; font-weight: 600; }}
.stopped {{ color: #d55e00; }}
polyline {{ fill: none; stroke: #0072b2; stroke-width: 2; }}
</style>
<h1>{title}</h1>
{body}
"""
