"""Data that a Python program gave: an experiment file can say what they were, and not hold them."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fedcohort.data.dataset import Dataset
from fedcohort.data.given import fingerprint_of
from fedcohort.data.locate import Places
from fedcohort.data.sources import register
from fedcohort.util.errors import UserError

KEPT: WeakValueDictionary[str, Dataset] = WeakValueDictionary()  # by fingerprint, while somebody holds them


@register
@dataclass(frozen=True)
class Memory:
    """Written by ``fc.Experiment(data=...)``; found again in the program that holds the same data."""

    fingerprint: str
    examples: int
    shape: tuple[int, ...]
    classes: int
    clients: int | None = None  # of its own, if the data name them

    def load(self, where: Places) -> Dataset:
        if self.fingerprint not in KEPT:
            shape = "x".join(map(str, self.shape))
            raise UserError(
                "the data of this experiment were in the memory of a Python program "
                f"({self.examples:,} examples of shape {shape}, sha256 {self.fingerprint[:12]}...): continue "
                "it there, with fc.Experiment(..., data=...).run(resume='DIR')"
            )
        return KEPT[self.fingerprint]


def keep(dataset: Dataset) -> dict[str, Any]:
    """The settings by which these data are found as long as somebody else holds them."""
    own = None if dataset.owner is None else len({str(each) for each in dataset.owner.tolist()})
    told = Memory(fingerprint_of(dataset), len(dataset), dataset.shape, dataset.num_classes, own)
    KEPT.setdefault(told.fingerprint, dataset)
    return {"source": "memory", **{key: value for key, value in vars(told).items() if value is not None}}
