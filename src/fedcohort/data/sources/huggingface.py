"""Data sets of the Hugging Face hub, or a folder saved with ``save_to_disk``; needs ``fedcohort[hf]``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedcohort.data.columns import Column
from fedcohort.data.dataset import Dataset
from fedcohort.data.features import hash_texts, numbers_of
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import HubPath, Places
from fedcohort.data.preparation import Preparation
from fedcohort.data.sources import register
from fedcohort.util.errors import UserError
from fedcohort.util.settings import between, nearest


@register
@dataclass(frozen=True)
class HuggingFace:
    """Column ``x`` may hold images, texts (hashed bags of words), numbers or lists of numbers."""

    path: HubPath  # "user/name" on the hub, or a local folder
    x: str = "image"
    y: str = "label"
    client: str | None = None
    split: str = "train"
    test_split: str | None = None
    config: str | None = None  # the hub calls it a subset
    text_width: Annotated[int, between(2, 2**16)] = 512
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        train = self._open(where, self.split)
        examples, labels, owner = self._columns(train)
        tests, test_labels, test_owner = None, None, None
        if self.test_split is not None:
            tests, test_labels, test_owner = self._columns(self._open(where, self.test_split))
        text = getattr(train.features[self.x], "dtype", None) == "string"
        x, test_x, numbers = numbers_of(examples, tests, self.normalise and not text)
        names = getattr(train.features[self.y], "names", None)
        y, test_y, classes = encode_labels(labels, test_labels, tuple(names) if names else None)
        story = {"source": "huggingface", **vars(self)}
        if text:
            story["preparation"] = Preparation((Column(self.x, text_width=self.text_width),))
        return Dataset(x, y, classes, test_x, test_y, owner, test_owner, story, numbers=numbers)

    def _columns(self, table: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Examples, labels and client ids."""
        for column in filter(None, (self.x, self.y, self.client)):
            if column not in table.column_names:
                raise UserError(f"{self.path} has no column '{column}'{nearest(column, table.column_names)}")
        owner = None if self.client is None else np.asarray(table[self.client][:]).astype(str)
        return self._examples(table), np.asarray(table[self.y][:]), owner

    def _open(self, where: Places, split: str) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise UserError(
                "the source 'huggingface' needs the datasets package: pip install 'fedcohort[hf]'"
            ) from error
        folder = Path(self.path).expanduser()
        try:
            if folder.is_dir():
                return _choose(datasets.load_from_disk(str(folder)), split, self.path)
            return self._from_hub(datasets, split, where.offline)
        except (OSError, ValueError, RuntimeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise UserError(
                f"the data set '{self.path}' cannot be loaded ({reason}): check name, split and network, "
                "or save it with save_to_disk and give that folder as 'path'"
            ) from error

    def _from_hub(self, datasets: Any, split: str, offline: bool) -> Any:
        before = datasets.config.HF_HUB_OFFLINE
        # Its own cache still serves; no waiting for a network.
        datasets.config.HF_HUB_OFFLINE = before or offline
        try:
            return datasets.load_dataset(self.path, self.config, split=split)
        finally:
            datasets.config.HF_HUB_OFFLINE = before

    def _examples(self, table: Any) -> np.ndarray:
        values = table[self.x][:]
        first: Any = values[0] if len(values) else None
        if isinstance(first, str):
            return hash_texts(values, self.text_width)
        try:
            if hasattr(first, "convert"):  # a picture
                mode = "L" if first.mode in ("1", "L") else "RGB"
                pixels = np.stack([np.asarray(picture.convert(mode)) for picture in values])
                return pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
            return np.array(values, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise UserError(
                f"the entries of column '{self.x}' differ in shape: make them equal first"
            ) from error


def _choose(data: Any, split: str, name: str) -> Any:
    if not hasattr(data, "keys"):  # a single split was saved
        if split != "train":
            raise UserError(f"{name} holds a single split: leave 'split' and 'test_split' out")
        return data
    if split not in data:
        raise UserError(f"{name} has no split '{split}'{nearest(split, data)}")
    return data[split]
