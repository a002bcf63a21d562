"""The model of each client, where clients make their own of the one that serves them: kept when a run ends.

They follow from the last checkpoint and the clients' data; whoever uses one later has no data.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from fedcohort.models.flat import Weights
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged

OWN = "own.safetensors"


def write_models(directory: Path, models: Sequence[Weights]) -> None:
    """A row of each tensor for each client."""
    from safetensors.torch import save

    rows = {name: torch.stack([getattr(model, name) for model in models]) for name in Weights._fields}
    write_atomically(directory / OWN, save(rows), private=True)


def read_model(directory: Path, client: int, clients: int, like: Weights) -> Weights:
    """That of one of so many clients, if it is a model ``like`` this one; the others stay on the disk."""
    from safetensors import SafetensorError, safe_open

    path, again = directory / OWN, "restore it, or start the run again"
    if not path.is_file():
        raise UserError(f"{path}, which has the models of its clients, is missing: {again}")
    try:
        with safe_open(path, framework="pt") as file:
            tables = {name: file.get_slice(name) for name in Weights._fields}
            shapes = [(clients, len(getattr(like, name))) for name in tables]
            if [tuple(table.get_shape()) for table in tables.values()] != shapes:
                raise damaged(path, "its models are not those of the run", again)
            model = Weights(**{name: table[client] for name, table in tables.items()})
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged(path, error, again) from None
    if not all(own.dtype == torch.float32 and bool(own.isfinite().all()) for own in model):
        raise damaged(path, "its weights are no numbers", again)
    return model
