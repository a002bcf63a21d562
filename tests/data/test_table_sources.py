"""Users' own files: tables, archives, Hugging Face folders; and the sentences that greet their mistakes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcohort.data import Places, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.data.sources.table import Table
from fedcohort.util.errors import UserError

CSV = """age,smoker,note,hospital,ill
30,yes,chest pain,north,1
40,no,no pain at all,north,0
50,,pain,south,1
60,yes,nothing,south,0
"""


@pytest.fixture
def csv(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(CSV)
    return path


def test_numbers_categories_and_texts(csv: Path) -> None:
    """By name: ages as they are, a bag of words of 16, and of 'smoker' the levels '', 'no', 'yes'."""
    data = load("table", path=str(csv), label="ill", client="hospital", text=["note"], text_width=16)
    assert data.shape == (1 + 3 + 16,)
    assert data.x[:, 0].tolist() == [30, 40, 50, 60]
    assert data.x[:, 1:17].norm(dim=1).tolist() == pytest.approx([1] * 4)
    assert data.x[:, 17:].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert data.numbers.tolist() == [True, *[False] * 19]
    assert data.y.tolist() == [1, 0, 1, 0]
    assert data.classes == ("0", "1")
    assert data.owner is not None
    assert data.owner.tolist() == ["north", "north", "south", "south"]
    assert federate(data, partitioner("natural")).clients == ("north", "south")


def test_gzip_and_parquet_read_the_same(csv: Path) -> None:
    import polars as pl

    zipped, parquet = csv.with_name("patients.csv.gz"), csv.with_suffix(".parquet")
    zipped.write_bytes(gzip.compress(CSV.encode()))
    pl.read_csv(csv).write_parquet(parquet)
    one, two, three = (load("table", path=str(path), label="ill") for path in (csv, zipped, parquet))
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.x, three.x)
    assert torch.equal(one.y, three.y)


def test_missing_numbers_are_refused_or_filled(csv: Path) -> None:
    csv.write_text(CSV.replace("40,no", "?,no"))
    with pytest.raises(UserError, match="column 'age' is empty in 1 of 4 rows: set missing='mean'"):
        load("table", path=str(csv), label="ill")
    data = load("table", path=str(csv), label="ill", features=["age"], missing="mean")
    assert data.provenance["filled"] == {"age": 1}
    dealt = federate(data, partitioner("iid", clients=1), SplitPlan(test=0))
    assert sorted(dealt.train.x[:, 0].tolist()) == pytest.approx([-1.3363, 0, 0.2673, 1.069], abs=1e-4)
    raw = federate(data, partitioner("iid", clients=1), SplitPlan(test=0), scale="none")
    assert sorted(raw.train.x[:, 0].tolist()) == pytest.approx([30, 140 / 3, 50, 60])


def test_test_table_uses_the_training_categories(csv: Path) -> None:
    other = csv.with_name("later.csv")
    other.write_text("age,smoker,ill\n45,sometimes,1\n")
    data = load("table", path=str(csv), label="ill", features=["age", "smoker"], test_path=str(other))
    assert data.test_x is not None
    assert data.test_x.tolist() == [[45, 0, 0, 0]]  # a category never seen
    other.write_text("age,smoker,ill\nNA,yes,1\n")
    with pytest.raises(UserError, match="column 'age' is empty in 1 of 1 rows"):
        load("table", path=str(csv), label="ill", features=["age", "smoker"], test_path=str(other))


def test_several_files_are_several_clients(tmp_path: Path, cache: Path) -> None:
    """Files without header, one per hospital, where the code 3 is written 3.0 in one of them."""
    (tmp_path / "north.data").write_text("1.0,3.0,0\n2.0,4.0,2\n\n")
    (tmp_path / "south.data").write_text("3,3,1\n4,4,0\n")
    data = load(
        "table",
        root=tmp_path,
        path="*.data",
        header=False,
        label="column_3",
        client="@file",
        categorical=["column_2"],
        threshold=0,
    )
    assert data.owner is not None
    assert data.owner.tolist() == ["north", "north", "south", "south"]
    assert data.x[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert data.classes == ("at most 0", "above 0")
    assert data.y.tolist() == [0, 1, 1, 0]


def test_columns_of_several_files_are_matched_by_name(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "north.csv").write_text("age,pulse,ill\n1,10,0\n2,20,1\n")
    (tmp_path / "south.csv").write_text("ill,pulse,age\n1,30,3\n0,40,4\n")
    (tmp_path / "all.csv").write_text("age,pulse,ill\n1,10,0\n2,20,1\n3,30,1\n4,40,0\n")
    both, one = (load("table", root=tmp_path, path=path, label="ill") for path in ("*th.csv", "all.csv"))
    assert torch.equal(both.x, one.x)
    assert torch.equal(both.y, one.y)
    (tmp_path / "south.csv").write_text("ill,puls,age\n1,30,3\n")
    with pytest.raises(UserError, match=r"south\.csv lacks pulse and adds puls, compared with the first"):
        load("table", root=tmp_path, path="*th.csv", label="ill")


def test_one_clients_own_table_has_its_columns_in_everybodys_order(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "north.csv").write_text("age,pulse,ill\n1,10,0\n2,40,1\n6,20,1\n")
    (tmp_path / "south.csv").write_text("pulse,ill,age\n10,0,1\n40,1,2\n20,1,6\n")
    north, south = (
        Table(path=name, label="ill").load(Places.of(tmp_path), share=True)
        for name in ("north.csv", "south.csv")
    )
    assert torch.equal(north.x, south.x)


def mostly_numbers(*others: str) -> str:
    """Twenty known cells, ``others`` among them, of which the first is in row 3."""
    cells = ["50", "", *others, *("60" for _ in range(19 - len(others)))]
    return "age,ill\n" + "".join(f'"{cell}",{row % 2}\n' for row, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("others", "cure"),
    [
        (("unknown",), "'unknown' in row 3 of patients: correct it, add 'unknown' to 'empty', or add"),
        (("90+", "90+"), "'90[+]' in row 3 of patients: correct it"),
        (("2,5",) * 15, "'2,5' in row 3 of patients: set decimal=',', or write numbers with a point"),
    ],
)
def test_a_few_words_do_not_make_numbers_categories(csv: Path, others: tuple[str, ...], cure: str) -> None:
    csv.write_text(mostly_numbers(*others))
    with pytest.raises(UserError, match=f"column 'age' holds numbers, but {cure}"):
        load("table", path=str(csv), label="ill", missing="mean")
    levels = {"", "50", "60", *others}
    assert load("table", path=str(csv), label="ill", categorical=["age"]).shape == (len(levels),)


def test_words_listed_as_empty_are_empty(csv: Path) -> None:
    import polars as pl

    csv.write_text(mostly_numbers("unknown"))
    parquet = csv.with_suffix(".parquet")
    pl.read_csv(csv).write_parquet(parquet)
    for path in (csv, parquet):
        data = load("table", path=str(path), label="ill", missing="mean", empty=["unknown"])
        assert data.provenance["filled"] == {"age": 2}


def test_many_words_among_numbers_are_categories(csv: Path) -> None:
    csv.write_text("age,ill\n1,0\n2,1\nold,1\nyoung,0\n")
    assert load("table", path=str(csv), label="ill").shape == (4,)


def test_a_word_in_the_test_table_is_told(csv: Path) -> None:
    other = csv.with_name("later.csv")
    other.write_text("age,ill\nold,1\n")
    with pytest.raises(UserError, match="column 'age' holds numbers, but 'old' in row 1 of later"):
        load("table", path=str(csv), label="ill", features=["age"], test_path=str(other))


def test_how_columns_were_read_is_told(csv: Path) -> None:
    options = {"path": str(csv), "label": "ill", "client": "hospital", "text": ["note"], "missing": "mean"}
    read = "columns of the table: 1 of numbers, 1 of categories, 1 of texts"
    assert load("table", **options).provenance["read"] == read
    csv.write_text(CSV.replace("40,no", ",no"))
    filled = "; 1 of 4 numbers are missing and filled with the mean, most in 'age' (25%)"
    assert load("table", **options).provenance["read"] == read + filled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "il"}, "no column 'il' .'label'., did you mean 'ill'?"),
        ({"label": "ill", "client": "hospitals"}, "did you mean 'hospital'?"),
        ({"label": "ill", "client": "ill"}, "both name 'ill'"),
        ({"label": "ill", "features": ["agee"]}, "did you mean 'age'?"),
        ({"label": "ill", "features": ["age", "ill"]}, "is among the features"),
        ({"label": "smoker"}, "label 'smoker' is empty in 1 row"),
        ({"label": "note", "threshold": 1}, "'threshold' is for numbers"),
        ({"label": "ill", "colour": 1}, "data source table.colour: unknown"),
        ({}, "data source table.label: missing"),
    ],
)
def test_mistakes_in_options(csv: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load("table", path=str(csv), **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("age,ill\n", "holds no rows: check it, or leave it out if there are others"),
        ("age,ill\n1,1\n2,1\n", "all labels are equal"),
        ("age,ill\n1,0.5\n2,1\n", "label 'ill' holds numbers with decimals"),
        ("age,ill\ninf,0\n2,1\n", "column 'age' has 1 infinite"),
        ("age,ill\n1e300,0\n2,1\n", "column 'age' has values up to"),
        ("age,age,ill\n1,1,0\n2,2,1\n", "two columns called 'age'"),
        ("age,ill\n" + "".join(f"w{i},{i % 2}\n" for i in range(300)), "has 300 different words"),
        ("age,ill\n" + "".join(f"{i},{i}\n" for i in range(1200)), "label 'ill' has 1,200 values"),
    ],
)
def test_mistakes_in_files(csv: Path, text: str, message: str) -> None:
    csv.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        load("table", path=str(csv), label="ill")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file nothing\.csv in .* or .*: check"):
        load("table", root=tmp_path, path="nothing.csv", label="y")
    with pytest.raises(UserError, match=r"no file matches no/\*\.csv in .* or .*: check"):
        load("table", root=tmp_path, path="no/*.csv", label="y")
    with pytest.raises(UserError, match=r"is a folder: name its files, like '.*/\*\.csv'"):
        load("table", path=str(tmp_path), label="y")


def test_unknown_source_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown data source 'digit', did you mean 'digits'\?"):
        load("digit")


def test_npz(tmp_path: Path, cache: Path) -> None:
    x = np.arange(12.0).reshape(6, 2)
    np.savez(
        tmp_path / "a.npz", x=x, y=[1, 6, 1, 6, 1, 6], x_test=x[:2], y_test=[6, 1], client=list("aabbcc")
    )
    data = load("npz", root=tmp_path, path="a.npz")
    assert data.classes == ("1", "6")
    assert data.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.test_y is not None
    assert data.test_y.tolist() == [1, 0]
    assert data.x.tolist() == x.tolist()
    assert data.numbers.all()
    assert load("npz", root=tmp_path, path="a.npz", normalise=False).numbers is None
    assert data.owner is not None
    assert data.owner.tolist() == list("aabbcc")
    images = np.zeros((6, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "b.npz", pictures=images, y=[0, 1] * 3)
    assert load("npz", root=tmp_path, path="b.npz", x="pictures").shape == (1, 4, 4)
    with pytest.raises(UserError, match="has no array 'x'"):
        load("npz", root=tmp_path, path="b.npz")
    np.savez(tmp_path / "c.npz", x=np.array([{}]), y=[0])
    with pytest.raises(UserError, match="not an archive of plain arrays"):
        load("npz", root=tmp_path, path="c.npz")
    np.savez(tmp_path / "d.npz", x=x, y=[0, 1])
    with pytest.raises(UserError, match="6 examples but 2 labels"):
        load("npz", root=tmp_path, path="d.npz")


def test_huggingface_folder(tmp_path: Path, cache: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["sad", "glad"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": label, "who": datasets.Value("int64")}
    )
    rows = {"text": ["so glad", "so sad", "glad glad"], "label": [1, 0, 1], "who": [5, 5, 6]}
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(tmp_path / "both")
    data = load(
        "huggingface", path=str(tmp_path / "both"), x="text", client="who", test_split="test", text_width=32
    )
    assert data.classes == ("sad", "glad")
    assert data.shape == (32,)
    assert data.x.norm(dim=1).tolist() == pytest.approx([1, 1, 1])
    assert data.owner is not None
    assert data.owner.tolist() == ["5", "5", "6"]
    assert data.test_x is not None
    with pytest.raises(UserError, match="has no column 'image'"):
        load("huggingface", path=str(tmp_path / "both"))
    with pytest.raises(UserError, match=r"has no split 'tests', did you mean 'test'\?"):
        load("huggingface", path=str(tmp_path / "both"), x="text", test_split="tests")


def test_huggingface_images_and_numbers(tmp_path: Path, cache: Path) -> None:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((4, 5, 3), shade, dtype=np.uint8)) for shade in (0, 255)]
    rows = {"image": pictures, "label": [0, 1], "signal": [[1.0, 2.0], [3.0, 4.0]]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "one")
    data = load("huggingface", path=str(tmp_path / "one"), normalise=False)
    assert data.shape == (3, 4, 5)
    assert data.x.mean((1, 2, 3)).tolist() == [0, 1]
    assert load("huggingface", path=str(tmp_path / "one"), x="signal").x.tolist() == [[1, 2], [3, 4]]


def test_huggingface_offline_is_one_sentence(cache: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(UserError, match=r"cannot be loaded .* save_to_disk") as caught:
        load("huggingface", path="nobody/nothing-of-that-name")
    assert "\n" not in str(caught.value)
