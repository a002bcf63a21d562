"""Archives of others, looked at before they are expanded: a file of a kilobyte may promise a terabyte."""

import gzip
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from fedcohort.util.errors import UserError

GZIP = b"\x1f\x8b"
OTHERS = (
    b"\x28\xb5\x2f\xfd",
    b"\x78\x01",
    b"\x78\x5e",
    b"\x78\x9c",
    b"\x78\xda",
)  # zstd and zlib, which Polars would expand
FOLD, SMALL = 100, 10_000_000  # how much larger contents may be than their file, unless they are small
BLOCK = 1 << 20
KINDS = "biufUS"  # numbers and words; an array of objects is a pickle, which can run any code
UNREADABLE = (RuntimeError, KeyError, SyntaxError, TokenError, MemoryError, TypeError)  # passwords, headers
PACKED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
DAMAGED = (OSError, EOFError, struct.error, ValueError, *PACKED)


def is_gzipped(path: Path) -> bool:
    """Whether it must be unpacked; contents that are packed in another way are refused."""
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(OTHERS):
        raise UserError(f"{path} is compressed, and not by gzip: unpack it first")
    return start.startswith(GZIP)


def read_bytes(path: Path) -> bytes:
    """What a file holds, unpacked if it is gzipped."""
    try:
        if not is_gzipped(path):
            return path.read_bytes()
        content = b"".join(_blocks(path))
    except DAMAGED as error:
        raise UserError(f"{path} cannot be read ({error}): fetch it again") from error
    if content.startswith((GZIP, *OTHERS)):  # which Polars would expand too
        raise UserError(f"{path} holds another archive: unpack it first")
    return content


def first_bytes(path: Path, number: int) -> bytes:
    """The first of them."""
    try:
        with gzip.open(path) if is_gzipped(path) else path.open("rb") as file:
            return file.read(number)
    except DAMAGED as error:
        raise UserError(f"{path} cannot be read ({error}): fetch it again") from error


def _blocks(path: Path) -> Iterator[bytes]:
    most, read = most_bytes(path), 0
    with gzip.open(path) as file:
        while block := file.read(BLOCK):
            if (read := read + len(block)) > most:
                raise _bomb(path)
            yield block


def most_bytes(path: Path) -> int:
    """How large an archive's contents may be."""
    return max(SMALL, FOLD * path.stat().st_size)


def _bomb(path: Path) -> UserError:
    return UserError(
        f"{path} would expand to more than {FOLD} times its size: if you know why, unpack it yourself"
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file: numbers and words, each as large as its header says."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if each.filename.endswith(".npy")]
            if sum(each.file_size for each in members) > most_bytes(path):
                raise _bomb(path)
            return {each.filename.removesuffix(".npy"): _array(archive, each) for each in members}
    except (*DAMAGED, *UNREADABLE) as error:
        raise UserError(
            f"{path} is not an archive of plain arrays: save it with numpy.savez(path, x=x, y=y)"
        ) from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        shape, columns_first, kind = _header(file)
        if kind.kind not in KINDS or min(shape, default=0) < 0 or math.prod(shape) > member.file_size:
            raise ValueError(f"{member.filename} holds {shape} of {kind}")
        flat = (
            np.frombuffer(file.read(), kind, count=math.prod(shape)) if kind.itemsize else np.zeros(0, kind)
        )
    return flat.reshape(shape, order="F" if columns_first else "C").copy()


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)
