"""What happened to whom, in runs whose clients were on other machines."""

import numpy as np

from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Card, TextTable
from fedcohort.runs.events import EVENTS, LOG, read_events, summed_up
from fedcohort.util.errors import UserError


def happened_cards(evidence: Evidence) -> list[Card]:
    """Nothing where clients were simulated."""
    return [_card(run) for run in evidence.runs if run.about.elsewhere]


def _card(run: Run) -> Card:
    try:
        rows = [list(each) for each in summed_up(read_events(run.directory)).items()]
    except UserError as error:
        return Card("What happened to whom", sentences=[f"{error}."], tags=run.tags)
    lost, refused = (sum(run.curves[key][1]) if key in run.curves else 0 for key in ("lost", "rejected"))
    answers = f"Orders that were not answered: {lost:.0f}. Answers that were refused: {refused:.0f}."
    return Card(
        "What happened to whom",
        "Who did not answer, was refused, left or came back, and in which round. The method was told who did "
        "not answer; what was refused was never averaged.",
        sentences=[_messages(run), answers if rows else "Every client answered all it was asked."],
        table=TextTable(("client", "what happened"), rows) if rows else None,
        tags=run.tags,
        note=f"With the time of each: {EVENTS} and {LOG} in {run.directory}.",
    )


def _messages(run: Run) -> str:
    """Each message costs a client the start of a process, so they are counted."""
    rounds, sent = run.curves.get("messages", (np.zeros(0), np.zeros(0)))
    each = f", {sent.mean():.1f} a round" if len(rounds) else ""
    return f"{sent.sum():,.0f} messages were sent to {len(run.clients)} clients{each}."
