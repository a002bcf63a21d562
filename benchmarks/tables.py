"""RESULTS.md from results.json; ``python -m benchmarks.tables`` writes it again without measuring."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.scale_tables import papers_section, scale_section
from fedcohort.bench.jobs import JOBS

REFERENCE = "bare"
OWN_ORDER = ("fedcohort", "fedjax")  # engines that shuffle for themselves
SAME_ORDER = 0.02  # of accuracy: sums in another order round differently, and momentum makes that grow
TARGETS = {  # how many times as fast as each peer fedcohort wants to be, and its share of the limit
    "A": ({"pfl": 4, "flower": 5, "fedjax": 2, "bare": 4}, 0.7),
    "B": ({"pfl": 2, "flower": 2, "fedjax": 4, "bare": 1.9}, None),
    "C": ({"pfl": 8, "flower": 40, "fedjax": 6, "bare": 7}, 0.6),
}
WHOLE_COMMAND = {"C": ("flower", 10)}  # the same for the whole command, start-up included
ARITHMETIC = ("compiled kernels", "matrix products and convolutions")  # parts that nobody can do without
PAGES = ("AGAINST.md", "RAY.md")  # that other measurements write
LEAST = 0.01  # allowed to the others even where the order of examples hardly matters
Results = dict[str, Any]

INTRODUCTION = """\
# fedcohort and its peers: {started}

{cpu}, {cores} cores, {memory_gb} GB, {system}. Load before each run: median {load:.1f}, at most {most:.1f}.

Written by `make bench-peers`. All engines run the same jobs: the same examples, clients, cohorts, first
weights, local steps and FedAvg by size. They run in turn, pass after pass, and ratios are taken within a
pass: **median [lowest to highest]** over the passes. A run is timed after one warm-up round, evaluation
is left out. CPU and memory are those of an engine's whole process tree; shared pages count once.
Names that end in `-all` use all cores (pfl: one process each; the others: threads); the same name without
it uses one. Flower and FedJAX always use all. fedcohort ran its engine `{engine}`.

- **A**: multi-layer perceptron, 100 clients with Dirichlet(0.1) label skew, 10 a round
- **B**: LeNet-5, 100 clients with Dirichlet(0.1) label skew, 10 a round, momentum 0.9
- **C**: multi-layer perceptron, 1,000 clients of 60 examples and one or two classes, 100 a round
"""


def render(results: Results, own: Results | None = None, pages: Iterable[str] = ()) -> str:
    """The whole report; ``own`` are the jobs that only fedcohort runs, ``pages`` become its chapters."""
    loads = [entry["load"] for entry in results["passes"]] or [0.0]
    head = INTRODUCTION.format(
        **results["machine"],
        started=results["started"],
        engine=results["engine"],
        load=median(loads),
        most=max(loads),
    )
    jobs = [text for job in results["jobs"] for text in _job(results, job)]
    jobs += [*papers_section(own or {}), *scale_section(own or {})]
    jobs += [re.sub("^#", "##", page, flags=re.M) for page in pages]
    return "\n".join([head, *jobs, *_failures(results), *_versions(results)]) + "\n"


def disagreeing(results: Results) -> list[str]:
    """A sentence for each engine that did not learn what the plain loop learns."""
    sentences = []
    for job, found in results["accuracy"].items():
        for engine, accuracy in found.items():
            wanted, allowed = _expected(results, job, engine)
            if wanted is not None and abs(accuracy - wanted) > allowed:
                sentences.append(
                    f"job {job}: {engine} ends at accuracy {accuracy:.3f}, more than {allowed:.3f} from "
                    f"{wanted:.3f}, so its speed is not comparable"
                )
    return sentences


def _expected(results: Results, job: str, engine: str) -> tuple[float | None, float]:
    """The accuracy of an engine that does what it should, and how far off it may be."""
    shuffled = results["shuffled"].get(job, [])
    if engine not in OWN_ORDER:
        return results["accuracy"][job].get(REFERENCE), SAME_ORDER
    if len(shuffled) < 2:
        return None, 0.0
    return mean(shuffled), max(LEAST, 3 * stdev(shuffled))


def _accuracy_rule(results: Results, job: str) -> str:
    wanted, allowed = _expected(results, job, "fedcohort")
    if wanted is None:
        return "Accuracies were not checked."
    shuffled = results["shuffled"][job]
    return (
        f"With other orders of the examples ({len(shuffled)} runs) the plain loop ends between "
        f"{min(shuffled):.3f} and {max(shuffled):.3f}. Accuracies must agree: for engines that visit "
        f"examples in the same order, within {SAME_ORDER} of {REFERENCE}; for {' and '.join(OWN_ORDER)}, "
        f"which shuffle for themselves, within {allowed:.3f} of {wanted:.3f} (three standard deviations, "
        f"at least {LEAST})."
    )


def _job(results: Results, job: str) -> list[str]:
    runs = [entry for entry in results["passes"] if entry["job"] == job]
    accuracy = results["accuracy"].get(job, {})
    speed = {run["engine"]: median(_ms(r) for r in runs if r["engine"] == run["engine"]) for run in runs}
    rows = [_row(name, runs, accuracy) for name in sorted(speed, key=lambda name: speed[name])]
    command = results.get("command_s", {}).get(job, {})
    rows += [[name, *["not timed"] * 6, f"{accuracy[name]:.4f}"] for name in accuracy if name not in speed]
    rows = [[*row, f"{command[name]:.1f}" if (name := row[0].strip("*")) in command else ""] for row in rows]
    shape, passes = results["jobs"][job], len({entry["pass"] for entry in runs})
    titles = [
        "engine", "ms a round", "its time / fedcohort's", "samples/s", "CPU ms a round", "memory MB",
        "start-up s", f"accuracy after {shape['accuracy']} rounds", "whole command s",
    ]  # fmt: skip
    return [
        f"## Job {job}\n",
        f"{passes} passes, {shape['timed']} timed rounds each. {_limit(results, job)}\n",
        f"{_accuracy_rule(results, job)}\n",
        *table(titles, rows),
        "",
        *_targets(results, job),
        *_profile(results, job),
    ]


def _targets(results: Results, job: str) -> list[str]:
    """What we want, what we have, and how much of the machine the wish would take."""
    wanted, share = TARGETS[job]
    runs = [entry for entry in results["passes"] if entry["job"] == job]
    ours = [_ms(run) for run in runs if run["engine"] == "fedcohort"]
    limit = _limit_ms(results, job)
    rows = []
    for peer, factor in wanted.items():
        theirs, times = [_ms(run) for run in runs if run["engine"] == peer], ratio(results, job, peer)
        if times is None:
            continue
        room = _room(limit, median(theirs) / factor) if limit and share else ["", ""]
        rows.append([f"{factor:g}x {peer}", f"{times:.2f}x", "yes" if times >= factor else "no", *room])
    if share and limit and ours:
        reached = limit / median(ours)
        met = "yes" if reached >= share else "no"
        rows.append([f"{share:.0%} of the limit", f"{reached:.0%}", met, *_room(limit, limit / share)])
    peer, factor = WHOLE_COMMAND.get(job, ("", 0))
    command = results.get("command_s", {}).get(job, {})
    if {peer, "fedcohort"} <= command.keys():
        times = command[peer] / command["fedcohort"]
        met = "yes" if times >= factor else "no"
        rows.append([f"whole command {factor}x {peer}", f"{times:.1f}x", met, "", ""])
    titles = ["target", "measured", "met", "share of the limit it takes", "leaves for everything else"]
    used = [f"fedcohort uses {median(ours) - limit:.0f} ms for everything else.\n"] if limit and share else []
    return [*table(titles, rows), "", *used] if rows else []


def _room(limit: float, pace: float) -> list[str]:
    """How much of the limit a round in ``pace`` ms takes, and what that leaves beside matrix products."""
    return [f"{limit / pace:.0%}", f"{pace - limit:.0f} ms" if pace > limit else "nothing"]


def ratio(results: Results, job: str, peer: str) -> float | None:
    """How many times as long as fedcohort a peer takes for a round: the median over passes."""
    runs = [entry for entry in results["passes"] if entry["job"] == job]
    ours = {run["pass"]: _ms(run) for run in runs if run["engine"] == "fedcohort"}
    pairs = [_ms(run) / ours[run["pass"]] for run in runs if run["engine"] == peer and run["pass"] in ours]
    return median(pairs) if pairs else None


def _profile(results: Results, job: str) -> list[str]:
    """Where the time goes when one worker does everything."""
    found = next((entry for entry in results.get("profile", []) if entry["job"] == job), None)
    if found is None:
        return []
    whole = found["ms_per_round"]
    parts = [f"{part} {share:.0%} ({share * whole:.0f} ms)" for part, share in found["share"].items()]
    others = sum(share for part, share in found["share"].items() if part not in ARITHMETIC)
    least, cores = others * whole / results["machine"]["cores"], results["machine"]["cores"]
    return [
        f"Profile of fedcohort on one worker ({whole:.0f} ms a round): {', '.join(parts)}. "
        f"On {cores} workers all but kernels and products takes at least {least:.0f} ms: "
        "a target that leaves less needs fewer or faster operations than PyTorch's.\n"
    ]


def _row(name: str, runs: list[Results], accuracy: dict[str, float]) -> list[str]:
    own = [run for run in runs if run["engine"] == name]
    ours = {run["pass"]: _ms(run) for run in runs if run["engine"] == "fedcohort"}
    ratios = [_ms(run) / ours[run["pass"]] for run in own if run["pass"] in ours]
    return [
        f"**{name}**" if name == "fedcohort" else name,
        _spread([_ms(run) for run in own], "{:.0f}"),
        "1" if name == "fedcohort" else _spread(ratios, "{:.2f}"),
        f"{median(1000 * run['samples_per_round'] / _ms(run) for run in own):,.0f}",
        f"{median(1000 * run['cpu_s'] / len(run['rounds_ms']) for run in own):.0f}",
        f"{max(run['peak_rss_mb'] for run in own):.0f}",
        f"{median(run['start_up_s'] for run in own):.1f}",
        f"{accuracy[name]:.4f}" if name in accuracy else "not run",
    ]


def _ms(run: Results) -> float:
    """All engines time the same rounds, so their mean is over the same work."""
    return mean(run["rounds_ms"])


def _spread(values: list[float], form: str) -> str:
    if not values:
        return "no pair"
    middle, low, high = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} [{low} to {high}]"


def _limit(results: Results, job: str) -> str:
    """What a perceptron's matrix products alone would take."""
    if JOBS[job].convolves:
        return "Convolutions are not held to PyTorch's matrix products: compiled kernels leave some out."
    found = [entry for entry in results["gemm"] if entry["job"] == job]
    if not found:
        return "The matrix products were not measured."
    cores, one = results["machine"]["cores"], median(entry["ms_per_round"] for entry in found)
    work, rate = found[0]["gflop_per_round"], median(entry["gflop_per_second"] for entry in found)
    return (
        f"The matrix products alone ({work:.1f} GFLOP a round) would take {one:.0f} ms "
        f"on one core at the job's own shapes ({rate:.0f} GFLOP/s), "
        f"{one / cores:.0f} ms on {cores} if they shared nothing."
    )


def _limit_ms(results: Results, job: str) -> float | None:
    """The matrix products alone, spread over all cores."""
    found = [entry["ms_per_round"] for entry in results["gemm"] if entry["job"] == job]
    return median(found) / results["machine"]["cores"] if found else None


def _failures(results: Results) -> Iterable[str]:
    wrong = [f"- {failure['engine']}: {failure['reason']}" for failure in results["failures"]]
    wrong += [f"- {sentence}" for sentence in disagreeing(results)]
    return ["## What went wrong\n", *wrong, ""] if wrong else []


def _versions(results: Results) -> Iterable[str]:
    found = {entry["engine"]: entry["versions"] for entry in results["passes"]}
    rows = [[name, ", ".join(f"{key} {value}" for key, value in v.items())] for name, v in found.items()]
    return ["## Versions\n", *table(["engine", "versions"], rows)]


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]


def write_report(folder: Path) -> None:
    """From the measurements that the folder holds."""
    results, own = (json.loads(path.read_text()) if path.exists() else {} for path in _measured(folder))
    pages = [(folder / name).read_text() for name in PAGES if (folder / name).exists()]
    (folder / "RESULTS.md").write_text(render(results, own.get("jobs"), pages))


def _measured(folder: Path) -> tuple[Path, Path]:
    return folder / "results.json", folder / "scale.json"


def main() -> None:
    write_report(Path(__file__).parent)


if __name__ == "__main__":
    main()
