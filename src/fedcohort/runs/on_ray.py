"""A comparison on a Ray cluster: its runs spread over the machines or, if these are more, one run after the
other, each with its clients spread over all machines."""

from functools import partial
from typing import TYPE_CHECKING

from fedcohort.core.method import Method
from fedcohort.data import Federation
from fedcohort.engines.cluster import connected
from fedcohort.engines.ray import RayEngine
from fedcohort.runs.crew import Crew
from fedcohort.runs.schedule import Schedule, Timed

if TYPE_CHECKING:
    from fedcohort.runs.comparison import Plan
    from fedcohort.runs.experiment import Experiment


def carry_out_on_ray(plan: "Plan", schedule: Schedule, watcher: Timed) -> None:
    """All runs that wait."""
    from fedcohort.runs.comparison import run_job

    experiment = plan.experiment
    sent = experiment.running.data == "sent"
    with connected(experiment.running.ray) as cluster:
        if len(schedule.waiting) > 1 and len(schedule.waiting) >= len(cluster.nodes()):
            if sent:
                _ = experiment.dataset  # kept with the experiment from now on, and sent with it
            with Crew(cluster, len(schedule.waiting), watcher) as crew:
                schedule.size = len(crew.members)
                crew.carry_out(experiment if sent else experiment.unread, plan.home, schedule)
            return
        while schedule.waiting:
            job = schedule.next()
            read = None if sent else partial(read_clients, experiment.unread, job.method, job.seed)
            run_job(experiment, job, watcher, partial(RayEngine, cluster=cluster, read=read))


def read_clients(experiment: "Experiment", method: Method, seed: int) -> Federation:
    """On another machine: all clients, as this method sees them."""
    return experiment.task(seed).for_method(method).data
