"""A diagnosis on the terminal: the verdict first, then the numbers it rests on. Fits 100 columns."""

from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fedcohort.cli.console import PlainConsole, table_of
from fedcohort.diagnosis.diagnosis import Diagnosis
from fedcohort.diagnosis.features import HOW_TO_READ, FeatureSkew, most
from fedcohort.stats.label_distances import Array
from fedcohort.stats.label_groups import Suggestion

WIDTH = 100
CLIENTS = 15  # rows shown unless all are asked for
GROUPS = 8
COLOURS = {"little": "green", "moderate": "yellow", "strong": "red"}


def show(diagnosis: Diagnosis, console: Console | None = None, all_clients: bool = False) -> None:
    """Prints a diagnosis; of the clients the 15 that deviate most, or all with ``all_clients``."""
    console = console or PlainConsole()
    console.print(render(diagnosis, all_clients), width=min(console.width, WIDTH))


def show_features(skew: FeatureSkew, console: Console | None = None, everything: bool = False) -> None:
    """Prints the attributes and clients that differ most, or all with ``everything``."""
    console = console or PlainConsole()
    limit = len(skew.features) + len(skew.client_names) if everything else CLIENTS
    for table in (_features(skew, limit), _clients_by_features(skew, limit)):
        console.print("", table, width=min(console.width, WIDTH), sep="\n")


def render(diagnosis: Diagnosis, all_clients: bool = False) -> RenderableType:
    """The same as something Rich can print."""
    return Group(*_parts(diagnosis, all_clients))


def _parts(diagnosis: Diagnosis, all_clients: bool) -> Iterator[RenderableType]:
    yield _verdict(diagnosis)
    yield _summary(diagnosis)
    yield ""
    yield _clients(diagnosis, all_clients)
    for suggestion in diagnosis.suggestions:
        yield ""
        yield _groups(diagnosis, suggestion)


def _verdict(diagnosis: Diagnosis) -> Panel:
    verdict, colour = diagnosis.verdict, COLOURS[diagnosis.verdict.level]
    lines = Table.grid(padding=(0, 2))
    lines.add_row(f"[bold {colour}]skew[/]", escape(verdict.skew))
    lines.add_row("[bold]groups[/]", escape(verdict.groups))
    lines.add_row("[bold]advice[/]", escape(verdict.advice))
    for note in verdict.notes:
        lines.add_row("[dim]note[/]", f"[dim]{escape(note)}[/]")
    return Panel(lines, title="Verdict", title_align="left", border_style=colour)


def _summary(diagnosis: Diagnosis) -> Table:
    table = _table("Federation", "measure", ">value", "how to read it")
    empty = int((diagnosis.size == 0).sum())
    ratio, gini = diagnosis.size_imbalance
    smoothing = f"ε = {diagnosis.eps:g}" if diagnosis.smoothing == "eps" else "½ pseudo-count"
    chance = _number(diagnosis.wpsi_by_chance)
    for row in (
        ("clients", f"{len(diagnosis.client_names):,}", f"{empty} without samples" if empty else ""),
        (
            "classes",
            f"{len(diagnosis.class_names):,}",
            f"a client holds {np.nanmean(diagnosis.coverage):.0%} of them",
        ),
        (
            "samples",
            f"{diagnosis.counts.sum():,.0f}",
            f"largest client {ratio:,.3g} x smallest, Gini {gini:.2f}",
        ),
        ("WPSI", _number(diagnosis.wpsi), f"smoothed by {smoothing}; chance alone gives {chance}"),
        ("WPSI, ½ pseudo-count", _number(diagnosis.wpsi_laplace), "leans less on missing classes"),
        ("Hellinger", _number(diagnosis.hellinger), "between pairs of clients, 0 to 1"),
        (
            "Jensen-Shannon",
            _number(diagnosis.jensen_shannon),
            "all clients at once; shrinks with their number",
        ),
        *_iid(diagnosis),
        ("label EMD", _number(diagnosis.label_emd), "from clients to the federation, 0 to 2"),
        (
            "EMD (FedArtML)",
            _number(diagnosis.emd_fedartml),
            "blind to which classes differ; as papers print it",
        ),
    ):
        table.add_row(*row)
    return table


def _iid(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """How well CAFA finds the clients that are known to be IID."""
    if diagnosis.iid is None:
        return []
    told = diagnosis.iid
    scores = ", ".join(f"{name} {told[name]:.2f}" for name in ("precision", "recall", "f1"))
    how = f"largest of CAFA's {told['clusters']:.0f} clusters ({told['found']:.0f} clients) as IID: {scores}"
    return [("IID clients, accuracy", _number(told["accuracy"]), how)]


def _clients(diagnosis: Diagnosis, all_clients: bool) -> Table:
    order = np.argsort(-np.nan_to_num(diagnosis.psi, nan=-1.0), kind="stable").tolist()
    shown = order if all_clients else order[:CLIENTS]
    left = len(order) - len(shown)
    columns = ("client", ">samples", ">PSI", ">Hellinger", ">classes", "largest classes")
    table = _table(
        "Clients, most deviating first",
        *columns,
        *(f">{suggestion.reading}" for suggestion in diagnosis.suggestions),
        caption=f"and {left:,} more" if left else None,
    )
    for client in shown:
        groups = (int(suggestion.labels[client]) for suggestion in diagnosis.suggestions)
        table.add_row(
            escape(_short(diagnosis.client_names[client], 16)),
            f"{diagnosis.size[client]:,.0f}",
            _number(diagnosis.psi[client]),
            _number(diagnosis.hellinger_to_pool[client]),
            str(int((diagnosis.counts[client] > 0).sum())),
            _largest(diagnosis, diagnosis.counts[client]),
            *("–" if group < 0 else str(group) for group in groups),
        )
    return table


def _groups(diagnosis: Diagnosis, suggestion: Suggestion) -> Table:
    left = suggestion.groups - GROUPS
    more = f"and {left:,} more; " if left > 0 else ""
    own, shared = _number(suggestion.silhouette), _number(suggestion.label_silhouette)
    table = _table(
        f"Groups by {suggestion.rule} ({suggestion.reading})",
        ">group",
        ">clients",
        ">samples",
        "largest classes",
        "members",
        caption=f"{more}silhouette {own}, between label distributions {shared}",
    )
    by_size = sorted(range(suggestion.groups), key=lambda group: -suggestion.sizes[group])
    for group in by_size[:GROUPS]:
        members = np.flatnonzero(suggestion.labels == group).tolist()
        total = diagnosis.counts[members].sum(axis=0)
        names = ", ".join(diagnosis.client_names[member] for member in members[:20])
        row = (str(group), f"{len(members):,}", f"{total.sum():,.0f}", _largest(diagnosis, total))
        table.add_row(*row, escape(_short(names, 36)))
    return table


def _features(skew: FeatureSkew, limit: int) -> Table:
    shown, left = most(skew.wpsi, limit), max(len(skew.features) - limit, 0)
    title = "Attributes, most different between clients first"
    columns = ("attribute", ">WPSI", ">by chance", "client that differs most", ">its PSI", ">empty")
    table = _table(title, *columns, caption=f"and {left:,} more; {HOW_TO_READ}" if left else HOW_TO_READ)
    for feature in shown:
        (client,) = most(skew.psi[:, feature], 1)
        name = escape(_short(skew.client_names[client], 24))
        numbers = (_number(value) for value in (skew.wpsi[feature], skew.chance[feature]))
        own = name, _number(skew.psi[client, feature])
        table.add_row(
            escape(_short(skew.features[feature], 24)), *numbers, *own, f"{skew.empty[feature]:.0%}"
        )
    return table


def _clients_by_features(skew: FeatureSkew, limit: int) -> Table:
    mean = skew.psi.mean(axis=1)
    shown, left = most(mean, limit), max(len(mean) - limit, 0)
    caption = f"PSI of the clients' shares of all samples against even ones: {np.nansum(skew.quantity):.3f}"
    title = "Clients, most different attributes first"
    columns = ("client", ">mean PSI", "attribute that differs most", ">PSI", ">quantity term")
    table = _table(title, *columns, caption=f"and {left:,} more; {caption}" if left else caption)
    for client in shown:
        (feature,) = most(skew.psi[client], 1)
        table.add_row(
            escape(_short(skew.client_names[client], 24)),
            _number(mean[client]),
            escape(_short(skew.features[feature], 24)),
            _number(skew.psi[client, feature]),
            _number(skew.quantity[client]),
        )
    return table


def _table(title: str, *columns: str, caption: str | None = None) -> Table:
    return table_of(title, *columns, caption=caption, box=box.ROUNDED, border_style="dim", pad_edge=True)


def _largest(diagnosis: Diagnosis, counts: Array) -> str:
    """The two classes most samples belong to, with their shares."""
    top = [c for c in np.argsort(-counts, kind="stable")[:2].tolist() if counts[c] > 0]
    shares = (f"{_short(diagnosis.class_names[c], 10)} {counts[c] / counts.sum():.0%}" for c in top)
    return escape(", ".join(shares)) or "–"


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
