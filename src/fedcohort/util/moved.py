"""Modules of 0.1.0 that own files may import, and where they are now.

The old paths work for one more version, with a warning that names the new one.
"""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NETWORKS = (
    "_vgg", "cifar_cnn", "embedding_dense", "embedding_lstm", "fedgwc_cnn", "fmnist_cnn", "lenet5",
    "logistic", "mlp", "mobilenet_v2", "vgg11", "vgg19",
)  # fmt: skip
MOVED = {
    "fedcohort.augment": "fedcohort.data.augment",
    "fedcohort.checkpoint": "fedcohort.util.checkpoint",
    "fedcohort.cluster": "fedcohort.stats.clustering",
    "fedcohort.comparison": "fedcohort.runs.comparison",
    "fedcohort.core.flat": "fedcohort.models.flat",
    "fedcohort.core.keyed": "fedcohort.util.keyed",
    "fedcohort.core.layers": "fedcohort.models.last_layer",
    "fedcohort.core.limits": "fedcohort.util.memory_limit",
    "fedcohort.core.loop": "fedcohort.core.round.loop",
    "fedcohort.core.parts": "fedcohort.api",
    "fedcohort.core.registry": "fedcohort.util.registry",
    "fedcohort.core.rows": "fedcohort.core.deltas",
    "fedcohort.core.settings": "fedcohort.util.settings",
    "fedcohort.data.places": "fedcohort.data.locate",
    "fedcohort.diagnosis.distances": "fedcohort.stats.label_distances",
    "fedcohort.diagnosis.grouping": "fedcohort.stats.label_groups",
    "fedcohort.engines.loop": "fedcohort.engines.reference",
    "fedcohort.entropy": "fedcohort.stats.entropy",
    "fedcohort.errors": "fedcohort.util.errors",
    "fedcohort.evaluate": "fedcohort.core.evaluate",
    "fedcohort.experiment": "fedcohort.runs.experiment",
    "fedcohort.gaussian": "fedcohort.stats.gaussian",
    "fedcohort.histograms": "fedcohort.stats.histograms",
    "fedcohort.latency": "fedcohort.core.latency",
    "fedcohort.metrics": "fedcohort.stats.metrics",
    "fedcohort.names": "fedcohort.util.names",
    "fedcohort.own_code": "fedcohort.util.user_code",
    "fedcohort.partition": "fedcohort.data.partition",
    "fedcohort.runner": "fedcohort.runs.run",
    "fedcohort.trackers": "fedcohort.runs.trackers",
} | {f"fedcohort.models.{name}": f"fedcohort.models.networks.{name}" for name in NETWORKS}
# What an old module had and its new home has not: where that is, and other names.
BESIDE = {"fedcohort.core.parts": ("fedcohort.core.roles", "fedcohort.core.records")}
RENAMED = {"fedcohort.engines.loop": {"LoopEngine": "ReferenceEngine"}}


class _Forwarding(MetaPathFinder, Loader):
    """Finds what is not where it was; asked last, so it costs nothing while nobody uses an old path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        home = _home(fullname)
        found = importlib.util.find_spec(home) if home else None
        # A package without a place of its own: its modules are looked for here, not loaded a second time.
        return found and ModuleSpec(fullname, self, is_package=found.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        old, names = module.__name__, vars(module)
        home = _home(old)
        _warn(old, home)
        for now in map(importlib.import_module, (*BESIDE.get(old, ()), home)):
            names.update({name: value for name, value in vars(now).items() if not name.startswith("__")})
        names.update({was: names[name] for was, name in RENAMED.get(old, {}).items()})


def _home(module: str) -> str:
    """Where a module is that has moved, by itself or with its package; empty for others."""
    package, _, name = module.rpartition(".")
    return MOVED.get(module) or (f"{MOVED[package]}.{name}" if package in MOVED else "")


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is {new} now, and the old name goes with the next version; what methods, sources, partitions "
        "and networks need is in fedcohort.api",
        FutureWarning,
        stacklevel=3,
    )


def names_in(home: str, old: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of the module ``old``, some of whose names have moved to ``home``."""

    def find(name: str) -> Any:
        now = importlib.import_module(home)
        if name.startswith("_") or not hasattr(now, name):
            raise AttributeError(f"module '{old}' has no attribute '{name}'")
        _warn(f"{old}.{name}", f"{home}.{name}")
        return getattr(now, name)

    return find


def forward() -> None:
    """From now on old paths are found."""
    if not any(isinstance(finder, _Forwarding) for finder in sys.meta_path):
        sys.meta_path.append(_Forwarding())
