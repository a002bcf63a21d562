"""IDX and CIFAR files of every layout, written here as their formats say."""

import gzip
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcohort.data import federate, load
from fedcohort.data.cifar_files import CIFAR10, Remote, _unpack, unpickle_arrays
from fedcohort.data.locate import Places, download
from fedcohort.data.partition import partitioner
from fedcohort.data.sheets import decode, expand
from fedcohort.util.errors import UserError

RNG = np.random.default_rng(0)
LABELS = np.arange(20, dtype=np.uint8) % 10


def write_idx(path: Path, array: np.ndarray) -> None:
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    raw = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    raw += array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(folder: Path, ending: str = ".gz", test: bool = True) -> np.ndarray:
    folder.mkdir(parents=True)
    images = RNG.integers(0, 256, (20, 5, 4), dtype=np.uint8)
    for part in ("train", "t10k") if test else ("train",):
        write_idx(folder / f"{part}-images-idx3-ubyte{ending}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{ending}", LABELS)
    return images


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(("source", "folder"), [("mnist", "mnist"), ("fashion_mnist", "fashion-mnist")])
def test_idx_folders(tmp_path: Path, cache: Path, ending: str, source: str, folder: str) -> None:
    images = write_mnist(tmp_path / folder, ending)
    raw = load(source, root=tmp_path, normalise=False)
    assert raw.shape == (1, 5, 4)
    assert torch.allclose(raw.x[:, 0] * 255, torch.from_numpy(images).float())
    assert raw.y.tolist() == LABELS.tolist()
    assert raw.test_x is not None
    assert raw.numbers is None
    scaled = federate(load(source, root=tmp_path), partitioner("iid", clients=3))
    assert scaled.train.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert scaled.train.x.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_any_idx_folder_without_test_files(tmp_path: Path, cache: Path) -> None:
    write_mnist(tmp_path / "own", "", test=False)
    data = load("idx", path=str(tmp_path / "own"))
    assert data.test_x is None
    assert data.classes == tuple("0123456789")
    assert load("idx", root=tmp_path, path="own").shape == (1, 5, 4)  # also below the root


def test_writers_of_mnist(tmp_path: Path, cache: Path) -> None:
    write_mnist(tmp_path / "mnist")
    for part, rows in (("train", 20), ("test", 60)):  # QMNIST has more test digits than MNIST
        table = np.zeros((rows, 8), dtype=np.int32)
        table[:, 0], table[:, 2] = np.arange(rows) % 10, np.arange(rows) // 4 + 100
        write_idx(tmp_path / "mnist" / f"qmnist-{part}-labels-idx2-int.gz", table)
    data = load("mnist", root=tmp_path, owner="writer")
    assert data.owner is not None
    assert data.test_owner is not None
    assert data.owner.tolist() == [100 + i // 4 for i in range(20)]
    assert len(data.test_owner) == 20
    table[:, 0] = 3
    write_idx(tmp_path / "mnist" / "qmnist-train-labels-idx2-int.gz", table)
    with pytest.raises(UserError, match="does not describe these MNIST images"):
        load("mnist", root=tmp_path, owner="writer")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "is not an IDX file"),
        (b"\x1f\x8bxx", "cannot be read"),
        (b"\0\0\x08\x01\0\0\0\x09ab", "cut short"),
    ],
)
def test_damaged_idx(tmp_path: Path, cache: Path, content: bytes, message: str) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("mnist", root=tmp_path)


def test_a_missing_file_is_named_with_its_place(tmp_path: Path, cache: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError) as caught:
        load("mnist", root=tmp_path)
    assert str(caught.value).startswith(
        f"t10k-labels-idx1-ubyte.gz is missing: put it into {tmp_path / 'mnist'}"
    )
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz is missing: put it into .*cache/mnist"):
        load("mnist")
    with pytest.raises(UserError, match=r"cifar-10-binary.tar.gz is missing: put it into"):
        load("cifar10", root=tmp_path)
    with pytest.raises(UserError, match="there is no data folder /nowhere"):
        load("mnist", root="/nowhere")


def cifar_images(count: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def write_records(path: Path, images: np.ndarray, *labels: np.ndarray) -> None:
    path.write_bytes(
        b"".join(bytes(row) + image.tobytes() for *row, image in zip(*labels, images, strict=True))
    )


def test_cifar10_binary_and_python_layouts_agree(tmp_path: Path, cache: Path) -> None:
    for layout in ("cifar-10-batches-bin", "cifar-10-batches-py"):
        (tmp_path / layout / layout).mkdir(parents=True)
    for file in CIFAR10.files:
        images = cifar_images(20)
        write_records(
            tmp_path / "cifar-10-batches-bin" / "cifar-10-batches-bin" / f"{file}.bin", images, LABELS
        )
        table = {b"data": images.reshape(20, -1), b"labels": LABELS.tolist(), b"batch_label": b"x"}
        path = tmp_path / "cifar-10-batches-py" / "cifar-10-batches-py" / file
        path.write_bytes(pickle.dumps(table, protocol=2))
    binary = load("cifar10", root=tmp_path / "cifar-10-batches-bin")
    python = load("cifar10", root=tmp_path / "cifar-10-batches-py")
    assert binary.x.shape == (100, 3, 32, 32)
    assert binary.classes[3] == "cat"
    assert binary.test_x is not None
    assert python.test_x is not None
    assert torch.equal(binary.x, python.x)
    assert torch.equal(binary.y, python.y)
    assert torch.equal(binary.test_x, python.test_x)


def test_cifar100_labels_and_subset(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "cifar100"
    folder.mkdir()
    for part in ("train", "test"):
        write_records(folder / f"{part}.bin", cifar_images(20), LABELS // 5, LABELS * 9)
    fine, coarse = load("cifar100", root=tmp_path), load("cifar100", root=tmp_path, labels="coarse")
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    assert fine.y.tolist() == (LABELS * 9).tolist()
    assert coarse.y.tolist() == (LABELS // 5).tolist()
    assert fine.classes[99] == "worm"
    assert fine.provenance["subset"] == "20 of 50000 training and 20 of 10000 test images"


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "owned",))

    bad = tmp_path / "data_batch_1"
    bad.write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(UserError, match="holds more than arrays"):
        unpickle_arrays(bad)
    assert not (tmp_path / "owned").exists()


def test_cifar_archive_is_unpacked_once_and_whole(tmp_path: Path) -> None:
    archive, inside = tmp_path / "cifar-10-binary.tar.gz", tmp_path / "cifar-10-batches-bin"
    inside.mkdir()
    for file in CIFAR10.files:
        write_records(inside / f"{file}.bin", cifar_images(2), LABELS[:2])
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inside, "cifar-10-batches-bin")
    target = _unpack(archive, tmp_path / "cache" / "out", CIFAR10)
    assert sorted(file.name for file in target.iterdir()) == sorted(f"{file}.bin" for file in CIFAR10.files)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inside / "test_batch.bin", "cifar-10-batches-bin/test_batch.bin")
    with pytest.raises(UserError, match="is not the CIFAR archive"):
        _unpack(archive, tmp_path / "cache" / "other", CIFAR10)
    assert [folder.name for folder in (tmp_path / "cache").iterdir()] == ["out"]


def test_sheets_are_expanded_once(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "cifar100"
    folder.mkdir()
    shades = RNG.integers(0, 256, (5000, 4, 4, 3), dtype=np.uint8)  # coarse squares compress quickly
    tiles = shades.repeat(8, axis=1).repeat(8, axis=2)
    sheet = tiles.reshape(50, 100, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1600, 3200, 3)
    for name in ("train_01", "test_00"):
        image.fromarray(sheet).save(folder / f"{name}.webp", lossless=True, quality=0, method=0)
    columns = {
        "train_fine": np.arange(50_000) % 100,
        "train_coarse": np.arange(50_000) // 5000,
        "test_fine": np.arange(10_000) % 100,
        "test_coarse": np.arange(10_000) % 20,
    }
    np.savez(folder / "labels.npz", **columns)
    assert (decode(folder / "test_00.webp") == tiles.transpose(0, 3, 1, 2)).all()
    target = expand(folder, tmp_path / "cache")
    record = np.fromfile(target / "train.bin", dtype=np.uint8).reshape(5000, 3074)
    assert (record[:, 0] == 1).all()  # the coarse labels of sheet 01, rows 5000 to 9999
    assert (record[7, 2:].reshape(3, 32, 32) == tiles[7].transpose(2, 0, 1)).all()
    stamp = (target / "train.bin").stat().st_mtime_ns
    assert expand(folder, tmp_path / "cache") == target
    assert (target / "train.bin").stat().st_mtime_ns == stamp


def test_download_checks_the_digest(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(b"abc")
    url = (tmp_path / "file.gz").as_uri()
    good = "md5:900150983cd24fb0d6963f7d28e17f72"  # of "abc", RFC 1321
    got = Places(cache=tmp_path / "cache").fetch(["thing"], ["file.gz"], Remote(url, good))
    assert got == tmp_path / "cache" / "thing" / "file.gz"
    with pytest.raises(UserError, match="damaged or was replaced"):
        download(Remote(url, "sha256:00"), tmp_path / "bad.gz")
    assert not list(tmp_path.glob("bad*"))
    with pytest.raises(UserError, match="cannot be downloaded"):
        Places(cache=tmp_path / "cache").fetch(["other"], ["gone.gz"], Remote(f"{url}x", good))
