"""Writes the folder of a model in use: weights, all that reads rows, the same for others, and a card."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedcohort.serving.model import ServedModel
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import in_words

PROGRAM, CARD = "model.pt2", "README.md"
CACHE = "TORCHINDUCTOR_CACHE_DIR"


def write_model(model: ServedModel, card: str, out: Path) -> None:
    """Into a folder that is new or empty."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is there already, and nothing is overwritten: choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / CARD, card.encode())
        _write_program(model, out / PROGRAM)
        model.save(out)  # the last: a folder with it is complete
    except OSError as error:
        raise UserError(f"cannot write to {out} ({error.strerror}): choose another --out") from None


def _write_program(model: ServedModel, path: Path) -> None:
    """For programs without fedcohort: examples in, logits out, any number at a time."""
    shape, vocabulary = model.architecture.shape, model.architecture.vocabulary
    examples = torch.zeros(2, *shape, dtype=torch.int64 if vocabulary else torch.float32)
    try:
        rows = {"x": {0: torch.export.Dim("rows")}}
        with _own_cache():
            program = torch.export.export(model, (examples,), dynamic_shapes=rows, strict=False)
            torch.export.save(program, path)
    except OSError:
        raise
    except Exception as error:  # somebody else's network: anything may happen
        path.unlink(missing_ok=True)
        warnings.warn(
            f"{path.name} is left out, as torch.export cannot write this network ({in_words(error):.200}); "
            "'fedcohort predict' does not need it",
            RuntimeWarning,
            stacklevel=3,
        )


@contextmanager
def _own_cache() -> Iterator[None]:
    """PyTorch would read files in a folder below /tmp whose name anybody can guess, and so make first."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            if before is not None:
                os.environ[CACHE] = before
