"""A comparison on a Ray cluster: its runs spread over the machines or, if these are more, one run after the
other, each with its clients spread over all machines."""

from functools import partial
from typing import TYPE_CHECKING

from fedcohort.data import Federation
from fedcohort.engines.choice import Means
from fedcohort.engines.cluster import connected
from fedcohort.engines.ray import RayEngine
from fedcohort.runs.workers.ray_pool import RayPool
from fedcohort.runs.workers.schedule import Timed
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from fedcohort.runs.comparison import Plan, PlannedRun


def carry_out_on_ray(plan: "Plan", timed: Timed) -> None:
    """All runs that wait."""
    from fedcohort.runs.comparison import attempt

    means, schedule = plan.experiment.means, timed.schedule
    sent = means.data == "sent"
    with connected(means.ray) as cluster:
        if len(schedule.waiting) > 1 and len(schedule.waiting) >= len(cluster.nodes()):
            with RayPool(cluster, len(schedule.waiting), timed) as pool:
                pool.carry_out(timed, plan.home, sent)
            return
        refuse_other_engines(means)
        while schedule.waiting:
            job = schedule.next()
            read = None if sent else partial(read_clients, job)
            attempt(job, timed, partial(RayEngine, cluster=cluster, read=read))


def refuse_other_engines(means: Means) -> None:
    """Clients that are spread are trained by the pool engine, on processors."""
    for setting, asked, used in (("engine", means.engine, "pool"), ("device", means.device, "cpu")):
        if asked not in ("auto", used):
            raise UserError(
                f"run.{setting} = '{asked}': with so few runs their clients are spread over the cluster, and "
                f"trained there by the pool engine on CPUs: set run.{setting} to '{used}' or 'auto'"
            )


def read_clients(job: "PlannedRun") -> Federation:
    """On another machine: all clients, as the method sees them."""
    return job.experiment.task(job.seed).for_method(job.method).data
