"""The model card: what a model was made of, how good it is and how sure that is, and what it is not for."""

from collections.abc import Iterable, Sequence
from math import isnan

from fedcohort.core.evaluate import Row
from fedcohort.runs.evaluation import CHOSEN
from fedcohort.runs.export.served import Served
from fedcohort.runs.outcomes.findings import Finding, findings
from fedcohort.runs.stored import FinishedRun, read_result
from fedcohort.serving.model import ServedModel
from fedcohort.stats.intervals import of_share
from fedcohort.util.names import in_markdown, safe_name
from fedcohort.util.words import counted, some

SHOWN = 50  # columns and classes that are listed
LONGEST = 200  # characters of what others named
RECALL = "global.accuracy["

NOT_FOR = """\
## What it must not be used for

- **Rows of another origin.** It is tested on rows of the clients named above. Elsewhere its accuracy is
  unknown: test it on rows whose answer you know before you rely on it, and again when the data change.
- **Decisions without a person** where a wrong answer does harm. `--threshold` leaves rows unanswered that the
  model is unsure of; its probabilities are not calibrated.
- **Anything but these classes.** What is none of them gets the name of one.
- **Hiding its training data.** Weights can tell of the rows that they were made of. Who may not know of these
  rows may not get the model.
"""


def card(served: Served, run: FinishedRun, chosen: str) -> str:
    """Of a model of ``run``."""
    model, clients = served.model, served.clients
    settings, facts = run.settings, run.environment()
    made = [
        f"- method: {_code(settings.method)}, seed {settings.seed}, {_when(run)}",
        f"- chosen as: {_plain(chosen)}" if chosen else "",
        f"- clients it serves: {some([list(run.group)[place] for place in clients], SHOWN, _code)}",
        f"- network: {_plain(settings.model)}; data: {_plain(settings.source)}, "
        f"partition {_plain(settings.partition)}",
        f"- sha256 of the data, as dealt to clients: {_code(facts['fingerprint'])}",
        f"- made by fedcohort {_plain(facts['versions']['fedcohort'])}, "
        f"torch {_plain(facts['versions']['torch'])}, started {_plain(facts['started'])}",
    ]
    return _page(model, made, [*(UNTOUCHED if served.untouched else ()), *_quality(run, clients)])


UNTOUCHED = (
    "**Nobody tested this model as it is.** Its method has each client train it further on rows of its own, "
    "and what follows was measured after that. Do so, or test it before you use it.",
    "",
)


def plain_card(model: ServedModel, origin: str) -> str:
    """Of a model that a client of a deployment was served by: the numbers are at the server."""
    return _page(model, [f"- from {_plain(origin)}"], ["How good it is, the server's report says."])


def _page(model: ServedModel, made: Iterable[str], quality: Iterable[str]) -> str:
    reads, prepared = model.architecture, model.preparation
    rows = f"arrays (npz) of shape n x {' x '.join(map(str, reads.shape))}"
    if prepared.reads:
        rows = f"tables with the columns {some(prepared.reads, SHOWN, _code)}"
    lines = [
        "# Model card",
        "",
        f"For **{_plain(model.serves)}**. It reads {rows}, and answers with one of {len(model.classes)} "
        f"classes: {some(model.classes, SHOWN, _code)}.",
        "",
        "```console",
        "$ fedcohort predict . new.csv --out predictions.csv",
        "```",
        "",
        "## How it was made",
        "",
        *filter(None, made),
        f"- numbers are scaled by {SCALED[prepared.scale]}",
        "",
        "## How good it is",
        "",
        *quality,
        "",
        NOT_FOR,
    ]
    return "\n".join(lines)


SCALED = {
    "federated": "the mean and deviation of all clients' training rows",
    "client": "the mean and deviation of the rows of who uses the model, given when it was exported",
    "none": "nothing",
}


def _quality(run: FinishedRun, clients: Sequence[int]) -> Iterable[str]:
    rows = [row for row in run.rows() if row.client and row.scope == "personal"]
    names = list(run.group)
    own = {names[place] for place in clients}
    right, total = _pooled(row for row in rows if row.client in own)
    whose = f"{len(own)} clients" if len(own) > 1 else "the client"
    yield from (f"**{_plain(str(finding))}**\n" for finding in wrong_with(run))
    yield f"Accuracy on the {total:,} test samples of {whose} that it serves: {share(right, total)}."
    result = read_result(run.directory) or {}
    recalls = {key[len(RECALL) : -1]: value for key, value in result.items() if key.startswith(RECALL)}
    if recalls:
        yield "\nOf all clients' test samples, each answered by the model that serves its client:"
        yield from ("", "| class | recall |", "|---|---|")
        for name, value in list(recalls.items())[:SHOWN]:
            yield f"| {_plain(name)} | {'–' if isnan(value) else f'{value:.1%}'} |"


def wrong_with(run: FinishedRun) -> tuple[Finding, ...]:
    """What who takes the model should know first."""
    return findings(run.settings.method, {run.settings.seed: read_result(run.directory) or {}})


def _when(run: FinishedRun) -> str:
    chosen, rounds = (read_result(run.directory) or {}).get(CHOSEN), run.settings.rounds
    return (
        counted(rounds, "round")
        if chosen is None
        else f"round {chosen:.0f} of {rounds}, by validation samples"
    )


def _pooled(rows: Iterable[Row]) -> tuple[int, int]:
    """Right answers and test samples, of each client's last rows."""
    last: dict[tuple[str, str], float] = {(row.client, row.metric): row.value for row in rows}
    sizes = {client: value for (client, metric), value in last.items() if metric == "test_size" and value}
    right = sum(last[client, "accuracy"] * size for client, size in sizes.items())
    return round(right), round(sum(sizes.values()))


def share(right: int, total: int) -> str:
    """With its interval."""
    if not total:
        return "unknown, as there are none"
    low, high = of_share(right, total)
    return f"{right / total:.1%} (95 % interval {low:.1%} to {high:.1%})"


def _code(text: str) -> str:
    """A card is read in browsers, and much of it was written by others."""
    return f"`{safe_name(text, LONGEST).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    return in_markdown(safe_name(text, LONGEST))
