"""Any folder of IDX files with MNIST's file names."""

from dataclasses import dataclass, replace

from fedcohort.data.dataset import Dataset
from fedcohort.data.idx_files import load_idx_folder
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register


@register
@dataclass(frozen=True)
class Idx:
    """``train-images-idx3-ubyte`` and its label file, with or without the ``t10k`` pair and ``.gz``."""

    path: DataPath  # the folder
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        data = load_idx_folder(where.at(self.path), ("idx",), {}, self.normalise, None)
        return replace(data, provenance={"source": "idx", "path": self.path, **data.provenance})
