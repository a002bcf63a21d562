"""What ``fedcohort methods --presets`` shows: a paper's methods and conditions, and where it states them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text


def preset_tables(listed: Mapping[str, Any]) -> Group:
    """Of a listing of presets: a table of methods and one of conditions for each paper."""
    parts: list[Any] = []
    for paper, citation in listed["papers"].items():
        parts.append(Text(citation, style="bold"))
        for kind in ("presets", "conditions"):
            entries = [entry for entry in listed[kind] if f"{entry['name']}/".startswith(f"{paper}/")]
            parts += [_table(entries, kind)] if entries else []
    return Group(*parts)


def _table(entries: Sequence[Mapping[str, Any]], kind: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column(kind, overflow="fold", ratio=1)
    table.add_column("where the paper states it", ratio=1)
    for entry in entries:
        name, said = Text(entry["name"], style="bold"), Text(entry["source"])
        name.append(f"\n{entry['method']}" if "method" in entry else "", style="not bold")
        said.append(f"\nours: {entry['ours']}" if entry["ours"] else "", style="dim")
        table.add_row(name, said)
    return table
