"""Where results come from: by which command, with what, on what and how long."""

import shlex
from collections.abc import Iterator

from fedcohort.report.evidence import Evidence
from fedcohort.report.page import Card, TextTable
from fedcohort.runs.outcomes.conditions import in_words, keys_of, text
from fedcohort.runs.stored import CONFIG
from fedcohort.util.files import read_text


def provenance_card(evidence: Evidence) -> Card:
    """With what, on what and by which command every run was made."""
    conditions = keys_of(run.settings for run in evidence.runs)
    columns = (
        "method",
        *conditions,
        ">seed",
        ">rounds",
        "state",
        ">seconds",
        "started (UTC)",
        "data",
        "fedcohort",
        "torch",
        "machine",
    )
    rows = []
    for run in evidence.runs:
        versions = run.facts["versions"]
        rows.append(
            [
                run.title,
                *(text(run.settings[key]) if key in run.settings else "–" for key in conditions),
                f"{run.seed}",
                f"{run.rounds}",
                "complete" if run.complete else f"at {run.rounds} of {run.asked.rounds} rounds",
                f"{run.facts['seconds']:,.1f}" if run.facts["seconds"] else "–",
                run.facts["started"][:19].replace("T", " "),
                run.facts["fingerprint"][:12],
                versions["fedcohort"],
                versions["torch"],
                run.facts["machine"],
            ]
        )
    return Card(
        "Where these results come from",
        "Data: the start of the fingerprint of the partitioned data; runs that share it trained and were "
        "tested on the same samples.",
        [f"Left out: {why}" for why in evidence.left_out],
        table=TextTable(columns, rows),
        details=list(_settings(evidence)),
        note="fedcohort run config.toml, with a run's settings below, repeats it.",
    )


def _settings(evidence: Evidence) -> Iterator[tuple[str, str]]:
    commands = dict.fromkeys(shlex.join(run.facts["command"]) for run in evidence.runs)
    yield "Commands", "\n".join(commands)
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in run.facts["versions"].items())
        for run in evidence.runs
    )
    yield "Versions", "\n".join(versions)
    for run in evidence.runs:
        if run.seed == evidence.seeds[0]:
            which = ", ".join(filter(None, (run.title, in_words(run.settings), f"seed {run.seed}")))
            yield f"Settings of {which}", f"# {run.directory}\n{read_text(run.directory / CONFIG)}"
