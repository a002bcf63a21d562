"""The roles of a method, each one question.

================ ================================================= ==========================
role             question                                          default
================ ================================================= ==========================
Selector         who trains this round                             ``uniform``
Objective        what a client minimises, and what it remembers    ``plain``
Averaging        how one group's updates become one move           ``fedavg``
ServerOptimiser  how the server steps along that move              ``server_sgd``
Grouping         which model serves which client                   ``one``
Adaptation       what a client makes of it before it uses it       ``unchanged``
Transform        what becomes of an update before it is averaged   none; any number, in order
================ ================================================= ==========================

A part is a frozen dataclass whose fields are its hyper-parameters; its hooks are pure functions. Whatever
changes during training is in a :class:`~fedcohort.core.state.State` and passes through the hooks as a
``Memory``: named tensors whose names and shapes stay the same from round to round. Client hooks are written
for one client; an engine decides where they run.

What few methods need is in :mod:`~fedcohort.core.roles.optional`: a part that inherits from one of those
classes is asked for more.
"""

from fedcohort.core.roles.adaptation import Adaptation
from fedcohort.core.roles.aggregator import Aggregator
from fedcohort.core.roles.averaging import Averaging
from fedcohort.core.roles.grouping import Grouping
from fedcohort.core.roles.objective import Objective
from fedcohort.core.roles.part import PROBES, USES, Part
from fedcohort.core.roles.selector import Selector
from fedcohort.core.roles.server_optimiser import ServerOptimiser
from fedcohort.core.roles.transform import Transform

ROLES: dict[str, type[Part]] = {
    "selector": Selector,
    "objective": Objective,
    "averaging": Averaging,
    "server_optimiser": ServerOptimiser,
    "grouping": Grouping,
    "adaptation": Adaptation,
    "transform": Transform,
}

__all__ = [
    "PROBES", "ROLES", "USES", "Adaptation", "Aggregator", "Averaging", "Grouping", "Objective", "Part",
    "Selector", "ServerOptimiser", "Transform",
]  # fmt: skip
