"""The Flower ServerApp: the runs of one experiment, whose clients are on other machines.

``run_config`` says ``experiment`` (the path of its file), ``out`` (where results go), ``resume`` (a results
directory to continue), ``round-timeout`` (seconds to wait for clients) and ``clients`` (how many to wait for
before the first round). Results are the files that a simulation writes.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcohort.core.disclosure import Disclosed
from fedcohort.core.method import Method
from fedcohort.core.round.loop import start
from fedcohort.core.task import Task
from fedcohort.data.revealed import Revealed
from fedcohort.flower.engine import FlowerEngine
from fedcohort.flower.event_log import EventLog, said_aloud
from fedcohort.flower.messages import Payload
from fedcohort.flower.nodes import NOWHERE, Nodes
from fedcohort.flower.roster import Wanted, await_nodes, gather
from fedcohort.flower.transport import Transport
from fedcohort.report import REPORT, write_report
from fedcohort.runs.about import About
from fedcohort.runs.comparison import Plan, PlannedRun, begin, refuse_misfit, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import ROSTER, Recorder, disk_mistakes, read_result
from fedcohort.runs.run import Result, run
from fedcohort.runs.trackers import start_trackers
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held
from fedcohort.util.files import read_toml
from fedcohort.util.user_code import own_code_in

log = logging.getLogger("fedcohort.flower")

TOKEN = "flower-token"  # noqa: S105  # a file's name in a run directory: what clients know the run by
TIMEOUT = 600.0  # seconds for an answer
RETURN = 60.0  # seconds that a continued run waits for all its clients

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    with said_aloud():
        try:
            serve(grid, context.run_config)
        except UserError as error:  # Flower shows its traceback, which would bury the sentence
            log.error("the run ends here: %s", error)
            raise error.with_traceback(None) from None


def serve(grid: Grid, config: Any) -> None:
    """All runs of the experiment that are not complete yet."""
    plan = plan_for(config)
    transport = Transport(grid, float(config.get("round-timeout") or TIMEOUT))
    for job in plan.jobs:
        if read_result(job.directory) is None:
            words = job.title, job.seed, job.experiment.rounds, job.directory
            log.info("%s, seed %d: %d rounds, in %s", *words)
            carry_out(job, transport, int(config.get("clients") or 0))
    log.info("all runs are complete: %s", write_report([plan.home], plan.home / REPORT, private=True))


def plan_for(config: Any) -> Plan:
    """The runs to make, or those to continue."""
    if config.get("resume"):
        return reopen(Path(str(config["resume"])), trusted=_own_code(config))
    if not config.get("experiment"):
        raise UserError("run_config 'experiment': missing, give the path of the experiment file")
    experiment = Experiment.read(str(config["experiment"]), clients_here=False)
    return begin(experiment, Path(str(config.get("out") or "runs")))


def _own_code(config: Any) -> list[str]:
    """What may be executed when a run is continued: what the app's own experiment file names."""
    asked = Path(str(config.get("experiment") or ""))
    return own_code_in(read_toml(asked)) if asked.is_file() else []


def carry_out(job: PlannedRun, transport: Transport, clients: int) -> Result:
    """One run, from its start or from its last completed round, to its end."""
    experiment, table = job.experiment, job.table
    job.directory.mkdir(parents=True, exist_ok=True)
    log = EventLog(job.directory, experiment.rounds)
    with disk_mistakes(job.directory), held(job.directory), log as events:
        facts = {"run": table, "token": token(job.directory)}
        nodes = meet(job, transport, clients, facts)
        task = server_task(experiment, job.method, nodes.roster, job.seed)
        events.clients = nodes.roster.clients
        scale = nodes.roster.scale
        known = {**facts, "classes": list(nodes.roster.classes), "scale": scale and scale.facts()}
        engine = FlowerEngine(nodes, job.method, task, known, experiment.trust)
        about = About.of(job.method, task, task.profile(job.method), elsewhere=True)
        recorder = Recorder(job.directory, table, nodes.roster.fingerprint(), 1, engine.memories, about=about)
        restored = recorder.open()
        if restored is not None:
            refuse_misfit(restored[0], job, task, experiment.rounds)
        trackers = start_trackers(experiment.trackers, job.directory, table, restored)
        first = start(job.method, task, task.profile(job.method))
        begun = restored or (replace(first, clients=engine.memories({})), [])
        events.go_on(begun[0].round)
        wishes = experiment.rounds, experiment.evaluation
        with recorder.doubting(restored):
            result = run(job.method, task, *wishes, (recorder, events, *trackers), begun, lambda _: engine)
        recorder.finish(result.metrics)
        return result


def meet(job: PlannedRun, transport: Transport, clients: int, facts: dict[str, Any]) -> Nodes:
    """Who takes part: asked when a run begins, remembered when it is continued."""
    experiment = job.experiment

    def question(classes: Sequence[str]) -> Payload:
        return Payload({**facts, "client": None, "classes": list(classes), "merge": None}, {})

    path = job.directory / ROSTER
    if path.exists():
        roster = Revealed.read(path)
        await_nodes(transport, roster.num_clients, min(RETURN, transport.timeout))
        return Nodes(transport, roster, [NOWHERE] * roster.num_clients, lambda: question(roster.classes))
    expected = clients or getattr(experiment.partition, "clients", 1)
    listed = experiment.data.get("classes")
    classes = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
    scaled = experiment.scale == "federated"
    wanted = Wanted(job.method, job.method.privacy(experiment.privacy), experiment.trust, classes, scaled)
    roster, known, others = gather(transport, question, expected, wanted, transport.timeout)
    roster.write(path)
    return Nodes(transport, roster, known, lambda: question(roster.classes), others)


def server_task(experiment: Experiment, method: Method, roster: Revealed, seed: int) -> Task:
    """The experiment as the server sees it. Images are changed at clients, if at all."""
    if method.pooled:
        raise UserError(
            "centralised moves all data to one place, which no deployment does: remove it from the methods"
        )
    local = replace(experiment.local, augment=None)
    known = experiment.cohort, experiment.privacy, experiment.faults, seed
    told = Disclosed(roster.counts, dict(roster.summaries))
    return Task(roster, experiment.network(roster), local, *known, disclosed=told)


def token(directory: Path) -> str:
    """What clients know the run by: drawn when it begins, the same when it is continued."""
    path = directory / TOKEN
    if not path.exists():
        write_atomically(path, secrets.token_hex(16).encode())
    return path.read_text()
