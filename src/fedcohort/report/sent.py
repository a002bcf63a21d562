"""What left each client, for readers who must answer for the data."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedcohort.core.profile import Privacy
from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Card, TextTable
from fedcohort.util.words import counted

UPDATES = ("training", "update")  # the messages that carry what a client learnt
LISTED = 50
UNKNOWN = "What it asks of a client is not known: its code is not part of fedcohort, and a report runs none."


def sent_cards(evidence: Evidence) -> list[Card]:
    """Bytes of all methods, every kind of answer that each asks of a client, and how often which client gave
    the largest."""
    firsts = [next(run for run in evidence.runs if run.title == title) for title in evidence.titles]
    cards = [_totals(evidence, firsts)]
    for first in firsts:
        cards.append(answers_card(first))
        if first.about.answers and not first.about.silent:
            own = (run for run in evidence.runs if run.title == first.title)
            cards += [updates_card(run) for run in own if len(run.visits)]
    return cards


def _totals(evidence: Evidence, firsts: Sequence[Run]) -> Card:
    rows = []
    for first in firsts:
        runs = [run for run in evidence.runs if run.title == first.title]
        up, down = (_mean(runs, key) for key in ("bytes_up", "bytes_down"))
        clients = max(len(first.clients), 1)
        sizes = f"{up / 1e6:,.2f}", _size(up / clients), _size(down / clients)
        rows.append([first.title, label_counts(first), *sizes, _busiest(first)])
    columns = ("method", "counts before training", ">MB up in all", ">up per client", ">down per client")
    return Card(
        "What left each client",
        "Bytes are counted from the numbers that travel in training, means over seeds; evaluations, of which "
        "there may be any number, are not among them. A simulation only counts them: nothing leaves the "
        "machine it runs on.",
        sentences=list(_assurances(firsts)),
        table=TextTable((*columns, "busiest client"), rows),
    )


def answers_card(run: Run) -> Card:
    """Every kind of answer that a client gives with this method, and its bytes."""
    title, tags = f"Every answer of a client with {run.title}", {"method": run.title}
    if run.about.pooled:
        return Card(title, sentences=["All its training samples are moved to one place."], tags=tags)
    if not run.about.answers:
        return Card(title, sentences=[UNKNOWN], tags=tags)
    rows = [[one.message, one.when, one.what, f"{one.bytes:,}"] for one in run.about.answers]
    return Card(
        title,
        "Nothing else leaves a client in a deployment; a client that is not asked sends nothing.",
        table=TextTable(("answer", "when, and whose", "what it holds", ">bytes"), rows),
        tags=tags,
        note=f"Bytes of one answer of a client ({run.about.model}), without names and what the network adds.",
    )


def updates_card(run: Run) -> Card:
    """How often each client sent its update, by far the most that it sends, and the bytes of these."""
    each = sum(one.bytes for one in run.about.answers if one.message in UPDATES)
    asked = np.bincount(run.visits[:, 1], minlength=len(run.clients))
    order = np.lexsort((np.arange(len(asked)), -run.trained))[:LISTED].tolist()
    sent = [_size(each * float(count)) for count in run.trained]
    rows = [[run.clients[k], f"{asked[k]}", f"{run.trained[k]}", sent[k]] for k in order]
    left = len(run.clients) - len(rows)
    return Card(
        f"How often each client sent its update with {run.title}, seed {run.seed}",
        "Beside these it gave the short answers above: its profile once, the others when it was asked.",
        table=TextTable(("client", ">rounds chosen", ">updates used", ">bytes of these"), rows),
        tags=run.tags,
        note=f"and {left:,} more, who sent no more than the last of these" if left else "",
    )


def label_counts(run: Run) -> str:
    """Whether and how exactly label counts left the client."""
    if not run.about.known:
        return "not known"
    return _disclosure(run.about.privacy) if run.about.asks_for_tables else "not asked for"


def _disclosure(privacy: Privacy) -> str:
    return f"noised (epsilon {privacy.epsilon:g})" if privacy.counts == "noised" else privacy.counts


def _assurances(runs: Sequence[Run]) -> Iterator[str]:
    pooled = [run.title for run in runs if run.about.pooled]
    if pooled:
        names = ", ".join(pooled)
        yield f"With {names} all examples leave their clients: a reference, not federated learning."
    if len(pooled) < len(runs):
        yield ("With the other methods no" if pooled else "No") + " example leaves its client."
        yield (
            "Updates of the model go to the server as they are, neither encrypted towards it nor noised: "
            "whoever runs the server could try to infer from them what a client holds."
        )
    asked = [run for run in runs if run.about.asks_for_tables]
    if asked:
        names = ", ".join(f"{run.title} ({label_counts(run)})" for run in asked)
        yield f"Tables of label counts, or other counts, are told before training by: {names}."
    yield (
        "This page itself shows names of clients, their accuracy and, unless withheld, their label counts: "
        "share it as you would share those."
    )


def _busiest(run: Run) -> str:
    if not len(run.visits) or run.about.silent:
        return "–"
    most = int(run.trained.argmax())
    return f"{run.clients[most]}, {counted(run.trained[most], 'round')}"


def _mean(runs: Sequence[Run], key: str) -> float:
    return float(np.mean([run.metrics.get(key, np.nan) for run in runs]))


def _size(count: float) -> str:
    return f"{count / 1e6:,.2f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
