"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28.

Xiao, Rasul, Vollgraf (2017), https://arxiv.org/abs/1708.07747
"""

from dataclasses import dataclass, replace

from fedcohort.data.dataset import Dataset
from fedcohort.data.idx_files import FILES, load_idx_folder
from fedcohort.data.locate import DataPath, Places, Remote
from fedcohort.data.sources import register

URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
REMOTES = {file: Remote(URL + file, f"sha256:{digest}") for file, digest in zip(FILES, SHA256, strict=True)}
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@register
@dataclass(frozen=True)
class FashionMNIST:
    """60,000 training and 10,000 test images in 10 classes."""

    path: DataPath | None = None  # the folder, if not <root>/fashion-mnist
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        folders = ("fashion-mnist", "fashion_mnist")
        data = load_idx_folder(where.at(self.path), folders, REMOTES, self.normalise, CLASSES)
        return replace(data, provenance={"source": "fashion_mnist", **data.provenance})
