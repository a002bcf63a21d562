"""Who is badly served, why, and what to try: the numbers of one run in plain sentences."""

import numpy as np

from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.luck import luck_card
from fedcohort.report.page import Card, Led, TextTable
from fedcohort.report.service import Service, worst_tenth
from fedcohort.stats.intervals import of_share
from fedcohort.stats.label_distances import pooled, proportions
from fedcohort.util.words import counted, some

TOLD = 4  # clients about whom there is a paragraph
LISTED = 15
NOTE = (
    "In bold: served worse than the federation by more than luck explains (binomial tests, at most 5 % false "
    "discoveries). By labels: the accuracy to expect if every class were recognised as well at the "
    "client as it is everywhere."
)


def served_cards(evidence: Evidence, run: Run) -> list[Card]:
    """The answer in sentences, a picture of all clients, and the least served in a table."""
    service, title = Service(evidence, run), "Who is badly served, and why?"
    if np.isnan(run.accuracy).all():
        why = "it had no test samples" if run.complete else "clients' own accuracies come with the last round"
        return [Card(title, sentences=[f"Of this run that is not known: {why}."], tags=run.tags)]
    answer = Card(title, sentences=sentences(service), tags=run.tags)
    if service.hopeless is not None:
        return [answer]
    return [
        answer,
        luck_card(service, evidence.shown),
        Card("The least served clients", table=_table(service), tags=run.tags, note=NOTE),
    ]


def sentences(service: Service) -> list[str | Led]:
    """How many are badly served, then a paragraph for each of the worst."""
    run, known = service.run, service.run.accuracy[~np.isnan(service.run.accuracy)]
    if service.hopeless is not None:
        return [
            str(service.hopeless),
            f"Single clients have between {known.min():.0%} and {known.max():.0%} of their test samples "
            "right: with a model that learnt nothing, that is luck and the labels they hold.",
        ]
    found: list[str | Led] = [
        f"With {run.title} (seed {run.seed}) {service.overall:.1%} of all test samples are answered right; "
        f"single clients have between {known.min():.0%} and {known.max():.0%} of theirs, with a median of "
        f"{np.median(known):.0%}."
    ]
    found += [text for text in (_least_served(service), _by_method(service)) if text is not None]
    bad = service.bad
    if not bad:
        worst = int(np.nanargmin(run.accuracy))
        found.append("No client is served worse than luck explains. The lowest accuracy, which may be luck:")
        return [*found, Led(f"{run.clients[worst]}:", paragraph(service, worst))]
    share = f"{len(bad):,} of {len(known):,} clients {'is' if len(bad) == 1 else 'are'}"
    more = f"; {TOLD} of them here, the others in the table below" if len(bad) > TOLD else ""
    found.append(f"{share} served worse than luck explains{more}.")
    return [*found, *(Led(f"{run.clients[client]}:", paragraph(service, client)) for client in bad[:TOLD])]


def _least_served(service: Service) -> str | None:
    """The worst tenth of the clients, and the method that is best for its own worst tenth."""
    tenths = {run.title: worst_tenth(run.accuracy) for run in (service.run, *service.elsewhere)}
    own = tenths[service.run.title]
    if np.isnan(own):
        return None
    best = max(tenths, key=lambda title: np.nan_to_num(tenths[title], nan=-1))
    text = f"The worst served tenth of the clients has {own:.0%} on average"
    if best == service.run.title or len(tenths) == 1:
        return f"{text}{', the highest of the methods compared' if len(tenths) > 1 else ''}."
    return f"{text}; of the methods compared {best} does most for its worst tenth ({tenths[best]:.0%})."


def _by_method(service: Service) -> str | None:
    """How many clients each of the methods compared serves badly."""
    bad = {run.title: len(Service(service.evidence, run).bad) for run in (service.run, *service.elsewhere)}
    many = sorted((title for title in bad if bad[title]), key=lambda title: -bad[title])
    if len(bad) < 2 or not many:
        return None
    none = [title for title in bad if not bad[title]]
    counts = ", ".join(f"{bad[title]} with {title}" for title in many)
    return f"Clients served worse than luck explains: {counts}{'; none with ' * bool(none)}{some(none, 8)}."


def paragraph(service: Service, client: int) -> str:
    """One client: how it is served, why, and what to try."""
    run = service.run
    right, size = run.accuracy[client], run.test_size[client]
    low, high = of_share(right * size, size)
    start = f"{right:.0%} of its {size:.0f} test samples are right (95 %: {low:.0%} to {high:.0%})."
    return " ".join([start, *_reasons(service, client), _advice(service, client)])


def _reasons(service: Service, client: int) -> list[str]:
    run, reasons = service.run, []
    if service.labels is not None and service.labels.counts[client].sum() > 0:
        reasons.append(_mix(service, client))
        if not np.isnan(service.expected[client]):
            reasons.append(_explained(service, client))
        if (other := service.nearer(client)) is not None:
            group, near, own = other
            reasons.append(
                f"Its labels are nearer to group {group} (Hellinger distance {near:.2f}) than to the rest of "
                f"its own group {run.group[client]} ({own:.2f})."
            )
        elif (run.group == run.group[client]).sum() == 1 and len(run.group) > 1:
            reasons.append(f"It is alone in group {run.group[client]}.")
        elif len(np.unique(run.group)) > 1:
            reasons.append(f"No other group suits its labels clearly better than group {run.group[client]}.")
    if service.rarely(client):
        usual = np.median(run.trained)
        reasons.append(f"It trained in {counted(run.trained[client], 'round')} only (median {usual:.0f}).")
    return reasons


def _mix(service: Service, client: int) -> str:
    """What it holds more of than those who share its model."""
    run, labels = service.run, service.labels
    assert labels is not None  # noqa: S101  # asked only where there are some
    others = labels.counts[run.group == run.group[client]].sum(axis=0) - labels.counts[client]
    alone = not others.sum() > 0
    rest = pooled(labels.counts if alone else np.clip(others, 0, None)[None])
    own = proportions(labels.counts[client][None])[0]
    top = [c for c in np.argsort(rest - own, kind="stable")[:2].tolist() if own[c] > rest[c]]
    whose = "the federation" if alone or len(np.unique(run.group)) == 1 else "its group"
    parts = [f"{own[c]:.0%} '{labels.classes[c]}' (the rest of {whose}: {rest[c]:.0%})" for c in top]
    return f"It holds {' and '.join(parts)}." if parts else f"Its labels are those of {whose}."


def _explained(service: Service, client: int) -> str:
    expected = service.expected[client]
    if service.by_labels(client):
        return f"Its classes are the hard ones: by them alone one would expect {expected:.0%}."
    return (
        f"Its classes do not explain that: recognised as well as everywhere they would give {expected:.0%}."
    )


def _why(service: Service, client: int) -> str:
    """In a few words."""
    found = [
        "its labels suit another group" if service.nearer(client) is not None else "",
        "rarely trained" if service.rarely(client) else "",
        "its classes are hard ones" if service.by_labels(client) else "",
    ]
    return ", ".join(filter(None, found)) or (
        "unknown" if np.isnan(service.expected[client]) else "not its labels"
    )


def _advice(service: Service, client: int) -> str:
    if (best := service.best_elsewhere(client)) is not None:
        if best.about.silent:
            return f"It is better off alone: {best.title} gets {best.accuracy[client]:.0%} here."
        return f"Try {best.title}, which gets {best.accuracy[client]:.0%} here."
    if service.nearer(client) is not None:
        return "Try grouping by labels (clust_psi_pfl), or let clients choose their model (ifca)."
    if service.rarely(client) and not service.run.everybody:
        return "Try a selector that seeks clients with high losses (fedlecc, power_of_choice)."
    if np.isnan(service.expected[client]):
        return "Try weighing clients by their loss (qfedavg), or a model of its own (fedsoft)."
    if service.by_labels(client):
        cohorts = "" if service.run.everybody else "cohorts with even labels (fedentopt) or "
        return f"Try {cohorts}margins for rare classes (fedlc), or class weights (balanced)."
    return (
        "Compare its attributes with the others' (diagnose --features), and try a model of its own (fedsoft)."
    )


def _table(service: Service) -> TextTable:
    run, named = service.run, set(service.bad)
    lowest = np.argsort(np.where(np.isnan(run.accuracy), 2, run.accuracy), kind="stable").tolist()
    shown = [*service.bad, *(client for client in lowest if client not in named)][:LISTED]
    columns = ["client", ">accuracy", ">test samples", ">by labels", ">rounds trained"]
    grouped, compared = len(np.unique(run.group)) > 1, bool(service.elsewhere)
    columns += [">group", ">nearer group"] * grouped + ["served better by"] * compared + ["why"]
    rows = []
    for client in shown:
        best, near = service.best_elsewhere(client), service.nearer(client)
        row = [
            run.clients[client],
            _percent(run.accuracy[client]),
            f"{run.test_size[client]:.0f}",
            _percent(service.expected[client]),
            f"{run.trained[client]}",
        ]
        row += [f"{run.group[client]}", "–" if near is None else f"{near[0]}"] * grouped
        row += ["–" if best is None else f"{best.title} ({best.accuracy[client]:.0%})"] * compared
        rows.append([*row, _why(service, client) if client in named else "may be luck"])
    return TextTable(columns, rows, frozenset((row, 0) for row in range(min(len(named), LISTED))))


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.0%}"
