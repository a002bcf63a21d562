"""The experiment file that ``fedcohort init`` writes for a table: every choice with its reason beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from fedcohort.advice import Advice
from fedcohort.core.method import DEFAULTS, Method
from fedcohort.data.federation import Federation
from fedcohort.data.survey import Seen

MANY, SHARE = 50, 0.2  # clients from which not all train in every round, and how many do then
ROUNDS, EVERY = 50, 5
HELD_OUT = 0.2  # of a client's rows for testing, and of the others for validation
FEW_ROWS = 2000  # for training: a network with a hidden layer would learn them by heart
SMALLEST = 10  # rows of a client: with fewer, hardly any are left to test on
WIDTH, NARROW = 4096, 512  # numbers that a text becomes: at most, and at least
ROOM, COPIES, FLOAT = 10**9, 3, 4  # bytes for them
REASON = 24  # the column at which reasons begin
REFERENCES = {
    "fedavg": "one model for all: what the others are compared with",
    "local_only": "each client trains alone",
    "centralised": "all rows in one place, which nobody may do: how good a single model could be",
}


@dataclass(frozen=True)
class Draft:
    """What is known of a table, and how it is to be read."""

    command: str  # that asks for the file
    rows: int  # of the table
    data: Mapping[str, Any]
    partition: Mapping[str, Any]
    columns: Sequence[Seen]
    federation: Federation
    advice: Advice
    notes: tuple[str, ...] = ()  # what its owner should know


def text_width(rows: int, columns: int) -> int:
    """Numbers that each text becomes: as many as a gigabyte has room for, within reason."""
    width = WIDTH
    while width > NARROW and COPIES * FLOAT * rows * columns * width > ROOM:
        width //= 2
    return width


def cohort(clients: int) -> float:
    """The share of clients that train in a round."""
    return 1.0 if clients < MANY else SHARE


def chooses_nobody(method: str) -> bool:
    """Whether it leaves open who trains."""
    return Method.parse(method).selector.name == DEFAULTS["selector"]


def experiment_text(draft: Draft) -> str:
    """The file. Each section is a function below; a line is its key, value and reason."""
    sections = (_head(draft), _data(draft), _partition(draft), _split(), _model(draft), _evaluate())
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _head(draft: Draft) -> list[str]:
    clients, rows = draft.federation.num_clients, int(draft.federation.counts.sum())
    everybody = f"all {clients} clients train in every round"
    some = f"a fifth of the {clients} clients trains in each round"
    return [
        f"# {_plain(draft.command)}",
        f"# {clients} clients train on {rows:,} rows of {draft.federation.num_classes} classes.",
        "# Every line may be changed; docs/experiment-file.md says what else there is.",
        "",
        _line("rounds", ROUNDS),
        _line("cohort", cohort(clients), everybody if clients < MANY else some),
        _line("seeds", [0, 1, 2], "one draw of training and test rows could be luck"),
        *_methods(draft.advice, cohort(clients)),
    ]


def _methods(advice: Advice, share: float) -> list[str]:
    """References, then what the federations most like this one advise; nobody is chosen where all train."""
    reasons = dict(REFERENCES)
    apply = [each for each in advice.ranking if share < 1 or chooses_nobody(each.method)]
    for each in apply[: len(advice.choices)]:
        gain, low, high = (f"{100 * value:+.1f}" for value in (each.gain, each.low, each.high))
        words = f"advised: {gain} points over fedavg on such federations ({low} to {high})"
        reasons.setdefault(each.method, words)
    width = max(len(_value(name)) for name in reasons)
    lines = [f"    {_value(name) + ',':{width + 1}}  # {why}" for name, why in reasons.items()]
    beware = [f"# Advice is a guess here: {_plain(what)}." for what in advice.outside]
    return ["method = [", *lines, "]", *beware]


def _data(draft: Draft) -> list[str]:
    reasons = {
        "missing": "fills empty cells of numbers and dates, also where clients are elsewhere",
        "drop_incomplete": "leaves out rows without label or client",
        "bins": "classes of an amount: at most the first number, up to the next, ..., above the last",
        "text_width": "numbers that a text becomes",
        "date_order": "where dates are numbers with the year last",
        "header": "the first line holds data",
        "empty": "words among numbers that seem to say that there is none",
    }
    lines = ["[data]"]
    for key, value in draft.data.items():
        if key == "exclude":
            why = {seen.name: seen.reason for seen in draft.columns}
            cells = [f"    {_value(name)},  # {_plain(why.get(name, 'as you said'))}" for name in value]
            lines += ["exclude = [", *cells, "]"]
        else:
            lines.append(_line(key, value, reasons.get(key, "")))
    if codes := [seen.name for seen in draft.columns if seen.codes and seen.read]:
        lines += [
            "# Whole numbers of few values are read as amounts. Which of them are codes?",
            f"# categorical = {_value([*draft.data.get('categorical', []), *codes])}",
        ]
    return lines


def _partition(draft: Draft) -> list[str]:
    if not draft.partition:
        return []
    reasons = {"min_samples": "clients with fewer rows are left out: hardly any would be left to test on"}
    return [
        "[partition]",
        *(_line(key, value, reasons.get(key, "")) for key, value in draft.partition.items()),
    ]


def _split() -> list[str]:
    return [
        "[split]",
        _line("test", HELD_OUT, "of each client's rows"),
        _line("validation", HELD_OUT, "of the others: methods are compared and chosen by these"),
    ]


def _model(draft: Draft) -> list[str]:
    """A rule that is simple enough to be said: what fits it better, 'fedcohort tune' finds out."""
    rows, rate, why = int(draft.federation.counts.sum()), 0.2, "usual for numbers that are scaled"
    model = [
        _line("name", "mlp"),
        _line("widths", [64], f"one hidden layer: {rows:,} training rows are enough"),
    ]
    if draft.data.get("text"):
        model = [_line("name", "logistic", "one layer: texts have many numbers already")]
        rate, why = 1.0, "high, as the numbers of texts are small and not scaled"
    elif rows < FEW_ROWS:
        model = [_line("name", "logistic", f"one layer: more would learn {rows:,} training rows by heart")]
        rate = 0.1
    return ["[model]", *model, "", "[local]", _line("lr", rate, f"{why}; 'fedcohort tune' finds the best")]


def _evaluate() -> list[str]:
    return ["[evaluate]", _line("every", EVERY, "rounds")]


def _line(key: str, value: Any, reason: str = "") -> str:
    line = f"{key} = {_value(value)}"
    return f"{line:{REASON - 1}} # {_plain(reason)}" if reason else line


def _value(value: Any) -> str:
    """As TOML writes it, on one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _plain(text: str) -> str:
    """Fit for a comment: nothing that a table holds may begin a line of its own."""
    return "".join(each if each.isprintable() else "?" for each in text)
