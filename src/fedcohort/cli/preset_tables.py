"""What ``fedcohort methods --presets`` shows: a paper's methods and conditions, and where it states them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedcohort.cli.console import table_of


def preset_tables(listed: Mapping[str, Any]) -> Group:
    """Of a listing of presets: a table of methods and one of conditions for each paper."""
    parts: list[Any] = []
    for paper, citation in listed["papers"].items():
        parts.append(Text(citation, style="bold"))
        for kind in ("presets", "conditions"):
            entries = [entry for entry in listed[kind] if f"{entry['name']}/".startswith(f"{paper}/")]
            parts += [_table(entries, kind)] if entries else []
        further = [entry for entry in listed["words"] if entry["paper"] == paper]
        parts += [_words(paper, further)] if further else []
    return Group(*parts)


def _words(paper: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    """Words that one entry of the paper's file spells are one line."""
    table = table_of(None, expand=True)
    table.add_column("further words", overflow="fold", ratio=1)
    table.add_column(f"after which conditions of {paper}, and where the paper states it", ratio=1)
    lines: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        lines.setdefault((", ".join(entry["on"]), entry["source"], entry["ours"]), []).append(entry["word"])
    for (on, source, ours), words in lines.items():
        said = Text(f"{on}: {source}")
        said.append(f"\nours: {ours}" if ours else "", style="dim")
        table.add_row(Text(", ".join(words), style="bold"), said)
    return table


def _table(entries: Sequence[Mapping[str, Any]], kind: str) -> Table:
    table = table_of(None, expand=True)
    table.add_column(kind, overflow="fold", ratio=1)
    table.add_column("where the paper states it", ratio=1)
    for entry in entries:
        name, said = Text(entry["name"], style="bold"), Text(entry["source"])
        name.append(f"\n{entry['method']}" if "method" in entry else "", style="not bold")
        said.append(f"\nours: {entry['ours']}" if entry["ours"] else "", style="dim")
        table.add_row(name, said)
    return table
