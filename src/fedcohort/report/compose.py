"""Which cards make up the report of runs."""

from collections.abc import Iterable

from fedcohort.report import curves
from fedcohort.report.clients import client_cards
from fedcohort.report.events import happened_tab
from fedcohort.report.evidence import Evidence, Labels, Run
from fedcohort.report.labels import psi_card
from fedcohort.report.page import ALL, Filter, Page, Tab
from fedcohort.report.provenance import provenance_card
from fedcohort.report.sent import sent_cards
from fedcohort.report.served import served_cards
from fedcohort.report.standings import leaderboard_card, rounds_card, standings_of


def runs_page(evidence: Evidence) -> Page:
    """The report of one or several runs, the least served clients first."""
    runs = _best_first(evidence)
    methods = [(title, title) for title in dict.fromkeys(run.title for run in runs)]
    seeds = [(str(seed), f"seed {seed}") for seed in evidence.seeds]
    one_run = (Filter("method", "Method", methods), Filter("seed", "Seed", seeds))
    compared = (
        Filter("method", "Method", [(ALL, "all methods"), *methods]),
        Filter("seed", "Seed", curves.views(evidence)),
        Filter("scope", "Scope", [(scope, scope) for scope in curves.scopes(evidence)]),
    )
    comparison = [
        rounds_card(evidence),
        *curves.accuracy_cards(evidence),
        curves.fairness_card(evidence),
        curves.entropy_card(evidence),
    ]
    return Page(
        f"fedcohort report: {_name(evidence)}",
        _subtitle(evidence),
        (
            Tab(
                "served",
                "Who is served",
                [card for run in runs for card in served_cards(evidence, run)],
                one_run,
            ),
            Tab(
                "methods",
                "Methods",
                [leaderboard_card(evidence), *(card for card in comparison if card is not None)],
                compared,
            ),
            Tab(
                "clients", "Clients", [card for run in runs for card in client_cards(evidence, run)], one_run
            ),
            *_skew_tab(evidence),
            *happened_tab(evidence, one_run),
            Tab("sent", "What left clients", sent_cards(evidence), one_run),
            Tab("origin", "Provenance", [provenance_card(evidence)]),
        ),
    )


def _best_first(evidence: Evidence) -> list[Run]:
    """Those that go on come last: they cannot tell yet how each client is served."""
    order = [standing.method for standing in standings_of(evidence)]
    return sorted(evidence.runs, key=lambda run: (not run.complete, order.index(run.title), run.seed))


def _skew_tab(evidence: Evidence) -> list[Tab]:
    """PSI for every federation whose labels are known."""
    cards = []
    for run in {run.facts["fingerprint"]: run for run in evidence.runs}.values():
        labels = evidence.labels_of(run)
        if isinstance(labels, Labels):
            cards.append(psi_card(labels.counts, labels.clients, labels.classes, {"seed": str(run.seed)}))
    seeds = [(str(seed), f"seed {seed}") for seed in evidence.seeds]
    return [Tab("skew", "Label skew", cards, (Filter("seed", "Seed", seeds),))] if cards else []


def _name(evidence: Evidence) -> str:
    return ", ".join(dict.fromkeys(run.settings.name for run in evidence.runs))


def _subtitle(evidence: Evidence) -> str:
    methods, seeds = len(evidence.titles), len(evidence.seeds)
    asked = [run.settings for run in evidence.runs]
    parts = [
        f"{methods} method{'s' * (methods > 1)}",
        f"{seeds} seed{'s' * (seeds > 1)}",
        f"{_each(f'{evidence.clients_of(run):,}' for run in evidence.runs)} clients",
        f"{_each(f'{each.rounds:,}' for each in asked)} rounds",
        f"data: {_each(each.source for each in asked)}",
        f"partition: {_each(each.partition for each in asked)}",
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
