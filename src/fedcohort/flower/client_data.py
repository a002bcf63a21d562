"""Where a client's data come from: its own file, its own function, or its part of the experiment's data.

What is read here never leaves: answers are made of it by :mod:`.handler`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedcohort.data import Dataset, federate
from fedcohort.data.federation import ClientData
from fedcohort.data.labels import encode_labels
from fedcohort.data.partition import partitioner
from fedcohort.data.scaling import Scale
from fedcohort.flower.policy import refuse
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import own_function

Settings = Mapping[str, Any]  # of this node: data, label, empty, drop-incomplete, load, name, partition-id
EMPTY_WORDS = ","  # between the words that count as empty cells


def read_data(settings: Settings, experiment: Experiment, seed: int, scale: Any = None) -> ClientData:
    """Split and scaled as in a simulation where the experiment's table names its clients; ``scale`` is what
    the server made of all clients' moments, if it did."""
    part = settings.get("partition-id")
    if "data" in settings or "load" in settings:
        dataset = _loaded(settings, experiment) if "load" in settings else _table(settings, experiment)
        dataset = replace(dataset, owner=np.zeros(len(dataset), dtype=np.int64))
        rule = experiment.scale if scale is None else _agreed(scale, dataset)
        whole = federate(dataset, partitioner("natural"), experiment.split, seed, rule)
        return replace(whole, clients=(_name(settings),)).client(0)
    if part is None:
        raise UserError("this client has no data: give it 'data' and 'label', 'load', or 'partition-id'")
    dealt = experiment.federation(seed)
    if not 0 <= int(part) < dealt.num_clients:
        raise UserError(f"partition-id {part}: the experiment deals {dealt.num_clients} clients, from 0")
    return dealt.client(int(part))


def _agreed(scale: Any, dataset: Dataset) -> Scale:
    """The scale that a server sent. It can do no more with it than with the first layer of a model."""
    try:
        return Scale.read(scale, *dataset.shape[:1])
    except (ValueError, TypeError) as error:
        raise refuse(f"to use {error}") from None


def _name(settings: Settings) -> str:
    """What reports call this client: what it wants, else its number or its file's name."""
    if "name" in settings:
        return str(settings["name"])
    if "partition-id" in settings:
        return f"client {settings['partition-id']}"
    return Path(str(settings["data"])).name.partition(".")[0] if "data" in settings else "client"


def _table(settings: Settings, experiment: Experiment) -> Dataset:
    """The client's CSV or Parquet file, read with the experiment's options for tables."""
    from fedcohort.data.own_table import own_table
    from fedcohort.data.sources.table import refuse_apart

    if experiment.data["source"] == "table":
        refuse_apart(experiment.data, experiment.scale)
    # Whoever chooses which words count as empty, or which rows are left out, could tell from what is left
    # which words there are.
    own = {
        "empty": [word for word in str(settings.get("empty", "")).split(EMPTY_WORDS) if word],
        "drop_incomplete": bool(settings.get("drop-incomplete", False)),
        **({"label": settings["label"]} if "label" in settings else {}),
    }
    table, frame = own_table(experiment.data, Path(settings["data"]).expanduser(), **own)
    return table.of(frame, None, share=True)


def _loaded(settings: Settings, experiment: Experiment) -> Dataset:
    """What the client's function ``module:function`` returns: ``(x, y)``, or a Dataset."""
    loaded = own_function(str(settings["load"]), "load")(
        settings.get("name", settings.get("partition-id", ""))
    )
    if isinstance(loaded, Dataset):
        return replace(loaded, share=True)
    if not isinstance(loaded, tuple) or len(loaded) != 2:
        raise UserError(f"load = '{settings['load']}' returned no pair of examples and labels: return (x, y)")
    x, y = (np.asarray(part) for part in loaded)
    if x.dtype.kind not in "fiub":
        raise UserError(f"load = '{settings['load']}' returned examples of {x.dtype}: make them numbers")
    named = experiment.data.get("classes")
    every = tuple(str(name) for name in named) if isinstance(named, list | tuple) else None
    labels, _, classes = encode_labels(y, every=every)
    return Dataset(torch.from_numpy(x.astype(np.float32)), labels, classes, share=True)
