"""What Flower's simulator costs beside our engine: the same experiment, the same numbers, in both.

    .venv/bin/python scripts/measure_ray.py [--write]

Two lengths of each run tell the seconds of a start from the seconds of a round. Needs fedcohort[simulation].
``--write`` puts the table into docs/deploy.md.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tomli_w

from fedcohort.flower.processes import environment, program
from fedcohort.flower.template import write_app
from fedcohort.runs.recorder import read_result

PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"
BEGIN, END = "<!-- ray -->", "<!-- end -->"
CLIENTS, COHORT, SHORT, LONG = 20, 6, 5, 205
EXPERIMENT = {
    "cohort": COHORT,
    "partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": 0.3},
    "model": {"name": "mlp", "widths": [64]},
    "local": {"epochs": 1, "batch": 16},
    "method": ["fedavg"],
}


def main() -> None:
    ways = {"`fedcohort run`": run_ours, "Flower's simulator (Ray)": run_ray}
    lines = [
        f"{CLIENTS} clients, {COHORT} a round, a small network on digits, {os.cpu_count()} processors:\n",
        f"| | seconds to start | seconds for each round | accuracy after {LONG} rounds |",
        "|---|---:|---:|---:|",
    ]
    for name, way in ways.items():
        (short, _), (long, accuracy) = (measured(way, rounds) for rounds in (SHORT, LONG))
        each = (long - short) / (LONG - SHORT)
        lines.append(f"| {name} | {short - SHORT * each:.1f} | {each:.3f} | {accuracy:.1%} |")
    text = "\n".join(lines)
    print(text)
    if "--write" in sys.argv[1:]:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def measured(way: Callable[[Path], None], rounds: int) -> tuple[float, float]:
    """Seconds, and the accuracy at the end."""
    with tempfile.TemporaryDirectory(prefix="ray-") as name:
        folder = Path(name)
        table = {"rounds": rounds, "evaluate": {"every": rounds}, **EXPERIMENT}
        (folder / "e.toml").write_text(tomli_w.dumps(table))
        begun = time.perf_counter()
        way(folder)
        seconds = time.perf_counter() - begun
        results = [read_result(path.parent) for path in folder.rglob("result.json")]
        if len(results) != 1 or results[0] is None:
            raise SystemExit(f"{way.__name__} left {len(results)} results of {rounds} rounds, not one")
        return seconds, results[0]["global.accuracy"]


def run_ours(folder: Path) -> None:
    words = [sys.executable, "-m", "fedcohort", "run", "e.toml", "--quiet"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


def run_ray(folder: Path) -> None:
    """Flower leaves a server of its own running, detached; it is known by its home and ended here."""
    write_app(folder / "app", folder / "e.toml")
    home = folder / "h"
    env = {**environment(home), "RAY_TMPDIR": str(folder)}
    nodes = f"num-supernodes={CLIENTS} client-resources-num-cpus=1 init-args-num-cpus={os.cpu_count()}"
    words = [program("flwr"), "run", "app", "local", "--stream", "--federation-config", nodes]
    try:
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
        status = run_status(env)
        if status != "finished:completed":  # 'flwr run' ends with success all the same
            raise SystemExit(f"{done.stdout[-3000:]}{done.stderr[-3000:]}\nFlower calls this run {status}")
    finally:
        for process in belonging_to(home):
            os.kill(process, signal.SIGKILL)


def run_status(env: dict[str, str]) -> str:
    """Of the only run."""
    words = [program("flwr"), "list", "local", "--format", "json"]
    done = subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=120)
    (run,) = json.loads(done.stdout)["runs"]
    return str(run["status"])


def belonging_to(home: Path) -> list[int]:
    """The processes whose environment names this home."""
    mine, word = [], f"FLWR_HOME={home.resolve()}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word in (entry / "environ").read_bytes():
                mine.append(int(entry.name))
        except OSError:
            pass  # it ended meanwhile, or is another user's
    return mine


if __name__ == "__main__":
    main()
