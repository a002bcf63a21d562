"""CIFAR as lossless contact sheets: pictures of 32 x 32 tiles, a fraction of the size of the record files.

A folder of sheets is expanded once into the official binary layout, which reads in a second.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path

import numpy as np

from fedcohort.data.cifar_files import write_binary
from fedcohort.data.unpack import read_arrays
from fedcohort.util.errors import UserError

TILE = 32
PER_SHEET = 5000  # of CIFAR-100: its label file lists all rows, its sheets may be some of them
MD5 = {  # of the official record files
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def is_sheets(folder: Path) -> bool:
    """Does the folder hold contact sheets with their label file?"""
    return (folder / "labels.npz").is_file() and any(folder.glob("*.webp"))


def expand(folder: Path, cache: Path) -> Path:
    """The folder below ``cache`` with the binary layout of the sheets in ``folder``; made when missing."""
    sheets = sorted(folder.glob("*.webp"))
    names = "".join(f"{sheet.name}{sheet.stat().st_size}" for sheet in sheets)
    target = cache / f"{folder.name}-from-sheets-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="expanding-", dir=cache))
    try:
        labels = read_arrays(folder / "labels.npz")
        if "train_fine" in labels:
            _expand_cifar100(folder, labels, part)
        else:
            _expand_cifar10(folder, labels, part)
        return part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def decode(path: Path) -> np.ndarray:
    """The tiles of one sheet, row by row: bytes [n, 3, 32, 32]."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError("contact sheets need Pillow: pip install 'fedcohort[images]'") from error
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    down, across = pixels.shape[0] // TILE, pixels.shape[1] // TILE
    tiles = pixels[: down * TILE, : across * TILE].reshape(down, TILE, across, TILE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3)).reshape(-1, 3, TILE, TILE)


def expand_batch(sheet: Path, labels: np.ndarray, target: Path) -> None:
    """One CIFAR-10 sheet into one record file, checked against the published digest."""
    images = decode(sheet)
    if len(images) < len(labels):
        raise UserError(f"{sheet} has {len(images)} tiles for {len(labels)} labels: fetch the sheets again")
    write_binary(target, images[: len(labels)], [labels])
    digest = hashlib.md5(target.read_bytes(), usedforsecurity=False).hexdigest()
    if digest != MD5.get(target.name, digest):
        raise UserError(f"{sheet} does not hold the original CIFAR-10 images: fetch the sheets again")


def _expand_cifar10(folder: Path, labels: dict[str, np.ndarray], target: Path) -> None:
    sheets = sorted(folder.glob("data_batch_*.webp"))
    if len(sheets) != 5 or not (folder / "test_batch.webp").is_file():
        raise UserError(f"{folder} must hold data_batch_1.webp to data_batch_5.webp and test_batch.webp")
    for sheet, batch in zip(sheets, np.array_split(labels["train"], len(sheets)), strict=True):
        expand_batch(sheet, batch, target / f"{sheet.stem}.bin")
    expand_batch(folder / "test_batch.webp", labels["test"], target / "test_batch.bin")


def _expand_cifar100(folder: Path, labels: dict[str, np.ndarray], target: Path) -> None:
    for part in ("train", "test"):
        sheets = sorted(folder.glob(f"{part}_*.webp"))
        if not sheets:
            raise UserError(f"{folder} has no {part}_00.webp: fetch the sheets again")
        starts = [int(sheet.stem.rpartition("_")[2]) * PER_SHEET for sheet in sheets]
        rows = np.concatenate([np.arange(start, start + PER_SHEET) for start in starts])
        images = np.concatenate([decode(sheet) for sheet in sheets])
        columns = [labels[f"{part}_{kind}"][rows] for kind in ("coarse", "fine")]
        write_binary(target / f"{part}.bin", images, columns)
