"""``fc.load_model``: a model folder as a module that answers rows of tables, texts or arrays.

=================== ====================================================================================
model.safetensors   the weights
model.json          all else: columns and their order, categories, words, scale, classes, architecture
model.pt2           the same for others, made by torch.export; never read here, because it can hold code
README.md           the model card
=================== ====================================================================================

A folder may be damaged, or anybody's: nothing in it is executed, and every number keeps to bounds.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.data.preparation import Preparation
from fedcohort.data.scaling import Scale
from fedcohort.serving.architecture import Architecture
from fedcohort.serving.rows import as_rows, check_rows
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.files import LARGE, damaged, fields, read_bytes, read_json
from fedcohort.util.settings import build
from fedcohort.util.words import counted

if TYPE_CHECKING:
    import polars as pl

WEIGHTS, FACTS = "model.safetensors", "model.json"
FORMAT = 1
AGAIN = "export the model again"
CELLS = 2**22  # numbers of examples that are looked at together
WIDE = 2**27  # ... that a layer makes of them: half a gigabyte
CLASSES = 10_000
HINTS = {
    "architecture": dict,
    "classes": tuple[str, ...],
    "preparation": dict,
    "scaling": dict | None,
    "serves": str,
    "weights": str,
}


class ServedModel(nn.Module):
    """A network with all that it takes to answer somebody's rows. ``forward`` maps examples, as
    ``preparation`` makes them of rows, to logits."""

    mean: Tensor
    std: Tensor
    fill: Tensor

    def __init__(
        self,
        network: nn.Module,
        architecture: Architecture,
        classes: tuple[str, ...],
        preparation: Preparation,
        scaling: Scale | None,
        serves: str = "",
        widest: int = 1,
    ) -> None:
        """``scaling`` is None where examples are token ids; ``serves`` says whose model it is, and ``widest``
        how many numbers the network makes of one example, where that is known."""
        super().__init__()
        self.network, self.architecture, self.classes = network, architecture, classes
        self.preparation, self.scaling, self.serves, self.widest = preparation, scaling, serves, widest
        for name, value in () if scaling is None else scaling._asdict().items():
            self.register_buffer(name, value.reshape(-1, *[1] * (len(architecture.shape) - 1)))

    def forward(self, x: Tensor) -> Tensor:
        if self.scaling is not None:
            x = (torch.where(x.isnan(), self.fill, x) - self.mean) / self.std
        logits: Tensor = self.network(x)
        return logits

    @torch.no_grad()
    def predict_proba(self, data: Any) -> np.ndarray:
        """``[n, classes]`` of a frame of pandas or Polars, a list of texts, or an array."""
        rows = as_rows(data, self.preparation)
        check_rows(rows, self.preparation)
        self.eval()
        out = torch.cat([self(x).double().softmax(1) for x in self._examples(rows)])
        if odd := int((~out.isfinite()).any(1).sum()):
            raise UserError(
                f"numbers in {counted(odd, 'row')} are too far from those of training: correct them"
            )
        return out.numpy()

    def _examples(self, rows: "pl.DataFrame | np.ndarray") -> Iterator[Tensor]:
        """Some rows at a time: texts take much more room as numbers."""
        shape, kind = self.architecture.shape, torch.int64 if self.architecture.vocabulary else torch.float32
        piece = max(1, min(CELLS // math.prod(shape), WIDE // self.widest))
        for start in range(0, len(rows), piece):
            x = self.preparation.encode(rows[start : start + piece])
            if tuple(x.shape[1:]) != shape:
                raise UserError(f"examples have shape {tuple(x.shape[1:])} and the model reads {shape}")
            if kind == torch.int64 and not bool(((x >= 0) & (x < self.architecture.vocabulary)).all()):
                raise UserError(f"token ids run from 0 to {self.architecture.vocabulary - 1}: correct them")
            yield x.to(kind)

    def predict(self, data: Any, threshold: float = 0.0) -> np.ndarray:
        """The likeliest class of each row; none (None) where its probability is below ``threshold``."""
        if not 0 <= threshold <= 1:
            raise UserError(f"threshold {threshold:g}: probabilities are between 0 and 1")
        return self.named(self.predict_proba(data), threshold)

    def named(self, probabilities: np.ndarray, threshold: float = 0.0) -> np.ndarray:
        names = np.array(self.classes, dtype=object)[probabilities.argmax(1)]
        names[probabilities.max(1) < threshold] = None
        return names

    def save(self, folder: Path, private: bool = False) -> None:
        """Writes what :func:`load_model` reads, ``private``: for the owner's eyes, as words of rows are."""
        from safetensors.torch import save

        own = self.network.state_dict().items()
        weights = save({name: tensor.clone().contiguous() for name, tensor in own})  # as the format wants it
        scaling = None if self.scaling is None else self.scaling.facts()
        told = {
            "format": FORMAT,
            "serves": self.serves,
            "classes": self.classes,
            "preparation": self.preparation.facts(),
            "scaling": scaling,
            "architecture": asdict(self.architecture),
            "weights": hashlib.sha256(weights).hexdigest(),
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / WEIGHTS, weights, private=private)
        write_atomically(folder / FACTS, (json.dumps(told, indent=1) + "\n").encode(), private=private)


def load_model(path: str | Path, net: nn.Module | None = None, allow: Collection[str] = ()) -> ServedModel:
    """The model that ``fedcohort export`` wrote into the folder ``path``.

    A network of your own is given as ``net``, whose weights are taken from the folder, or made by the
    ``"module:function"`` that the folder names, if that is in ``allow``.
    """
    folder = Path(path)
    file = folder / FACTS
    if not file.exists():
        raise UserError(f"{folder} is no model folder: it holds no {FACTS}; 'fedcohort export' writes one")
    facts = read_json(file, AGAIN)
    version = facts.get("format") if isinstance(facts, dict) else None
    if version != FORMAT:
        raise UserError(
            f"{folder} is a model of format {version!r:.20}, and this fedcohort reads {FORMAT}: {AGAIN} "
            "with this version, or use the one that wrote it"
        )
    told = fields(facts, HINTS, file, AGAIN)
    try:
        architecture = build(Architecture, told["architecture"], "architecture")
        scaling = _scaling(told["scaling"], architecture)
    except (UserError, ValueError, TypeError, OverflowError) as error:
        raise damaged(file, error, AGAIN) from None
    classes, preparation = told["classes"], Preparation.of(told["preparation"], file, AGAIN)
    fits = preparation.fits(architecture.shape, architecture.vocabulary)
    if not fits or not len({*classes}) == len(classes) <= CLASSES:
        raise damaged(file, "its parts do not fit together", AGAIN)
    if net is None and not architecture.known and architecture.name not in allow:
        raise UserError(
            f"the network of {folder} is made by '{architecture.name}', code that is not fedcohort's: if you "
            f"know what that does, give --allow {architecture.name} (to 'fedcohort export': --trust), or the "
            "network itself to fc.load_model(path, net=...)"
        )
    try:
        network, widest = architecture.empty(len(classes), net)
    except ValueError as error:
        raise damaged(file, error, AGAIN) from None
    _fill(network, folder / WEIGHTS, told["weights"])
    return ServedModel(network, architecture, classes, preparation, scaling, told["serves"], widest).eval()


def _scaling(facts: Any, architecture: Architecture) -> Scale | None:
    if (facts is None) != bool(architecture.vocabulary):
        raise ValueError("a scale of token ids, or none of numbers")
    if facts is None:
        return None
    return Scale.read(facts, *architecture.shape[:1])  # no shape: of nothing


def _fill(network: nn.Module, path: Path, digest: str) -> None:
    """Gives the network its weights, if they are those that were written and are numbers of its shapes."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_bytes(path, LARGE, AGAIN)
    if hashlib.sha256(data).hexdigest() != digest:
        raise damaged(path, "it is not what was written", AGAIN)
    try:
        tensors = load(data)  # refuses what does not add up to these bytes
    except (SafetensorError, ValueError, KeyError) as error:
        raise damaged(path, error, AGAIN) from None
    like = {name: (own.shape, own.dtype) for name, own in network.state_dict().items()}
    if {name: (own.shape, own.dtype) for name, own in tensors.items()} != like:
        raise damaged(path, "its weights are those of another network", AGAIN)
    if not all(bool(own.isfinite().all()) for own in tensors.values()):
        raise damaged(path, "weights are NaN or infinite", AGAIN)
    network.load_state_dict(tensors, assign=True)
