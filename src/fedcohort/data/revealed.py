"""What clients revealed of their data before training, as a run directory keeps it for those who look later.

Names, sizes and, unless withheld, label counts as the server saw them: with it a report needs no data. Only
the owner of the directory can read the file.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.data.federation import Federation, Split, fingerprint
from fedcohort.data.scaling import Scale
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.files import LARGE, damaged, fields, parse_json, read_bytes
from fedcohort.util.settings import between

MANY = 2.0**53  # beyond it a number of samples is none
EXAMPLE = 2**40  # most numbers of one example
FACTS = {
    "clients": tuple[str, ...],
    "classes": tuple[str, ...],
    "shape": tuple[Annotated[int, between(1, EXAMPLE)], ...],
    "vocabulary": Annotated[int, between(0, EXAMPLE)],
    "keys": tuple[str, ...],
}


@dataclass(frozen=True, eq=False)
class Revealed:
    """Everything that is known of K clients and C classes without an example."""

    clients: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one example
    vocabulary: int
    sizes: Tensor  # [3, K] of training, validation and test data
    counts: Tensor | None = None  # [K, C] as revealed; None: withheld
    summaries: Mapping[str, Tensor] = field(default_factory=dict)  # [K, ...] of each part that asked for one
    keys: tuple[str, ...] = ()  # by which clients that are elsewhere are known again
    scale: Scale | None = None  # by which all their numbers were scaled, if by one

    truth = iid = None  # of real clients nobody knows

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def encoded(self, encode: Callable[[Tensor], Tensor], width: int) -> "Revealed":
        """Of the same clients, once they have ``width`` features in place of each example."""
        return replace(self, shape=(width,))

    def without_validation(self) -> "Revealed":
        """Of the same clients, if what they hold out is training data, too."""
        train, held, test = self.sizes
        return replace(self, sizes=torch.stack([train + held, torch.zeros_like(held), test]))

    def fingerprint(self) -> str:
        """That of a federation with these sizes and classes whose examples are elsewhere."""
        x = torch.zeros(0, *self.shape, dtype=torch.long if self.vocabulary else torch.float32)
        nothing = torch.zeros(0, dtype=torch.long)
        offsets = F.pad(self.sizes.cumsum(1), (1, 0))
        return fingerprint([Split(x, nothing, nothing, own) for own in offsets], self.classes)

    @classmethod
    def of(
        cls,
        federation: Federation,
        counts: Tensor | None,
        summaries: Mapping[str, Tensor],
        keys: tuple[str, ...] = (),
    ) -> "Revealed":
        names = federation.clients, federation.classes, federation.shape, federation.vocabulary
        return cls(*names, federation.sizes, counts, summaries, keys, federation.scale)

    def write(self, path: Path) -> None:
        from safetensors.torch import save

        facts = {name: getattr(self, name) for name in FACTS}
        tensors = {f"summary/{name}": table for name, table in self.summaries.items()}
        tensors["sizes"] = self.sizes
        if self.counts is not None:
            tensors["counts"] = self.counts
        if self.scale is not None:
            tensors |= {f"scale/{name}": torch.tensor(own) for name, own in self.scale.facts().items()}
        write_atomically(path, save(tensors, {"facts": json.dumps(facts)}), private=True)

    @classmethod
    def read(cls, path: Path) -> "Revealed":
        """The inverse; whatever does not fit together is damage."""
        tensors, facts = _parse(path)
        scale = _scale(tensors, facts["shape"], path)
        for name, table in tensors.items():
            if not (table.dtype in (torch.int64, torch.float32, torch.float64) and _sane(table)):
                raise damaged(path, f"{name} holds what is no number of samples")
        sizes, counts = tensors.pop("sizes", torch.zeros(0)), tensors.pop("counts", None)
        clients, classes, keys = facts["clients"], facts["classes"], facts["keys"]
        fits = sizes.dtype == torch.int64 and sizes.shape == (3, len(clients))
        fits &= counts is None or counts.shape == (len(clients), len(classes))
        fits &= all(name.startswith("summary/") and len(t) == len(clients) for name, t in tensors.items())
        fits &= len(keys) in (0, len(clients))
        if not fits or min(len(clients), len(classes)) == 0 or math.prod(facts["shape"]) > EXAMPLE:
            raise damaged(path, "its tables do not fit its clients and classes")
        if any(len({*names}) < len(names) for names in (clients, classes, keys)):
            raise damaged(path, "a name is there twice")
        summaries = {name.removeprefix("summary/"): table for name, table in tensors.items()}
        told = None if counts is None else counts.double()
        return cls(clients, classes, facts["shape"], facts["vocabulary"], sizes, told, summaries, keys, scale)


def _parse(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_bytes(path, LARGE)
    try:
        tensors = load(data)  # refuses what does not add up to these bytes
        head = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
        text = parse_json(head, path)["__metadata__"]["facts"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise damaged(path, error) from None
    facts = parse_json(text, path)
    return tensors, fields({"keys": [], **facts} if isinstance(facts, dict) else facts, FACTS, path)


def _scale(tensors: dict[str, Tensor], shape: Sequence[int], path: Path) -> Scale | None:
    """Taken out of ``tensors``, where the others are counts."""
    kept = {name: tensors.pop(f"scale/{name}") for name in Scale._fields if f"scale/{name}" in tensors}
    try:
        return (
            Scale.read({name: value.tolist() for name, value in kept.items()}, *shape[:1]) if kept else None
        )
    except (ValueError, TypeError) as error:
        raise damaged(path, f"it holds {error}") from None


def _sane(table: Tensor) -> bool:
    """Whether all numbers are such as samples are counted by."""
    return table.dim() > 0 and bool(((table >= 0) & (table <= MANY)).all())
