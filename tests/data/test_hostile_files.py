"""Files that somebody made to do harm: each is answered with one sentence, before it costs memory or time."""

import datetime
import gzip
import io
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedcohort.data import Places, federate, load
from fedcohort.data.cifar_files import unpickle_arrays
from fedcohort.data.idx_files import read_idx
from fedcohort.data.partition import partitioner
from fedcohort.data.tables import named, read_table
from fedcohort.data.unpack import read_arrays, read_bytes
from fedcohort.diagnosis import read_counts
from fedcohort.diagnosis.read import read_numbers
from fedcohort.util import memory_limit
from fedcohort.util.errors import UserError

BOMB = 12_000_000  # bytes of zeros, which gzip makes a thousandth of


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members.items():
            out.writestr(f"{name}.npy", content)
    return path


def npy(shape: tuple[int, ...], kind: str, body: bytes) -> bytes:
    """An array's file, whose header may promise what is not there."""
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


def pickled(value: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([value], dtype=object), allow_pickle=True)
    return out.getvalue()


class Touches:
    """Unpickling it writes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@contextmanager
def suppress_told(said: list[str]) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        said.append(str(error))


def test_a_file_whose_name_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    strange.write_text("a,b\n1,2\n")
    for read in (read_counts, lambda path: read_table(str(path), Places())):
        with pytest.raises(UserError, match="is no text in UTF-8: rename the file"):
            read(strange)


def test_what_expands_a_thousandfold_is_not_expanded(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n" + bytes(BOMB)))
    for read in (read_bytes, read_counts, lambda path: read_table(str(path), Places())):
        with pytest.raises(UserError, match="would expand to more than 100 times its size"):
            read(packed)
    images = tmp_path / "images.gz"
    images.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1, 1, BOMB) + bytes(BOMB)))
    with pytest.raises(UserError, match="would expand"):
        read_idx(images)
    with pytest.raises(UserError, match="would expand"):
        read_arrays(archive(tmp_path / "x.npz", x=npy((BOMB,), "|u1", bytes(BOMB))))


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: zlib.compress(text, 3), zlib.compress])
def test_an_archive_in_an_archive_is_not_expanded(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """The outer one expands to little; Polars would expand the inner one by itself, without a bound."""
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(pack(b"a,b\n" + b"1,2\n" * BOMB)))
    for read in (read_bytes, read_counts, lambda path: read_table(str(path), Places())):
        with pytest.raises(UserError, match="holds another archive"):
            read(packed)


@pytest.mark.parametrize("start", [b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"])
def test_other_compressions_are_refused(tmp_path: Path, start: bytes) -> None:
    """Polars would expand zstd, which has no bound, by itself."""
    (tmp_path / "t.csv").write_bytes(start + b"anything")
    with pytest.raises(UserError, match="not by gzip: unpack it first"):
        read_table(str(tmp_path / "t.csv"), Places())


@pytest.mark.parametrize(
    "member",
    [
        npy((10**12,), "<f4", b"1234"),
        npy((10**30,), "<f4", b"1234"),
        npy((-1,), "<f4", b""),
        npy((True, 2), "<f4", bytes(8)),
        npy((2,), "<c16", bytes(32)),
        npy((2,), "|V8", bytes(16)),
        pickled({"a": 1}),
        b"\x93NUMPY\x01\x00\x04\x00((((",
        b"",
    ],
    ids=["a terabyte", "no size", "negative", "true", "complex", "void", "pickle", "no header", "nothing"],
)
def test_arrays_that_are_none(tmp_path: Path, member: bytes) -> None:
    with pytest.raises(UserError, match="is not an archive of plain arrays"):
        read_arrays(archive(tmp_path / "x.npz", x=member))


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_that_are_damaged(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", kind) as out:
        out.writestr("x.npy", npy((500,), "<f8", np.arange(500.0).tobytes()))
    whole = path.read_bytes()
    assert read_arrays(path)["x"][-1] == 499
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 255]) + whole[101:])
    with pytest.raises(UserError, match="is not an archive of plain arrays"):
        read_arrays(path)


def test_images_that_are_none(tmp_path: Path) -> None:
    """No bytes are what these dimensions ask for, since one of them is 0."""
    (tmp_path / "images").write_bytes(struct.pack(">4B4I", 0, 0, 8, 4, 0, 2**31, 2**32 - 1, 2**32 - 1))
    with pytest.raises(UserError, match="is cut short or damaged"):
        read_idx(tmp_path / "images")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.float32(1), "y": np.arange(3)}, "examples have the shapes"),
        ({"x": np.ones((3, 2)), "y": np.int64(1)}, "labels are of type int64 and shape ()"),
        ({"x": np.ones((3, 0)), "y": np.arange(3)}, "hold nothing"),
        ({"x": np.ones((3, 2)), "y": np.arange(3), "client": np.ones((3, 2))}, "client ids have shape"),
        ({"x": np.ones((3, 2)), "y": np.full(3, 1e300)}, "labels are as large as 1e+300"),
        ({"x": np.ones((3, 2)), "y": np.arange(3), "x_test": np.ones((3, 5))}, "prepare both alike"),
    ],
)
def test_arrays_of_odd_shape(tmp_path: Path, cache: Path, arrays: dict[str, Any], sentence: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError) as raised:
        load("npz", path=str(tmp_path / "x.npz"))
    assert sentence in str(raised.value)


def test_pickles_of_cifar_run_nothing_and_take_no_memory(tmp_path: Path) -> None:
    canary, file = tmp_path / "canary", tmp_path / "data_batch_1"
    put_far = b"\x80\x02]r" + struct.pack("<I", 2**27) + b"."  # remembered under a number of two gigabytes
    whole = b"\x80\x02cnumpy\nndarray\n(I1000000000000\nt\x85R."  # ndarray((10**12,))
    for content in (pickle.dumps({"data": Touches(canary)}), put_far, whole, b"", b"\xff"):
        file.write_bytes(content)
        tracemalloc.start()
        with pytest.raises(UserError, match="data_batch_1 is"):
            unpickle_arrays(file)
        assert tracemalloc.get_traced_memory()[1] < 10**7
        tracemalloc.stop()
    assert not canary.exists()


def test_damaged_parquet_is_one_sentence(tmp_path: Path) -> None:
    """Some damage makes Polars panic, with something that is no Exception."""
    whole, path = io.BytesIO(), tmp_path / "t.parquet"
    pl.DataFrame({"client": ["a", "b"] * 9, "n": range(18)}).write_parquet(whole)
    content, said = whole.getvalue(), []
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + b"\xff\xff" + content[at + 2 :])
        with suppress_told(said):
            read_table(str(path), Places())
    assert len(said) > 10
    assert all(each.startswith(f"{path} cannot be read as Parquet (") for each in said)


def test_a_panic_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(pl, "scan_parquet", panic)
    for read in (read_counts, lambda path: read_table(str(path), Places())):
        with pytest.raises(UserError, match=r"cannot be read as Parquet \(index out of bounds\)"):
            read(tmp_path / "t.parquet")


def test_parquet_that_promises_more_rows_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"a": [0] * 100_000}).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 1_000_000)
    with pytest.raises(UserError, match=r"t.parquet needs .* GB, and this machine has"):
        read_table(str(tmp_path / "t.parquet"), Places())


def test_parquet_cells_that_are_lists(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [[1], [2]], "b": [b"\xff", b"x"], "n": [3, 4], "y": [0, 1]}).write_parquet(path)
    for column in ("a", "b"):
        with pytest.raises(UserError, match=f"column '{column}' holds .*, not numbers or words"):
            load("table", path=str(path), label="y", features=[column])
        with pytest.raises(UserError, match=f"column '{column}' holds"):
            load("table", path=str(path), label=column, features=["n"])


def test_forty_thousand_columns_are_compared_in_a_moment(tmp_path: Path) -> None:
    """Each with each, that took 26 seconds."""
    names = [f"c{number}" for number in range(40_000)]
    frame = pl.DataFrame(np.zeros((1, 40_000)))
    since = time.process_time()
    assert named(frame, names, tmp_path).width == 40_000
    with pytest.raises(UserError, match="two columns called 'c0'"):
        named(frame, [*names[1:], "c0", "c0"], tmp_path)
    assert time.process_time() - since < 3


def test_a_wide_table_is_read_without_looking_at_all_its_names_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars makes the list of names anew whenever it is asked: 40,000 times took minutes."""
    path, real, asked = tmp_path / "wide.csv", pl.DataFrame.columns, []
    lines = [["y", *(f"c{n}" for n in range(500))], ["0"] * 501, ["1"] * 501]
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    counted = property(lambda frame: asked.append(1) or real.fget(frame), real.fset)
    monkeypatch.setattr(pl.DataFrame, "columns", counted)
    load("table", path=str(path), label="y")
    assert len(asked) < 100


@pytest.mark.parametrize("text", ["\n1,2\n", ",,\n1,2,3\n", " \na,b\n"])
def test_a_first_line_without_names(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    for read in (read_counts, read_numbers, lambda path: read_table(str(path), Places())):
        with pytest.raises(UserError, match=r"t\.csv"):
            read(path)


@pytest.mark.parametrize("name", ["*", "^.*$", "^a.*$"])
def test_names_that_look_like_patterns_are_names(tmp_path: Path, cache: Path, name: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{name},ab,y\n1,2,0\n3,5,1\n")
    assert load("table", path=str(path), label="y").shape == (2,)
    assert read_counts(path).matrix.tolist() == [[1, 2, 0], [3, 5, 1]]
    path.write_text(f"{name},ab,y\n" + "1,2,0\n" * 20 + "x,5,1\n")
    with pytest.raises(UserError, match="'x' in row 21 of t"):
        load("table", path=str(path), label="y")


def test_names_of_clients_are_harmless_and_the_same_everywhere(tmp_path: Path, cache: Path) -> None:
    odd = ['=HYPERLINK("http://x")', "a\nERROR", "\x1b[31mred", "x" * 100 + "1", "x" * 100 + "2", "plain"]
    path = tmp_path / "t.parquet"
    pl.DataFrame({"site": odd * 2, "a": range(12), "y": [0, 1] * 6}).write_parquet(path)
    dealt = federate(load("table", path=str(path), label="y", client="site"), partitioner("natural")).clients
    counted = read_counts(path, "site", "y").client_names
    assert sorted(dealt) == sorted(counted)
    assert len(set(dealt)) == len(odd)
    assert "plain" in dealt
    assert all(name.isprintable() and name[0] not in "=+-@" and len(name) <= 81 for name in dealt)
    wide = tmp_path / "w.parquet"
    pl.DataFrame({"site": odd, "0": [1] * 6, "1": [1] * 6}).write_parquet(wide)
    assert sorted(read_counts(wide, "site").client_names) == sorted(dealt)


@pytest.mark.parametrize("path", ["x" * 5000, "~nobody-is-called-this/x", "a\0b", "*" + "x" * 5000, "a(**b)"])
def test_paths_that_no_file_can_have(cache: Path, path: str) -> None:
    for source in ("table", "npz", "idx"):
        with pytest.raises(UserError):
            load(source, path=path, **({"label": "y"} if source == "table" else {}))


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    """Whoever opened it would wait for ever."""
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UserError, match="no file matches"):
        load("table", path=str(tmp_path / "*.csv"), label="y")


def test_spans_of_time_are_no_numbers(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [datetime.timedelta(days=1), datetime.timedelta(days=2)], "y": [0, 1]})
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="column 'x' holds Duration"):
        load("table", path=str(tmp_path / "a.parquet"), label="y")


@pytest.mark.parametrize("column", ["label", "client", "word"])
def test_one_long_cell_does_not_take_the_room_of_all(tmp_path: Path, cache: Path, column: str) -> None:
    """A table of a megabyte, whose words would make an array of 80 GB."""
    rows = [{"label": "ab"[n % 2], "client": "xy"[n % 2], "word": "uv"[n % 2]} for n in range(20_000)]
    rows[7][column] = "z" * 10**6
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    with pytest.raises(UserError, match=f"column '{column}' names .* by 1,000,000 characters"):
        load("table", path=str(tmp_path / "t.csv"), label="label", client="client")


def test_more_features_than_memory_are_not_made(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of five letters becomes as many numbers as its column has words."""
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["label,text", *(f"{n % 2},word{n}" for n in range(1000))]))
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 10**9)
    load("table", path=str(path), label="label", text=["text"], text_width=512)
    with pytest.raises(UserError, match="a table of 65,536 features needs 1 GB, and this machine has 1 GB"):
        load("table", path=str(path), label="label", text=["text"], text_width=65536)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_s_name_is_no_pattern(tmp_path: Path, ending: str) -> None:
    """Polars would read x1.csv in the place of x[1].csv."""
    mine, other = pl.DataFrame({"mine": ["1"]}), pl.DataFrame({"other": ["1"]})
    for frame, name in ((mine, f"x[1].{ending}"), (other, f"x1.{ending}")):
        getattr(frame, f"write_{ending}")(tmp_path / name)
    frame = read_table(str(tmp_path / f"x[1].{ending}"), Places())
    assert frame.columns == ["mine", "@file"]
