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
from fedcohort.data.given import dataset_of
from fedcohort.data.locate import Places
from fedcohort.data.sources import SOURCES
from fedcohort.data.splitting import SplitPlan, federate
from fedcohort.util.settings import build

__all__ = ["Dataset", "Federation", "Places", "Split", "SplitPlan", "federate", "load"]


def load(data: Any, /, root: str | Path | None = None, **options: Any) -> Dataset:
    """The data of a source, or data that are in memory.

    ``load("digits")``, ``load("table", path=..., label=...)``: of the source of this name; files are first
    looked for under ``root``, else ``$FEDCOHORT_DATA``.

    ``load((X, y))``, ``load(X, y=..., clients=...)``: arrays of any kind, with one label and one client id
    for each row; ``test=(X, y)`` or ``(X, y, clients)`` is the official test set.

    ``load(frame, label="outcome", client="hospital")``: a table of pandas or Polars, with the options of the
    source ``table``; ``test`` is another one.

    ``load(dataset, clients=...)``: any map-style ``torch.utils.data.Dataset`` of pairs (example, label).
    Every item is asked for once, so random transforms are drawn once.

    What is in memory is copied and never changed.
    """
    if not isinstance(data, str):
        return dataset_of(data, **options)
    source = build(SOURCES.get(data), options, f"data source {data}")
    return source.load(Places.of(root))
