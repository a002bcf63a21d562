"""Which cards make up the report of runs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from fedcohort.report import curves
from fedcohort.report.clients import client_cards
from fedcohort.report.conditions import choices, overview_cards
from fedcohort.report.events import happened_cards
from fedcohort.report.evidence import Evidence, Labels, Run
from fedcohort.report.labels import psi_card
from fedcohort.report.page import ALL, Card, Filter, Page, Tab
from fedcohort.report.provenance import provenance_card
from fedcohort.report.sent import sent_cards
from fedcohort.report.served import served_cards
from fedcohort.report.standings import leaderboard_card, recall_card, rounds_card, standings_of
from fedcohort.report.summary import summary_cards

HELD = "as clients hold it"  # in a deployment, whatever the experiment would deal


def runs_page(evidence: Evidence) -> Page:
    """The report of one or several runs: what they come to, then methods, then clients; under several
    conditions, each part of the page is about one of them, except for the overview."""
    parts = evidence.parts
    runs = [run for part in parts for run in _best_first(part)]
    methods = [(title, title) for title in dict.fromkeys(run.title for run in runs)]
    seeds = [(str(seed), f"seed {seed}") for seed in evidence.seeds]
    conditions, tags = choices([part.settings for part in parts])
    by_seed = Filter("seed", "Seed", seeds)
    one_run = (*conditions, Filter("method", "Method", methods), by_seed)
    compared = (
        *conditions,
        Filter("method", "Method", [(ALL, "all methods"), *methods]),
        Filter("seed", "Seed", curves.views(evidence)),
        Filter("scope", "Scope", [(scope, curves.said(scope)) for scope in curves.scopes(evidence)]),
    )

    def each(make: Callable[[Evidence], Iterable[Card]]) -> list[Card]:
        """The cards of every condition, which its filters show."""
        return [
            replace(card, tags={**card.tags, **own})
            for part, own in zip(parts, tags, strict=True)
            for card in make(part)
        ]

    def of_runs(make: Callable[[Evidence, Run], Iterable[Card]]) -> list[Card]:
        return each(lambda part: (card for run in _best_first(part) for card in make(part, run)))

    found = (
        Tab("summary", "In short", each(summary_cards), conditions),
        Tab("methods", "Methods", [*overview_cards(evidence), *each(_methods)], compared),
        Tab("served", "Who is served", of_runs(served_cards), one_run),
        Tab("clients", "Clients", of_runs(client_cards), one_run),
        Tab("skew", "Label skew", each(_skew), (*conditions, by_seed)),
        Tab("happened", "What happened", each(happened_cards), one_run),
        Tab("sent", "What left clients", each(sent_cards), one_run),
        Tab("origin", "Provenance", [provenance_card(evidence)]),
    )
    title = f"fedcohort report: {_name(evidence)}"
    return Page(title, _subtitle(evidence), tuple(tab for tab in found if tab.cards))


def _methods(evidence: Evidence) -> Iterator[Card]:
    """Method against method."""
    yield leaderboard_card(evidence)
    found = (
        recall_card(evidence),
        rounds_card(evidence),
        *curves.accuracy_cards(evidence),
        curves.fairness_card(evidence),
        curves.entropy_card(evidence),
    )
    yield from (card for card in found if card is not None)


def _best_first(evidence: Evidence) -> list[Run]:
    """Those that go on come last: they cannot tell yet how each client is served."""
    order = [standing.method for standing in standings_of(evidence)]
    return sorted(evidence.runs, key=lambda run: (not run.complete, order.index(run.title), run.seed))


def _skew(evidence: Evidence) -> Iterator[Card]:
    """PSI for every federation whose labels are known."""
    for run in {run.facts["fingerprint"]: run for run in evidence.runs}.values():
        labels = evidence.labels_of(run)
        if isinstance(labels, Labels):
            yield psi_card(labels.counts, labels.clients, labels.classes, {"seed": str(run.seed)})


def _name(evidence: Evidence) -> str:
    return ", ".join(dict.fromkeys(run.asked.name for run in evidence.runs))


def _subtitle(evidence: Evidence) -> str:
    methods, seeds = len(evidence.titles), len(evidence.seeds)
    asked = [run.asked for run in evidence.runs]
    dealt = [HELD if run.about.elsewhere else run.asked.partition for run in evidence.runs]
    parts = [
        f"{methods} method{'s' * (methods > 1)}",
        f"{seeds} seed{'s' * (seeds > 1)}",
        *([f"{len(evidence.parts)} conditions"] if len(evidence.parts) > 1 else []),
        f"{_each(f'{evidence.clients_of(run):,}' for run in evidence.runs)} clients",
        f"{_each(f'{each.rounds:,}' for each in asked)} rounds",
        f"data: {_each(each.source for each in asked)}",
        f"partition: {_each(dealt)}",
        f"model: {_each(each.model for each in asked)}",
    ]
    waiting = sum(not run.complete for run in evidence.runs)
    if waiting:
        parts.append(f"{waiting} of {len(evidence.runs)} runs not complete")
    if evidence.left_out:
        parts.append(f"{len(evidence.left_out)} left out, see Provenance")
    return " · ".join(parts)


def _each(words: Iterable[str]) -> str:
    """Runs of one comparison agree; those of several may not."""
    return " or ".join(dict.fromkeys(words))
