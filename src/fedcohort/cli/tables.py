"""What the terminal shows: the leaderboard, the list of methods, measured speed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedcohort.cli.console import PLAIN, PlainConsole, table_of
from fedcohort.core.evaluate import VALIDATION
from fedcohort.core.roles import ROLES
from fedcohort.runs.outcomes.conditions import in_words
from fedcohort.runs.outcomes.over_rounds import titles
from fedcohort.runs.outcomes.standings import (
    BASELINE,
    Column,
    Standing,
    aside_columns,
    baseline,
    cell,
    class_columns,
    columns,
    how_ranked,
    lowest_recall,
    recalls,
    remarks,
    rounds_cells,
    uneven,
    verdict,
)
from fedcohort.util.words import counted

ROOM = 28  # characters of a terminal for the recall of every class

messages = PlainConsole(stderr=True, highlight=False)  # everything that is not a result
results = PlainConsole(highlight=False)


def tell(notes: Iterable[str]) -> None:
    """What is to be known besides; in a log each is one line."""
    for note in notes:
        messages.print(f"note: {note}", markup=False, soft_wrap=not messages.is_terminal)


def show_ranking(standings: Sequence[Standing], rounds: int, references: Sequence[str]) -> None:
    """Methods under the same conditions, which are its heading where there are several."""
    told = standings[0].settings
    if told:
        results.print(in_words(told), style="bold underline", markup=False)
    asked = told.get("rounds", rounds)
    results.print(verdict(standings), style="bold", markup=False)
    results.print(leaderboard(standings, asked if isinstance(asked, int) else rounds))
    if (classes := class_table(standings)) is not None:
        results.print(classes)
    if aside := aside_columns(standings):
        results.print(_scores("Beside these", standings, aside, False))
    if (summary := rounds_table(standings)) is not None:
        results.print(summary)
    results.print(how_ranked(standings[0].ranked_by), markup=False)
    for remark in remarks(standings):
        results.print(f"note: {remark}", markup=False)
    if caution := uneven(standings, references):
        results.print(f"note: {caution}", markup=False)


def leaderboard(standings: Sequence[Standing], rounds: int) -> Table:
    """Mean ± standard deviation over seeds; the best of each column in bold, a constant answer below all."""
    seeds = max(len(standing.seeds) for standing in standings)
    when = "Of" if standings[0].ranked_by.startswith(VALIDATION) else "After"
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    shown, constant = columns(standings), baseline(standings)
    table = _scores(f"{when} {counted(rounds, 'round')} ({spread})", standings, shown, seeds > 1)
    if constant:
        numbers = [cell(constant.get(key, math.nan), 0.0, kind, False) for key, _, _, kind in shown]
        table.add_row(BASELINE, *(text.replace("–", "") for text in numbers), style="dim")
    return table


def class_table(standings: Sequence[Standing]) -> Table | None:
    """What accuracy does not tell, without deviations; how many of each class are recognised or, where there
    is no room for all, of the one recognised worst."""
    shown, known = class_columns(standings), [recalls(standing) for standing in standings]
    if not shown:
        return None
    seeds = max(len(standing.seeds) for standing in standings)
    title = f"By class (means of {seeds} seeds)" if seeds > 1 else "By class (one seed)"
    names = [name for name in known[0] if all(name in own for own in known)]
    if sum(max(len(name), 4) + 1 for name in names) > ROOM:
        return _scores(
            title, standings, shown, False, {"lowest\nrecall": list(map(lowest_recall, standings))}
        )
    recognised = {name: [cell(own[name], 0.0, "whole percent", False) for own in known] for name in names}
    return _scores(f"{title}; on the right the recall of each", standings, shown, False, recognised)


def _scores(
    title: str,
    standings: Sequence[Standing],
    shown: Sequence[Column],
    spread: bool,
    more: Mapping[str, Sequence[str]] = {},
) -> Table:
    """A line for each method, the best of each column in bold; ``spread``: with the deviation over seeds;
    ``more`` are columns of words."""
    table = table_of(title, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", min_width=14, max_width=40)
    best = {}
    for key, title, more_is_better, _ in shown:
        table.add_column(Text(title), justify="right", no_wrap=True)
        values = [round(standing.mean.get(key, math.nan), 9) for standing in standings]
        if more_is_better is not None and len(set(values)) > 1:
            best[key] = max(values) if more_is_better else min(values)
    for heading in more:
        table.add_column(Text(heading), justify="right")
    for place, standing in enumerate(standings):
        cells = []
        for key, _, _, kind in shown:
            mean, std = (numbers.get(key, math.nan) for numbers in (standing.mean, standing.std))
            text = cell(mean, std, kind, spread)
            cells.append(f"[bold]{text}[/bold]" if best.get(key) == round(mean, 9) else text)
        table.add_row(Text(standing.method), *cells, *(Text(column[place]) for column in more.values()))
    return table


def rounds_table(standings: Sequence[Standing]) -> Table | None:
    """Global accuracy summed up over rounds, as far as the experiment asked for it."""
    wanted = titles(standings[0].mean)
    if not wanted:
        return None
    table = table_of("Global accuracy over the rounds")
    table.add_column("method", overflow="fold", min_width=14, max_width=40)
    for title in wanted.values():
        table.add_column(title, justify="right")
    for standing in standings:
        table.add_row(Text(standing.method), *rounds_cells(standing, wanted))
    return table


def method_table(entries: Sequence[dict[str, Any]]) -> Table:
    """All methods, a line each, by role."""
    table = table_of(None, expand=True)
    table.add_column("method", no_wrap=True)
    table.add_column("role")
    table.add_column("what it does", ratio=4)
    table.add_column("needs", ratio=1)
    order = list(ROLES)
    for entry in sorted(entries, key=lambda e: (order.index(e["roles"][0]), e["name"])):
        roles = ",\n".join(f"{role}*" if role in entry["default_for"] else role for role in entry["roles"])
        roles = roles.replace("_", " ")
        roles = "reference" if entry["reference"] else roles
        needs = ", ".join(use.replace("_", " ") for use in entry["needs"])
        table.add_row(f"[bold]{entry['name']}[/bold]", roles, entry["title"], needs)
    table.caption, table.caption_justify = "* the default of its role", "left"
    return table


def method_page(entry: dict[str, Any]) -> Group:
    """One method in full."""
    lines: list[Any] = [
        f"[bold]{entry['name']}[/bold]  ({', '.join(entry['roles']).replace('_', ' ')})",
        Text(entry["title"]),
        Text(entry["paper"], style="dim"),
    ]
    if entry["remarks"]:
        lines += ["", Text(entry["remarks"])]
    if entry["equation"]:
        lines += ["", Padding(Text(entry["equation"]), (0, 0, 0, 4))]
    if entry["differences"]:
        lines += ["", "Where we differ from the paper", Text(entry["differences"])]
    if entry["parameters"]:
        table = Table("parameter", "default", "takes", "meaning", **PLAIN)
        for parameter in entry["parameters"]:
            takes = f"{parameter['type']} {parameter['range']}".strip()
            table.add_row(parameter["name"], str(parameter["default"]), takes, parameter["about"])
        lines += ["", table]
    lines += _messages(entry)
    return Group(*lines, Text(f"sends: {entry['sends']}"), Text(f"file:  {entry['file']}", style="dim"))


def combination_page(entry: dict[str, Any]) -> Group:
    """Several parts together: which of them answers which question."""
    table = Table("role", "part", "what it does", **PLAIN)
    for part in entry["parts"]:
        settings = ", ".join(f"{name}={value}" for name, value in part["settings"].items())
        roles = ",\n".join(part["roles"]).replace("_", " ")
        table.add_row(roles, Text.assemble((part["name"], "bold"), f"\n{settings}"), Text(part["title"]))
    return Group(Text(entry["name"], style="bold"), table, *_messages(entry))


def _messages(entry: dict[str, Any]) -> list[Any]:
    """What clients are sent and tell, and what must be known."""
    lines: list[Any] = []
    for key, words in (("receives", "a client of a deployment receives"), ("leaves", "leaves it")):
        table = Table("message", "when, and whose", "what", **PLAIN)
        table.add_column("bytes", justify="right")
        for each in entry[key]:
            table.add_row(each["message"], each["when"], each["what"], f"{each['bytes']:,}")
        lines += ["", f"What {words}, in bytes ({entry['reference_model']})", table] if entry[key] else []
    return [*lines, Text(f"needs: {'; '.join(entry['needs'].values()) or 'only sizes'}")]


def bench_tables(measured: dict[str, Any]) -> Group:
    """One table per kind of job."""
    jobs, parts = measured["jobs"], []
    columns = (
        "engine_ms", "reference_ms", "bare_ms", "ratio_bare", "gemm_share", "samples_per_second",
        "first_weight_difference", "max_weight_difference",  # to the reference, after first and last round
    )  # fmt: skip
    training = {name: job for name, job in jobs.items() if "engine_ms" in job}
    if training:
        titles = ("job", *(column.replace("_", " ") for column in columns))
        table = Table(*titles, **PLAIN, title="Milliseconds a round (medians)")
        for name, job in training.items():
            table.add_row(name, *(f"{job[column]:,}" if column in job else "" for column in columns))
        parts.append(table)
    for name, job in jobs.items():
        if name not in training:
            table = Table(name, "", **PLAIN)
            for key, value in job.items():
                for about, told in value.items() if isinstance(value, dict) else [("", value)]:
                    shown = told if isinstance(told, str) else f"{told:,}"
                    table.add_row(f"{key} {about}".replace("_", " "), Text(shown))
            parts.append(table)
    return Group(*parts, Text(str(measured["machine"]), style="dim"))
