"""Today's engine against that of an earlier commit, in turns: ``python -m benchmarks.against COMMIT``.

Both train the same federations in processes of their own, one after the other, pass after pass. Ratios are
taken within a pass, of the CPU time of a whole process, which other work on the machine disturbs least.
"""

import argparse
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3  # timed, after one to warm up


@dataclass(frozen=True)
class Case:
    """A federation of clients of one size, and how they train."""

    about: str
    model: str
    shape: tuple[int, int, int]
    local: dict[str, Any]
    samples: int = 500  # of each client
    cohort: int = 4
    target: float = 1.0  # how many times as fast as the earlier commit
    evaluated: int = 0  # examples after each round

    @property
    def visits(self) -> int:
        """Samples that clients train on in a round, as often as they do."""
        return self.samples * self.cohort * self.local.get("epochs", 1)


SGD = {"lr": 0.01, "momentum": 0.9, "batch": 64}
CHANGED = {**SGD, "weight_decay": 0.0005, "augment": "fedentopt"}
ADAM = {"lr": 0.001, "optimiser": "adam", "batch": 32}
CASES = {
    "A": Case("like job A: perceptron", "mlp", (1, 28, 28), {"lr": 0.005, "batch": 64}, 600, 10),
    "B": Case("like job B: LeNet-5, momentum", "lenet5", (3, 32, 32), SGD, target=2.5),
    "C": Case("like job C: perceptron, many small clients", "mlp", (1, 28, 28), {"lr": 0.005}, 60, 100),
    "E": Case("FedEntOpt's protocol: LeNet-5, changed images", "lenet5", (3, 32, 32), CHANGED, target=4.0),
    "P": Case("Clust-PSI-PFL's: fmnist_cnn, Adam", "fmnist_cnn", (1, 28, 28), ADAM, target=2.0),
    "G": Case("FedGWC's network", "fedgwc_cnn", (3, 32, 32), SGD, 128, 2, target=1.5),
    "N": Case("CIFAR network with BatchNorm and dropout", "cifar_cnn", (3, 32, 32), ADAM, 64, 2, target=1.3),
    "images": Case("changing images alone", "lenet5", (3, 32, 32), CHANGED, 640, target=5.0),
    "answers": Case("evaluation alone: LeNet-5", "lenet5", (3, 32, 32), SGD, 2500, target=2.0),
    "run": Case(
        "a round of FedEntOpt's protocol with its evaluation",
        "lenet5",
        (3, 32, 32),
        {**CHANGED, "epochs": 5},
        500,
        10,
        4.0,
        10_000,
    ),
}

PAGE = """\
# Today's engine against commit {0}

Written by `python -m benchmarks.against {0}`: both in turns, ratios within a pass, **median [lowest to
highest]**. Microseconds are CPU time of the whole process for each sample that a client trains on (the least
of a pass's rounds; the median of the passes). Federations are drawn for this page: clients of one size train
one epoch, in the last case five; there the time of evaluating 10,000 examples after each round, the training
rows twice, is in it. Cases like a job of `fedcohort bench` have its network and optimiser, not its clients.

A target of 1 is *no slower*: it is missed where today was slower in each pass, which happens to two that are
equally fast in one of {1} measurements like this; a difference of a few hundredths may stay hidden.

Changing images alone is no round. Before, it is the time of the calls that change batches; today, when
compiled kernels change images on their way in, what a round with changed images takes more than one without.
Evaluation alone is of each example that is evaluated.

| case | before, us | today, us | CPU: times as fast | on the clock | target | met |
| --- | --- | --- | --- | --- | --- | --- |"""

MISSED = """\
Where today's time goes in cases that miss their target, by PyTorch's profiler on one worker (images are
changed inside the kernels):
"""
Pairs = list[tuple[dict[str, float], dict[str, float]]]  # the earlier commit and today, pass by pass


def measure(case: Case) -> dict[str, float]:
    """Microseconds a sample, with whichever fedcohort is imported: on the clock, and of CPU."""
    import torch

    torch.set_num_threads(1)
    if case == CASES["images"]:
        return _measure_images(case)
    if case == CASES["answers"]:
        return _measure_answers(case)
    return _measure_rounds(case)


def profile(case: Case) -> dict[str, float]:
    """Which share of a round's time goes where, on one worker of today's engine."""
    import torch

    from benchmarks.time_spent import name_kernels, shares

    torch.set_num_threads(1)
    name_kernels()
    play = _asker(case, 1) if case == CASES["answers"] else _player(case, 1)
    play()
    return shares(lambda: [play() for _ in range(ROUNDS)])


def _measure_rounds(case: Case, workers: int | None = None) -> dict[str, float]:
    return _timed(_player(case, workers), case.visits)


def _timed(play: Callable[[], object], samples: int) -> dict[str, float]:
    """The least of a few times after the first, for each sample."""
    taken = []
    for _ in range(1 + ROUNDS):
        since = time.perf_counter(), time.process_time()
        play()
        taken.append((time.perf_counter() - since[0], time.process_time() - since[1]))
    wall, cpu = (1e6 * min(times) / samples for times in zip(*taken[1:], strict=True))
    return {"wall": wall, "cpu": cpu}


def _measure_answers(case: Case) -> dict[str, float]:
    return _timed(_asker(case, None), case.visits)


def _asker(case: Case, workers: int | None) -> Callable[[], object]:
    """Evaluates all examples at each call."""
    from fedcohort.engines.pool import PoolEngine

    task = _task(case)
    engine, split, weights = PoolEngine(task, workers), task.federation.train, task.model.init(0)
    return lambda: engine.predict(weights, split, split.index)


def _player(case: Case, workers: int | None) -> Callable[[], None]:
    """Plays a round at each call."""
    import torch

    from fedcohort.core.method import Method
    from fedcohort.engines.pool import PoolEngine

    try:
        loop = importlib.import_module("fedcohort.core.round.loop")
    except ModuleNotFoundError:  # where it was before
        loop = importlib.import_module("fedcohort.core.loop")
    task, method = _task(case), Method.parse("fedavg")
    told, engine = task.profile(method), PoolEngine(task, workers)
    state = loop.start(method, task, told)
    tried = torch.arange(case.evaluated) % (case.samples * case.cohort)

    def play() -> None:
        nonlocal state
        state, _ = loop.step(method, state, task, told, engine)
        if case.evaluated:
            engine.predict(state.groups[0].weights, task.federation.train, tried)

    return play


def _measure_images(case: Case) -> dict[str, float]:
    """What changing images adds to a round; before there was a compiled way, the call itself."""
    if importlib.util.find_spec("fedcohort.engines.vector"):
        plain = replace(case, local={**case.local, "augment": None})
        added = [_measure_rounds(case, 1)["cpu"] - _measure_rounds(plain, 1)["cpu"] for _ in range(3)]
        return dict.fromkeys(("wall", "cpu"), median(added))
    import torch

    from fedcohort.engines.pool import PoolEngine

    task = _task(case)
    PoolEngine(task)  # which also makes the process keep the memory that it frees
    draw, taken = torch.Generator(), []
    for _ in range(20):
        since = time.process_time()
        for batch in task.federation.train.x[: case.samples].split(64):
            task.augment(batch, draw)
        taken.append(1e6 * (time.process_time() - since) / case.samples)
    return dict.fromkeys(("wall", "cpu"), min(taken))


def _task(case: Case) -> Any:
    import numpy as np
    import torch

    from fedcohort.core.profile import Local
    from fedcohort.core.task import Task
    from fedcohort.data.federation import Federation, Split

    count = case.samples * case.cohort
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(count, *case.shape, generator=rng), torch.randint(10, (count,), generator=rng)
    rows, none = np.arange(count).reshape(case.cohort, -1), [np.zeros(0, np.int64)] * case.cohort
    names = tuple(map(str, range(10))), tuple(map(str, range(case.cohort)))
    mine, nobody = Split.of(x, y, list(rows)), Split.of(x, y, none)
    federation = Federation(mine, nobody, nobody, *names, truth=None, provenance={"case": case.about})
    return Task.of(federation, case.model, local=Local(**case.local), cohort=case.cohort)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="the earlier one")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "AGAINST.md")
    for kind in RUNS:
        parser.add_argument(f"--{kind}", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for kind, run in RUNS.items():
        if name := getattr(asked, kind):
            print(json.dumps(run(CASES[name])))
            return
    if not asked.commit:
        parser.error("name the commit to measure against")
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        git = [shutil.which("git") or "git", "-C", ROOT, "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", earlier, asked.commit], check=True)
        try:
            passes = {name: _passes(name, earlier, asked.passes) for name in asked.cases.split(",")}
        finally:
            subprocess.run([*git, "remove", "--force", earlier], check=True)
    missed = [name for name, pairs in passes.items() if not is_met(name, pairs)]
    text = table(asked.commit, passes, {name: _run(name, ROOT, "profile") for name in missed})
    asked.out.write_text(text)
    print(text)


def _passes(name: str, earlier: Path, count: int) -> Pairs:
    """The earlier commit and today, as often as asked."""
    done = []
    for number in range(count):
        pair = [_run(name, tree) for tree in (earlier, ROOT)]
        done.append((pair[0], pair[1]))
        said = f"{pair[0]['cpu']:.1f} to {pair[1]['cpu']:.1f} us of CPU a sample"
        print(f"{name}, pass {number + 1} of {count}: {said}", file=sys.stderr)
    return done


def _run(name: str, tree: Path, kind: str = "measure") -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"}
    words = [sys.executable, str(Path(__file__).resolve()), f"--{kind}", name]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def is_met(name: str, pairs: Pairs) -> bool:
    ratios, target = [old["cpu"] / new["cpu"] for old, new in pairs], CASES[name].target
    return (max if target == 1 else median)(ratios) >= target


def table(commit: str, passes: dict[str, Pairs], profiles: dict[str, dict[str, float]]) -> str:
    """Median [lowest to highest] of the passes' ratios, and where time goes in cases that miss a target."""
    lines = [PAGE.format(commit, 2 ** min(map(len, passes.values())))]
    for name, pairs in passes.items():
        before, today = (median(pair[side]["cpu"] for pair in pairs) for side in (0, 1))
        ratios = {kind: sorted(old[kind] / new[kind] for old, new in pairs) for kind in ("cpu", "wall")}
        said = [f"{median(each):.2f} [{each[0]:.2f} to {each[-1]:.2f}]" for each in ratios.values()]
        case = CASES[name]
        met = "yes" if is_met(name, pairs) else "no"
        about = f"{case.about} ({case.cohort} clients of {case.samples})"
        cells = [about, f"{before:.1f}", f"{today:.1f}", *said, f"{case.target:g}", met]
        lines.append(f"| {' | '.join(cells)} |")
    if profiles:
        lines += ["", MISSED]
    for name, shares in profiles.items():
        parts = ", ".join(f"{part} {share:.0%}" for part, share in shares.items() if share)
        lines.append(f"- {CASES[name].about}: {parts}")
    return "\n".join([*lines, ""])


RUNS = {"measure": measure, "profile": profile}  # in a process of their own


if __name__ == "__main__":
    main()
