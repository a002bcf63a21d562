"""NumPy archives: arrays of examples and labels, perhaps with a test set and client ids."""

from dataclasses import dataclass

from fedcohort.data.dataset import Dataset
from fedcohort.data.given import Arrays, of_arrays
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register
from fedcohort.data.unpack import read_arrays
from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest


@register
@dataclass(frozen=True)
class Npz:
    """The options ``x`` to ``client_test`` are the names of the arrays; only ``x`` and ``y`` must exist."""

    path: DataPath
    x: str = "x"
    y: str = "y"
    x_test: str = "x_test"
    y_test: str = "y_test"
    client: str = "client"
    client_test: str = "client_test"
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        arrays = read_arrays(where.file(self.path))
        for name in (self.x, self.y):
            if name not in arrays:
                raise UserError(f"{self.path} has no array '{name}'{nearest(name, arrays)}")
        train, test = (
            Arrays(*(arrays.get(name) for name in names))
            for names in ((self.x, self.y, self.client), (self.x_test, self.y_test, self.client_test))
        )
        return of_arrays(train, test, self.normalise, {"source": "npz", "path": self.path})
