"""The four roles of a method.

========== ================================================= ==========================
role       question                                          default
========== ================================================= ==========================
Selector   who trains this round                             ``uniform``
Objective  what a client minimises, and what it remembers    ``plain``
Aggregator how one group's updates become its next model     ``fedavg``
Grouping   which model serves which client                   ``one``
========== ================================================= ==========================

A part is a frozen dataclass whose fields are its hyper-parameters; its hooks are pure functions. Whatever
changes during training is in a :class:`~fedcohort.core.state.State` and passes through the hooks as a
``Memory``: named tensors whose names and shapes stay the same from round to round. Client hooks are written
for one client; an engine decides where they run.
"""

from fedcohort.core.roles.aggregator import Aggregator
from fedcohort.core.roles.grouping import Grouping
from fedcohort.core.roles.objective import Objective
from fedcohort.core.roles.part import PROBES, USES, Part
from fedcohort.core.roles.selector import Selector

ROLES: dict[str, type[Part]] = {
    "selector": Selector,
    "objective": Objective,
    "aggregator": Aggregator,
    "grouping": Grouping,
}

__all__ = ["PROBES", "ROLES", "USES", "Aggregator", "Grouping", "Objective", "Part", "Selector"]
