"""Advice on the terminal: what to do, what to expect of it, and why."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fedcohort.cli.diagnosis_tables import WIDTH
from fedcohort.runs.advice import Advice
from fedcohort.runs.advice.evidence import BASE, shipped


def show(advice: Advice, console: Console) -> None:
    """Prints it."""
    lines = Table.grid(padding=(0, 2))
    for title, text in _rows(advice):
        lines.add_row(f"[bold]{title}[/]", escape(text))
    colour = "green" if advice.best.sure else "yellow"
    panel = Panel(lines, title="Advice", title_align="left", border_style=colour)
    console.print(panel, width=min(console.width, WIDTH))


def _rows(advice: Advice) -> Iterator[tuple[str, str]]:
    best, second, several = advice.best, advice.runner_up, ", ".join(advice.choices)
    if len(advice.choices) == 1:
        yield "do this", f"train with {advice.words}."
    else:
        yield "do this", f'tune {several}, as method = "auto" does, and take the best of them.'
        yield "expected", f"{advice.words}."
    if second is not None:
        yield "runner-up", f"{second.method}: {second.words}."
    yield "why", _why(advice)
    yield "settings", f"its defaults; {_rates(best.method)}"
    for what in advice.outside:
        yield "beware", f"{what}; the advice is a guess there."
    if len(advice.choices) == 1:
        names, then = dict.fromkeys((BASE, *advice.choices)), "run experiment.toml --seeds 0,1,2"
    else:
        names, then = dict.fromkeys(advice.choices), "tune experiment.toml"
        yield "beware", "on unseen federations such advice was not surely better than always the same method."
    methods = ", ".join(f'"{name}"' for name in names)
    yield "try it", f"fedcohort {then} --set 'method=[{methods}]'"


def _why(advice: Advice) -> str:
    seen, best, first = advice.features, advice.best, advice.near[0]
    noise = "" if advice.epsilon is None else f", by counts noised with epsilon {advice.epsilon:g}"
    return (
        f"about {seen['label_emd'] / 2:.0%} of a client's samples would have to change class to match the "
        f"federation{noise}, and {seen['cohort']:.0f} of {seen['clients']:.0f} clients train a round. Of the "
        f"{best.tried} federations most like it that were measured, {best.method} did best on {best.best}; "
        f"the nearest is {first['data']}, {first['skew']}, {first['clients dealt']} clients, "
        f"cohort {first['cohort asked']}."
    )


def _rates(method: str) -> str:
    """The clients' learning rates that were best for the table's data, for a start."""
    rates = shipped().about["rates"]
    told = {name: sorted(set(rates[name].values())) for name in (method, BASE)}
    words = {
        name: " to ".join(f"{rate:g}" for rate in dict.fromkeys((own[0], own[-1])))
        for name, own in told.items()
    }
    other = "" if method == BASE else f" ({BASE}: {words[BASE]})"
    return f"local.lr was best at {words[method]}{other}, so tune it ('fedcohort tune')."
