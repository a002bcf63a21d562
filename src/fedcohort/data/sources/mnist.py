"""MNIST: 70,000 handwritten digits, 28 x 28; with QMNIST's files also who wrote each of them.

LeCun, Bottou, Bengio, Haffner (1998); Yadav, Bottou: Cold Case: the Lost MNIST Digits (NeurIPS 2019),
https://arxiv.org/abs/1905.10498
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedcohort.data.dataset import Dataset
from fedcohort.data.idx_files import FILES, load_idx_folder, read_idx, spellings
from fedcohort.data.locate import DataPath, Places, Remote
from fedcohort.data.sources import register
from fedcohort.util.errors import UserError

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
REMOTES = {file: Remote(URL + file, f"sha256:{digest}") for file, digest in zip(FILES, SHA256, strict=True)}
QMNIST_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
QMNIST = {
    "qmnist-train-labels-idx2-int.gz": "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
    "qmnist-test-labels-idx2-int.gz": "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
}
FOLDERS = ("mnist",)
DIGIT, WRITER = 0, 2  # columns of the QMNIST files


@register
@dataclass(frozen=True)
class MNIST:
    """60,000 training and 10,000 test images; ``owner="writer"`` makes the 836 writers natural clients."""

    path: DataPath | None = None  # the folder, if not <root>/mnist
    owner: Literal["writer"] | None = None
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        where = where.at(self.path)
        digits = tuple(str(digit) for digit in range(10))
        data = load_idx_folder(where, FOLDERS, REMOTES, self.normalise, digits)
        story = {"source": "mnist", "owner": self.owner, **data.provenance}
        if self.owner is None:
            return replace(data, provenance=story)
        assert data.test_y is not None  # noqa: S101  # what is missing is fetched
        labels = (data.y.numpy(), data.test_y.numpy())
        writers = [_writers(where, file, own) for file, own in zip(QMNIST, labels, strict=True)]
        return replace(data, owner=writers[0], test_owner=writers[1], provenance=story)


def _writers(where: Places, file: str, labels: np.ndarray) -> np.ndarray:
    """Each image's writer; QMNIST lists further test digits after the first 10,000."""
    path = where.fetch(FOLDERS, spellings(file), Remote(QMNIST_URL + file, f"sha256:{QMNIST[file]}"))
    table = read_idx(path)
    if table.ndim != 2 or len(table) < len(labels) or (table[: len(labels), DIGIT] != labels).any():
        raise UserError(
            f"{path} does not describe these MNIST images: use the original MNIST and QMNIST files"
        )
    return table[: len(labels), WRITER].astype(np.int64)
