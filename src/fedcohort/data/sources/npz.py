"""NumPy archives: arrays of examples and labels, perhaps with a test set and client ids."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcohort.core.settings import nearest
from fedcohort.data.dataset import Dataset
from fedcohort.data.features import scale_arrays
from fedcohort.data.labels import encode_labels
from fedcohort.data.places import Places
from fedcohort.data.sources import register
from fedcohort.errors import UserError


@register
@dataclass(frozen=True)
class Npz:
    """The options ``x`` to ``client_test`` are the names of the arrays; only ``x`` and ``y`` must exist."""

    path: str
    x: str = "x"
    y: str = "y"
    x_test: str = "x_test"
    y_test: str = "y_test"
    client: str = "client"
    client_test: str = "client_test"
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        arrays = _read(where.file(self.path))
        for name in (self.x, self.y):
            if name not in arrays:
                raise UserError(f"{self.path} has no array '{name}'{nearest(name, arrays)}")
        x, test_x, story = scale_arrays(arrays[self.x], arrays.get(self.x_test), self.normalise)
        y, test_y, classes = encode_labels(arrays[self.y], arrays.get(self.y_test))
        owner, test_owner = arrays.get(self.client), arrays.get(self.client_test)
        provenance = {"source": "npz", "path": self.path, **story}
        return Dataset(x, y, classes, test_x, test_y, owner, test_owner, provenance)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is not an archive of plain arrays: save it with numpy.savez(path, x=x, y=y)"
        ) from error
