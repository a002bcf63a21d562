"""fedcohort: federated learning when clients' data differ.

>>> import fedcohort as fc
>>> federation = fc.federate(fc.load("digits"), fc.partitioner("dirichlet", clients=30, alpha=0.1))
>>> task = fc.Task.of(federation, "mlp", {"widths": [64]}, local=fc.Local(lr=0.1, batch=16), cohort=6)
>>> result = fc.run("fedlecc+fedprox(mu=0.01)", task, rounds=2)
>>> sorted(result.metrics)[:2]
['ad', 'adjusted_rand']

Names are imported when they are first used, so that ``import fedcohort`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedcohort.util.moved import forward

forward()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedcohort.api import register
    from fedcohort.core.faults import Faults
    from fedcohort.core.method import Method
    from fedcohort.core.profile import Local, Privacy, Profile
    from fedcohort.core.roles import (
        Adaptation,
        Aggregator,
        Averaging,
        Grouping,
        Objective,
        Selector,
        ServerOptimiser,
        Transform,
    )
    from fedcohort.core.task import Task
    from fedcohort.data import Dataset, Federation, SplitPlan, federate, load
    from fedcohort.data.partition import partitioner
    from fedcohort.diagnosis import Diagnosis, diagnose, read_counts
    from fedcohort.presets import preset
    from fedcohort.python.classifier import FederatedClassifier
    from fedcohort.python.comparison import Comparison
    from fedcohort.python.experiment import Experiment
    from fedcohort.report import write_diagnosis, write_report
    from fedcohort.runs.advice import Advice, advise
    from fedcohort.runs.outcomes.results import results
    from fedcohort.runs.run import Evaluation, Result, run
    from fedcohort.serving.model import ServedModel, load_model
    from fedcohort.util.errors import UserError

_HOMES = {
    "fedcohort.runs.advice": ["Advice", "advise"],
    "fedcohort.core.faults": ["Faults"],
    "fedcohort.api": ["register"],
    "fedcohort.core.method": ["Method"],
    "fedcohort.core.roles": [
        "Adaptation",
        "Aggregator",
        "Averaging",
        "Grouping",
        "Objective",
        "Selector",
        "ServerOptimiser",
        "Transform",
    ],
    "fedcohort.core.profile": ["Local", "Privacy", "Profile"],
    "fedcohort.core.task": ["Task"],
    "fedcohort.data": ["Dataset", "Federation", "SplitPlan", "federate", "load"],
    "fedcohort.diagnosis": ["Diagnosis", "diagnose", "read_counts"],
    "fedcohort.util.errors": ["UserError"],
    "fedcohort.python.classifier": ["FederatedClassifier"],
    "fedcohort.python.comparison": ["Comparison"],
    "fedcohort.python.experiment": ["Experiment"],
    "fedcohort.data.partition": ["partitioner"],
    "fedcohort.presets": ["preset"],
    "fedcohort.report": ["write_diagnosis", "write_report"],
    "fedcohort.runs.outcomes.results": ["results"],
    "fedcohort.runs.run": ["Evaluation", "Result", "run"],
    "fedcohort.serving.model": ["ServedModel", "load_model"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Adaptation", "Advice", "Aggregator", "Averaging", "Comparison", "Dataset", "Diagnosis", "Evaluation",
    "Experiment", "Faults", "FederatedClassifier", "Federation", "Grouping", "Local", "Method", "Objective",
    "Privacy", "Profile", "Result", "Selector", "ServedModel", "ServerOptimiser", "SplitPlan", "Task",
    "Transform", "UserError", "advise", "diagnose", "federate", "load", "load_model", "partitioner", "preset",
    "read_counts", "register", "results", "run", "write_diagnosis", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcohort' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
