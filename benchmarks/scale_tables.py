"""The parts of RESULTS.md about a million clients and about the papers' protocols, from scale.json."""

from typing import Any

Results = dict[str, Any]
WITHIN = {"diagnose": 300, "clust_psi_pfl grouping": 300, "fedlecc set-up": 300, "selection": 2}  # seconds
GAPS = """\
The last two are the largest difference of any weight to the reference engine's, after the first round and
after the last. Roundings grow from round to round: [what was found](../docs/kernels.md#what-it-gives).
"""
MEMORY, RATIO = 8, 1.2  # GB of a process, and of a round against one of a small federation


def papers_section(jobs: Results) -> list[str]:
    """How fast the protocols of two papers train."""
    rows = [(name, jobs[name]) for name in ("E", "P") if name in jobs]
    if not rows:
        return []
    columns = (
        "engine_ms", "reference_ms", "bare_ms", "ratio_bare", "ratio_reference", "samples_per_second",
        "first_weight_difference", "max_weight_difference",
    )  # fmt: skip
    lines = [
        "## Protocols of two papers\n",
        "**E** is FedEntOpt's: LeNet-5, momentum, weight decay, changed images, five epochs. **P** is "
        "Clust-PSI-PFL's: its network for Fashion-MNIST, Adam, five epochs. Milliseconds a round, medians; "
        f"`make bench-scale`, {rows[0][1]['started']}, load {rows[0][1]['machine']['load']} before.\n",
        f"| job | {' | '.join(column.replace('_', ' ') for column in columns)} |",
        "| --- " * (1 + len(columns)) + "|",
    ]
    for name, job in rows:
        cells = [_number(job[column]) if column in job else "not measured" for column in columns]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return [*lines, "", GAPS]


def _number(value: float) -> str:
    return f"{value:,}" if value >= 1 else f"{value:.0e}"


def scale_section(jobs: Results) -> list[str]:
    """What a million clients cost."""
    if "scale" not in jobs:
        return []
    job = jobs["scale"]
    ratio = job["round_ratio"]
    lines = [
        "## A million clients\n",
        f"{job['clients']:,} clients, {job['classes']} classes, cohorts of {job['cohort']:,}. One call each, "
        "in a process of its own that reads the counts from Parquet first. Seconds are what a user waits, "
        "with whatever else the machine does; CPU seconds leave out most of that. Selections are of round 0, "
        "with made-up losses for methods that ask clients for theirs: what it takes a million clients to "
        "answer is not in the seconds. "
        f"`make bench-scale`, {job['started']}, load {job['machine']['load']} before.\n",
        "| step | seconds | CPU seconds | at most | met |",
        "| --- | --- | --- | --- | --- |",
        *(_step(name, job) for name in job["seconds"] if not _is_trivial(name, job)),
        "",
        "| process | memory GB | at most | met |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {gb} | {MEMORY} | {_met(gb, MEMORY)} |" for name, gb in job["peak_gb"].items()),
        "",
        f"A round takes {ratio['ratio']} times as long as one of as many clients out of 10,000 (at most "
        f"{RATIO}: {_met(ratio['ratio'], RATIO)}).\n",
        "Refused, with the memory that it would take:\n",
        *(f"- {sentence}" for sentence in job["refused"].values()),
        "",
        "| what sampling costs: adjusted Rand indices of groups, and losses | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in job["approximations"].items()),
    ]
    return [*lines, ""]


def _step(name: str, job: Results) -> str:
    most = WITHIN.get(name) or (WITHIN["selection"] if name.endswith("selection") else None)
    seconds, cpu = job["seconds"][name], job["cpu_seconds"][name]
    return f"| {name} | {seconds} | {cpu} | {most or ''} | {_met(seconds, most) if most else ''} |"


def _is_trivial(name: str, job: Results) -> bool:
    return name.endswith("set-up") and job["seconds"][name] < 1


def _met(value: float, most: float) -> str:
    return "yes" if value <= most else "no"
