"""What a round costs more on a Ray cluster, and what a cluster of a thousand machines would cost.

    .venv/bin/python -m benchmarks.ray_overhead       # writes benchmarks/RAY.md, also into docs/scale.md

Raylets on this machine stand in for machines: what they compute they compute on the same cores, so only what
is beside computing is measured. Clients have next to nothing to do. The pool engine without Ray and clusters
of 1, 2 and 3 machines take turns, and each round is set against the pool engine's of the same turn.
"""

import argparse
import os
import platform
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import table
from fedcohort.core.engine import Engine
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.round.loop import start, step
from fedcohort.core.task import Task
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines import cluster as clusters
from fedcohort.engines.cluster import Cluster, connected
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.ray import RayEngine
from fedcohort.engines.shards import climb, share_out
from fedcohort.util.cpu import usable_cores

WIDTHS = {"small": 16, "large": 25_000}  # of the hidden layer: 1.2 thousand and 1.9 million parameters
MACHINES = (1, 2, 3)
CLIENTS, COHORT, TURNS, ROUNDS = 256, 64, 7, 5
FAR, FAR_COHORT = 1_000, 65_536  # machines and clients of the calculation


class Fewer(Cluster):
    """Some of the machines of a cluster; all bytes that are sent to them and come back are counted."""

    def __init__(self, whole: Cluster, many: int) -> None:
        self.machines = [machine._replace(actor=Counted(machine.actor)) for machine in whole.staff()[:many]]

    def staff(self) -> list[Any]:
        return self.machines

    @property
    def counts(self) -> tuple[int, int, int]:
        """Calls, bytes to machines and bytes back."""
        each = [(m.actor.calls, m.actor.sent, m.actor.told) for m in self.machines]
        return tuple(sum(column) for column in zip(*each, strict=True))  # type: ignore[return-value]


class Counted:
    """An actor whose calls are counted. What is sent once for all machines counts once for each."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.calls, self.sent, self.told, self.counts = actor, 0, 0, 0, False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.actor, name)
        if not self.counts:
            return method
        return _Call(self, method)


class _Call:
    def __init__(self, actor: Counted, method: Any) -> None:
        self.actor, self.method = actor, method

    def remote(self, *arguments: Any) -> Any:
        import ray

        there = [ray.get(each) if isinstance(each, ray.ObjectRef) else each for each in arguments]
        call = self.method.remote(*arguments)
        self.actor.calls += 1
        self.actor.sent += len(ray.cloudpickle.dumps(there))
        self.actor.told += len(ray.cloudpickle.dumps(ray.get(call)))
        return call


def task_of(width: int) -> Task:
    data = load("synthetic", samples=CLIENTS * 16, classes=10, features=64)
    federation = federate(data, partitioner("iid", clients=CLIENTS), SplitPlan())
    local = Local(lr=0.1, steps=1, batch=8)
    return Task.of(federation, "mlp", {"widths": [width]}, local=local, cohort=COHORT)


def seconds(task: Task, engine: Engine, rounds: int) -> tuple[float, float]:
    """Of one round of FedAvg, on average, after one that warms up; and of this process' cores."""
    method = Method.parse("fedavg")
    profile = task.profile(method)
    state, _ = step(method, start(method, task, profile), task, profile, engine)
    since, busy = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        state, _ = step(method, state, task, profile, engine)
    return (time.perf_counter() - since) / rounds, (time.process_time() - busy) / rounds


def measure(turns: int) -> list[dict[str, Any]]:
    from ray.cluster_utils import Cluster as Raylets

    clusters._look_again(True)
    each = {"num_cpus": 1, "object_store_memory": 500_000_000}
    raylets = Raylets(initialize_head=True, head_node_args={**each, "include_dashboard": False})
    for _ in MACHINES[1:]:
        raylets.add_node(**each)
    rows = []
    try:
        with connected(raylets.address) as whole:
            for name, width in WIDTHS.items():
                task = task_of(width)
                near = PoolEngine(task, workers=1)
                far = {many: (own := Fewer(whole, many), RayEngine(task, own)) for many in MACHINES}  # type: ignore[arg-type]
                found: dict[int, list[tuple[float, float, float]]] = {many: [] for many in MACHINES}
                for _ in range(turns):
                    for many in MACHINES:
                        alone, (spread, driver) = (seconds(task, e, ROUNDS) for e in (near, far[many][1]))
                        found[many].append((alone[0], spread, driver))
                for many, (own, engine) in far.items():
                    for machine in own.machines:
                        machine.actor.counts = True
                    method, profile = Method.parse("fedavg"), task.profile(Method.parse("fedavg"))
                    step(method, start(method, task, profile), task, profile, engine)
                    calls, sent, told = own.counts
                    more = [after - before for before, after, _ in found[many]]
                    pool = statistics.median(before for before, *_ in found[many])
                    rows.append(
                        {
                            "model": name,
                            "bytes": 4 * task.model.num_params,
                            "machines": many,
                            "pool": pool,
                            "more": statistics.median(more),
                            "least": min(more),
                            "most": max(more),
                            "driver": statistics.median(busy for *_, busy in found[many]),
                            "calls": calls,
                            "down": sent,
                            "up": told,
                        }
                    )
    finally:
        raylets.shutdown()
    return rows


def sums_per_machine(shards: int, machines: int) -> float:
    """How many sums a machine sends, on average, where shards are equally heavy: counted, not measured."""
    held: dict[int, list[int]] = {}
    for shard, owner in enumerate(share_out([1.0] * shards, [1.0] * machines)):
        held.setdefault(owner, []).append(shard)
    left = [len(climb({(0, s): torch.zeros(0) for s in own}, shards, own)) for own in held.values()]
    return sum(left) / len(left)


def page(rows: list[dict[str, Any]], turns: int) -> str:
    shown = [
        [
            f"{row['model']}, {row['bytes'] / 1e6:,.3g} MB",
            str(row["machines"]),
            f"{row['pool'] * 1e3:.1f}",
            f"{row['more'] * 1e3:.1f} [{row['least'] * 1e3:.1f} to {row['most'] * 1e3:.1f}]",
            f"{row['driver'] * 1e3:.1f}",
            str(row["calls"]),
            f"{row['down'] / 1e6:,.3g}",
            f"{row['up'] / 1e6:,.3g}",
        ]
        for row in rows
    ]
    head = ["model", "machines", "pool, ms", "more on Ray, ms", "driver, ms", "calls", "MB down", "MB back"]
    facts = {
        "machine": f"{platform.machine()}, {usable_cores()} cores",
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "turns": turns,
        "measured": "\n".join(table(head, shown)),
        "calculated": "\n".join(table(["what", "by", "a round"], calculation(rows))),
    }
    return PAGE.format(**facts, **{name.lower(): globals()[name] for name in CONSTANTS})


def calculation(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What the measured numbers come to on many machines."""
    small, large = ([row for row in rows if row["model"] == name] for name in WIDTHS)
    most = f"measured with {small[-1]['machines']}"
    each = small[-1]["driver"] / small[-1]["machines"]  # what a round costs beside calls is small there
    first = small[0]  # one machine sends one sum
    beside = max(0.0, first["down"] + first["up"] - 2 * first["bytes"]) / COHORT
    model, byte = large[0]["bytes"], (large[-1]["driver"] - small[-1]["driver"]) / large[-1]["up"]
    sums, mega = sums_per_machine(FAR_COHORT, FAR), f"{large[0]['bytes'] / 1e6:.1f} MB"
    back = FAR * sums * model
    return [
        ["calls from the driver", "2 a machine", f"{2 * FAR:,}"],
        ["the driver for them", f"{each * 1e3:.1f} ms a machine, {most}, small", f"{each * FAR:.1f} s"],
        ["model to machines", f"{mega} a machine, written once", f"{FAR * model / 1e9:.1f} GB"],
        ["sums back", f"{sums:.1f} of {mega} a machine, counted", f"{back / 1e9:.1f} GB"],
        [
            "the driver for receiving and adding them",
            f"{byte * 1e9:.2f} ms a MB back, {most}: large less small",
            f"{byte * back:.1f} s",
        ],
        ["beside models", f"{beside:,.0f} bytes a client, measured", f"{beside * FAR_COHORT / 1e6:,.0f} MB"],
        ["memory of the driver", "sums and answers", f"{(back + beside * FAR_COHORT) / 1e9:.1f} GB"],
    ]


def in_docs(guide: str, text: str) -> str:
    """The guide with all of the page but its title between its marks."""
    chapters = text.partition("\n\n")[2].replace("\n## ", "\n### ")
    marked = re.compile(r"(<!-- ray overhead -->\n).*?(<!-- end -->)", re.DOTALL)
    return marked.sub(lambda marks: f"{marks[1]}\n{chapters}\n{marks[2]}", guide)


CONSTANTS = ("COHORT", "CLIENTS", "ROUNDS", "FAR", "FAR_COHORT")
PAGE = """\
# A round on a Ray cluster

Written by `python -m benchmarks.ray_overhead`. {machine}, load {load:.1f} at the end; PyTorch {torch}.

## Measured

A round of FedAvg with {cohort} of {clients} clients that take one step of 8 samples. Raylets with one core
each on this machine are the machines. {turns} turns of {rounds} rounds: **median [lowest to highest]** of
what a round takes more than the pool engine's of the same turn; Ray's own processes are in it, and use the
same cores. The driver's time is that of its process on a core. Bytes are those of one round, pickled, of both
calls.

{measured}

## Calculated from it

Nobody here has {far:,} machines. With these numbers, a round of {far_cohort:,} clients (a shard each) on
{far:,} machines and the large model would take, beside training:

{calculated}

Not in it: the network, whose rate is not known here, what Ray's own processes do, and waiting for the slowest
machine.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("RAY.md"))
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs/scale.md")
    asked = parser.parse_args()
    nowhere = {"RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:1"}  # or Ray tells that it tells nothing
    os.environ.update({**clusters.QUIET, **nowhere, clusters.SEVERAL: "0"})
    text = page(measure(asked.turns), asked.turns)
    asked.out.write_text(text, encoding="utf-8")
    asked.docs.write_text(in_docs(asked.docs.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
