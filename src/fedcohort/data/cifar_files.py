"""The two official layouts of CIFAR-10 and CIFAR-100, and where to get them.

The binary layout is read as it is. The Python layout is a pickle, and a pickle can run any code: it is read
by an unpickler that knows nothing but arrays and plain values.
"""

import io
import os
import pickle
import shutil
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.data.locate import Places, Remote
from fedcohort.util.errors import UserError

PIXELS = 3 * 32 * 32


def _empty_array(*_: Any) -> np.ndarray:
    """What a pickle fills with the bytes it holds; one that asked for a shape would get its memory first."""
    return np.empty(0, dtype=np.uint8)


HARMLESS = {  # what a pickle of arrays asks for, and what it gets
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
}
LARGEST = 1 << 30  # bytes of a record file; the official ones have 154 million at most


@dataclass(frozen=True)
class CifarFiles:
    """File names of one data set; ``labels`` are the label columns in the order of the binary records."""

    folders: tuple[str, ...]  # usual names of the folder; the first is the binary layout's own
    train: tuple[str, ...]  # without the binary layout's ".bin"
    test: tuple[str, ...]
    labels: tuple[str, ...]
    archive: Remote

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test


CIFAR10 = CifarFiles(
    ("cifar-10-batches-bin", "cifar10", "cifar-10-batches-py", "cifar10/cifar-10-batches-bin"),
    tuple(f"data_batch_{batch}" for batch in range(1, 6)),
    ("test_batch",),
    ("labels",),
    Remote("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),
)
CIFAR100 = CifarFiles(
    ("cifar-100-binary", "cifar100", "cifar-100-python", "cifar100/cifar-100-binary"),
    ("train",),
    ("test",),
    ("coarse_labels", "fine_labels"),
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"
    ),
)
Part = tuple[np.ndarray, dict[str, np.ndarray]]  # images [n, 3, 32, 32], label columns


def read_cifar(where: Places, layout: CifarFiles) -> tuple[Part, Part, Path]:
    """Training part, test part and the folder they came from."""
    folder = _locate(where, layout)
    binary = (folder / f"{layout.files[0]}.bin").is_file()

    def read(files: tuple[str, ...]) -> Part:
        parts = [
            _binary(folder / f"{f}.bin", layout) if binary else _pickled(folder / f, layout) for f in files
        ]
        labels = {name: np.concatenate([part[1][name] for part in parts]) for name in layout.labels}
        return np.concatenate([part[0] for part in parts]), labels

    return read(layout.train), read(layout.test), folder


def _locate(where: Places, layout: CifarFiles) -> Path:
    from fedcohort.data.sheets import expand, is_sheets

    folders = where.folders(layout.folders)
    for folder in folders:
        for ending in (".bin", ""):
            if all((folder / f"{file}{ending}").is_file() for file in layout.files):
                return folder
    for folder in folders:
        if is_sheets(folder):
            return expand(folder, where.cache)
    archive = layout.archive.url.rpartition("/")[2]
    return _unpack(
        where.fetch(layout.folders, (archive,), layout.archive), where.cache / layout.folders[0], layout
    )


def _unpack(archive: Path, target: Path, layout: CifarFiles) -> Path:
    """Take the record files out of the archive; ``target`` appears only when complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="unpacking-", dir=target.parent))
    try:
        with tarfile.open(archive) as tar:
            for file in layout.files:
                member = tar.extractfile(f"{layout.folders[0]}/{file}.bin")
                if member is None or tar.getmember(f"{layout.folders[0]}/{file}.bin").size > LARGEST:
                    raise KeyError(file)
                with member, (part / f"{file}.bin").open("wb") as out:
                    shutil.copyfileobj(member, out)
        shutil.rmtree(target, ignore_errors=True)
        return part.replace(target)
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{archive} is not the CIFAR archive ({error}): delete it and try again") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _binary(path: Path, layout: CifarFiles) -> Part:
    width = len(layout.labels) + PIXELS
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size == 0 or raw.size % width:
        raise UserError(f"{path} is cut short or damaged: fetch it again")
    records = raw.reshape(-1, width)
    labels = {name: records[:, column].astype(np.int64) for column, name in enumerate(layout.labels)}
    return records[:, len(layout.labels) :].reshape(-1, 3, 32, 32), labels


def write_binary(path: Path, images: np.ndarray, labels: list[np.ndarray]) -> None:
    """The official record file: label bytes, then the red, green and blue planes of each image."""
    records = np.concatenate(
        [np.stack(labels, 1).astype(np.uint8), images.reshape(len(images), PIXELS)], axis=1
    )
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(records.tobytes())
    part.replace(path)


def _pickled(path: Path, layout: CifarFiles) -> Part:
    table = unpickle_arrays(path)
    pixels, labels = table.get("data"), [table.get(name) for name in layout.labels]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.size % PIXELS:
        raise UserError(f"{path} is not a CIFAR batch, for its 'data' are no images: fetch it again")
    if not all(
        isinstance(own, list) and all(type(each) is int and 0 <= each < 256 for each in own) for own in labels
    ):
        raise UserError(f"{path} is not a CIFAR batch, for its labels are no classes: fetch it again")
    named = {name: np.array(own, dtype=np.int64) for name, own in zip(layout.labels, labels, strict=True)}
    return pixels.reshape(-1, 3, 32, 32), named


def unpickle_arrays(path: Path) -> dict[str, Any]:
    """A pickled table of arrays and plain values; anything that could run code is refused."""
    try:
        table = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises anything
        raise UserError(f"{path} is damaged or holds more than arrays ({error}): fetch it again") from error
    if not isinstance(table, dict) or not all(isinstance(key, str | bytes) for key in table):
        raise UserError(f"{path} is not a CIFAR batch: fetch it again")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in table.items()}


class _ArraysOnly(pickle._Unpickler):
    """The unpickler written in Python: the quicker one takes memory for whatever number a pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return HARMLESS[module, name]
