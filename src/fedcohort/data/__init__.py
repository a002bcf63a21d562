"""Data for federations: load a source, deal it to clients, split each client.

>>> from fedcohort.data import federate, load
>>> from fedcohort.data.partition import partitioner
>>> federation = federate(load("digits"), partitioner("dirichlet", clients=10, alpha=0.5), seed=0)
>>> federation.num_clients, federation.num_classes, federation.shape
(10, 10, (1, 8, 8))
"""

from pathlib import Path
from typing import Any

from fedcohort.data.dataset import Dataset
from fedcohort.data.federation import Federation, Split
from fedcohort.data.locate import Places
from fedcohort.data.sources import SOURCES
from fedcohort.data.splitting import SplitPlan, federate
from fedcohort.util.settings import build

__all__ = ["Dataset", "Federation", "Places", "Split", "SplitPlan", "federate", "load"]


def load(name: str, /, root: str | Path | None = None, **options: Any) -> Dataset:
    """The data of source ``name``; files are first looked for under ``root``, else ``$FEDCOHORT_DATA``."""
    source = build(SOURCES.get(name), options, f"data source {name}")
    return source.load(Places.of(root))
