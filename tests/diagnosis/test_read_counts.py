"""Users' tables: what is read, and what each mistake is answered with."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.diagnosis import read, read_counts
from fedcohort.util.errors import UserError

WIDE = "client,cat,dog\nrome,3,1\nparis,0,4\n"
LONG = "hospital,diagnosis,age\nb,10,71\na,2,40\nb,2,33\nb,10,59\n"


def write(folder: Path, text: str, name: str = "counts.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_wide_csv(tmp_path: Path) -> None:
    counts = read_counts(write(tmp_path, WIDE))
    assert counts.matrix.tolist() == [[0, 4], [3, 1]]
    assert counts.client_names == ["paris", "rome"]
    assert counts.class_names == ["cat", "dog"]


def test_gzip_and_parquet_read_the_same(tmp_path: Path) -> None:
    plain = read_counts(write(tmp_path, WIDE))
    packed = tmp_path / "counts.csv.gz"
    packed.write_bytes(gzip.compress(WIDE.encode()))
    parquet = tmp_path / "counts.parquet"
    pl.DataFrame({"client": ["rome", "paris"], "cat": [3, 0], "dog": [1.0, 4.0]}).write_parquet(parquet)
    for path in (packed, parquet):
        other = read_counts(path)
        assert other.matrix.tolist() == plain.matrix.tolist()
        assert other[1:] == plain[1:]


def test_long_table_counts_samples_and_orders_classes_by_value(tmp_path: Path) -> None:
    counts = read_counts(write(tmp_path, LONG), client="hospital", label="diagnosis")
    assert counts.client_names == ["a", "b"]
    assert counts.class_names == ["2", "10"]
    assert counts.matrix.tolist() == [[1, 0], [1, 2]]


def test_clients_of_a_long_table_are_ordered_by_name(tmp_path: Path) -> None:
    names = [str(7 * index % 50) for index in range(50)]
    text = "client,label\n" + "".join(f"{name},{label}\n" for label in "ab" for name in names)
    assert read_counts(write(tmp_path, text), label="label").client_names == [str(k) for k in range(50)]


def test_rows_of_a_long_table_are_no_python_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what differs is: three clients, two labels."""
    table = write(tmp_path, "client,label\n" + "rome,ill\nparis,well\nnice,ill\n" * 100)
    lengths, to_list = [0], pl.Series.to_list
    monkeypatch.setattr(pl.Series, "to_list", lambda column: lengths.append(len(column)) or to_list(column))
    assert read_counts(table, label="label").matrix.tolist() == [[100, 0], [0, 100], [100, 0]]
    assert max(lengths) == 3


def test_long_parquet_keeps_numbers_as_names(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    pl.DataFrame({"client": [7, 7, 8], "label": [True, False, True]}).write_parquet(path)
    counts = read_counts(path, label="label")
    assert counts.client_names == ["7", "8"]
    assert counts.class_names == ["0", "1"]
    assert counts.matrix.tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize(
    "rows",
    [
        "a,0\na,1\nb,0.0\nb,1.0\nb,1.0\n",  # one client writes its codes with a point
        "7.0,ill\n7,well\n8,ill\n8,ill\n",  # one file writes its clients so
        "a,10\na,9\nb,9\n",
        "a,No\na,yes\nb,no\n",
    ],
)
def test_a_diagnosis_and_an_experiment_see_the_same_classes(tmp_path: Path, rows: str) -> None:
    table = write(tmp_path, "site,outcome\n" + rows)
    counts = read_counts(table, client="site", label="outcome")
    with_feature = write(tmp_path, "".join(f"{n},{row}\n" for n, row in enumerate(table.read_text().split())))
    data = load("table", path=str(with_feature), client="site", label="outcome")
    federation = federate(data, partitioner("natural"), SplitPlan(test=0))
    assert counts.client_names == list(federation.clients)
    assert counts.class_names == list(federation.classes)
    assert counts.matrix.tolist() == federation.counts.tolist()


def test_what_an_experiment_takes_for_missing_is_no_class(tmp_path: Path) -> None:
    table = write(tmp_path, "site,outcome\na,ill\na,well\nb,NA\nb,?\nb,ill\n")
    with pytest.raises(UserError, match="label 'outcome' is empty in 2 rows"):
        read_counts(table, client="site", label="outcome")


def test_files_by_a_pattern_are_clients(tmp_path: Path) -> None:
    write(tmp_path, "outcome\nill\nwell\n", "rome.csv")
    write(tmp_path, "outcome\nill\nill\n", "paris.csv")
    counts = read_counts(tmp_path / "*.csv", client="@file", label="outcome")
    assert counts.client_names == ["paris", "rome"]
    assert counts.matrix.tolist() == [[2, 0], [1, 1]]
    with pytest.raises(UserError, match="--label"):
        read_counts(tmp_path / "*.csv", client="@file")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat,dog\n3,1\n0,4\n", ["0", "1"]),
        (",cat,dog\nnice,3,1\nparis,0,4\n", ["nice", "paris"]),  # an index as pandas writes it
        ("id, cat ,dog\n1,3.0, 1\n2,0,4\n", ["1", "2"]),
        ("cat,client,dog\n3,nice,1\n0,paris,4\n", ["nice", "paris"]),
        ("client,cat,dog\n\nnice,3,1\nparis,0,4\n\n", ["nice", "paris"]),  # blank lines
    ],
)
def test_clients_may_be_named_in_several_ways(tmp_path: Path, text: str, names: list[str]) -> None:
    counts = read_counts(write(tmp_path, text))
    assert counts.client_names == names
    assert counts.class_names == ["cat", "dog"]
    assert counts.matrix.tolist() == [[3, 1], [0, 4]]


def test_a_byte_order_mark_is_not_part_of_the_name(tmp_path: Path) -> None:
    assert read_counts(write(tmp_path, "\ufeff" + WIDE)).client_names == ["paris", "rome"]


def test_a_class_nobody_holds_is_kept(tmp_path: Path) -> None:
    counts = read_counts(write(tmp_path, "client,cat,dog,cow\na,1,2,0\nb,1,1,0\n"))
    assert counts.class_names == ["cat", "dog", "cow"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (WIDE, {"client": "clint"}, "no column 'clint', did you mean 'client'"),
        (
            LONG,
            {"client": "hospital", "label": "diagnoses"},
            "no column 'diagnoses' ('label'), did you mean 'diagnosis'",
        ),
        (LONG, {"label": "diagnosis"}, "--client"),
        (LONG, {"client": "age", "label": "age"}, "two columns"),
        ("client,cat,dog\na,1,2\nb,-1,2\n", {}, "client 'b', column 'cat': -1 is negative"),
        ("client,cat,dog\na,1,2\nb,1,2.5\n", {}, "client 'b', column 'dog': 2.5 is not a whole number"),
        ("client,cat,dog\na,1,2\nb,,2\n", {}, "client 'b', column 'cat': the count is missing"),
        ("client,cat,dog\na,1,2\nb,NaN,2\n", {}, "client 'b', column 'cat': the count is missing"),
        ("client,cat,dog\na,1,2\nb,x,2\n", {}, "client 'b', column 'cat': 'x' is not a number"),
        ("client,cat,dog\na,1,2\nb,inf,2\n", {}, "client 'b', column 'cat': inf is too large"),
        ("cat,dog\n1,2\n1,x\n", {}, "row 2, column 'dog': 'x' is not a number"),
        ("client,cat,dog\na,1,2\nb,1,1\na,3,4\n", {}, "client 'a' is in rows 1 and 3"),
        ("client,cat,dog\na,1,2\n,1,1\n", {}, "row 2 has no client in column 'client'"),
        ("client,cat,dog\na,1,2\n", {}, "one client"),
        ("client,cat\na,1\nb,2\n", {}, "1 class:"),
        ("client\na\nb\n", {}, "no classes"),
        ("client,cat,cat\na,1,2\nb,2,3\n", {}, "two columns called 'cat'"),
        ("client,cat,dog\n", {}, "no rows"),
        ("", {}, "is empty"),
        ("client,cat,dog,\na,1,2,\nb,3,4,\n", {}, "column 4 has no name"),
        (",client,cat,dog\n0,a,1,2\n1,b,3,4\n", {}, "column 1 has no name"),
        ("client,cat,dog\na,1,2\nb,1,2,3,4\n", {}, "cannot be read"),
        ("client,label\na,1\nb,\n", {"label": "label"}, "label 'label' is empty in 1 row"),
        ("client,label\na,1\n,2\n", {"label": "label"}, "client 'client' is empty in 1 row"),
        (
            "client,label\na,1\nb,1\n",
            {"label": "label"},
            "1 class: check whether 'label' is the label column",
        ),
    ],
)
def test_mistakes_are_named_with_their_cure(tmp_path: Path, text: str, options: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_counts(write(tmp_path, text), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        read_counts(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match=r"\.parquet"):
        read_counts(write(tmp_path, WIDE, "counts.xlsx"))
    with pytest.raises(UserError, match="cannot be read"):
        read_counts(write(tmp_path, WIDE, "counts.parquet"))
    with pytest.raises(UserError, match=r"\.csv"):
        read_counts(tmp_path)
    latin = tmp_path / "latin.csv"
    latin.write_bytes("client,cat,dog\nM\xfcnchen,1,2\nb,1,2\n".encode("latin-1"))
    with pytest.raises(UserError, match="UTF-8"):
        read_counts(latin)


def test_a_table_of_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows keep their numbers and names across pieces, and mistakes their places."""
    monkeypatch.setattr(read, "PIECE", 4)
    lines = [f"{7 * row % 50},{row},1" for row in range(50)]
    counts = read_counts(write(tmp_path, "client,cat,dog\n" + "\n".join(lines)))
    assert counts.client_names == [str(number) for number in range(50)]
    assert [7 * row % 50 for row in counts.matrix[:, 0]] == list(range(50))
    with pytest.raises(UserError, match="row 48, column 'cat': 'x' is not a number"):
        read_counts(write(tmp_path, "cat,dog\n" + 47 * "1,2\n" + "x,2\n"))
    with pytest.raises(UserError, match="client '0' is in rows 1 and 51"):
        read_counts(write(tmp_path, "client,cat,dog\n" + "\n".join([*lines, "0,1,1"])))
