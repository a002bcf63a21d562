"""Modules of 0.1.0 that own files may import, and where they are now.

The old paths work for one more version, with a warning that names the new one.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "fedcohort.augment": "fedcohort.data.augment",
    "fedcohort.checkpoint": "fedcohort.util.checkpoint",
    "fedcohort.cluster": "fedcohort.stats.clustering",
    "fedcohort.comparison": "fedcohort.runs.comparison",
    "fedcohort.core.flat": "fedcohort.models.flat",
    "fedcohort.core.keyed": "fedcohort.util.keyed",
    "fedcohort.core.layers": "fedcohort.models.last_layer",
    "fedcohort.core.loop": "fedcohort.core.round.loop",
    "fedcohort.core.parts": "fedcohort.api",
    "fedcohort.core.registry": "fedcohort.util.registry",
    "fedcohort.core.settings": "fedcohort.util.settings",
    "fedcohort.data.places": "fedcohort.data.locate",
    "fedcohort.diagnosis.distances": "fedcohort.stats.label_distances",
    "fedcohort.entropy": "fedcohort.stats.entropy",
    "fedcohort.errors": "fedcohort.util.errors",
    "fedcohort.evaluate": "fedcohort.core.evaluate",
    "fedcohort.experiment": "fedcohort.runs.experiment",
    "fedcohort.gaussian": "fedcohort.stats.gaussian",
    "fedcohort.histograms": "fedcohort.stats.histograms",
    "fedcohort.metrics": "fedcohort.stats.metrics",
    "fedcohort.partition": "fedcohort.data.partition",
    "fedcohort.runner": "fedcohort.runs.run",
    "fedcohort.trackers": "fedcohort.runs.trackers",
}


class _Forwarding(MetaPathFinder, Loader):
    """Finds what is not where it was; asked last, so it costs nothing while nobody uses an old path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        home = MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} is {home} now, and the old name goes with the next version; what methods, "
            "sources, partitions and networks need is in fedcohort.api",
            FutureWarning,
            stacklevel=2,
        )
        now = importlib.import_module(home)
        vars(module).update({name: value for name, value in vars(now).items() if not name.startswith("__")})


def forward() -> None:
    """From now on old paths are found."""
    if not any(isinstance(finder, _Forwarding) for finder in sys.meta_path):
        sys.meta_path.append(_Forwarding())
