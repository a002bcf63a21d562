"""What can be said of a table: which columns, what fills cells, dates, classes of an amount, its signs."""

import gzip
from datetime import date, datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import torch

from fedcohort.data import Dataset, SplitPlan, federate, load
from fedcohort.data.columns import Column
from fedcohort.data.dates import as_dates, date_numbers
from fedcohort.data.partition import partitioner
from fedcohort.data.sources.table import refuse_apart
from fedcohort.data.tables import TableFormat, separator_of
from fedcohort.util.errors import UserError

CSV = """row,age,dose,smoker,hospital,ill
1,30,1.5,yes,north,1
2,40,,no,north,0
3,,2.5,,south,1
4,60,4.0,yes,south,0
5,70,8.0,no,south,
"""


@pytest.fixture
def csv(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(CSV)
    return path


def read(csv: Path, **options: object) -> Dataset:
    return load("table", path=str(csv), **{"label": "ill", "client": "hospital", **options})


def whole(csv: Path, **options: object) -> Dataset:
    """Without the row that has no label."""
    csv.write_text("\n".join(CSV.splitlines()[:-1]))
    return read(csv, **options)


def test_columns_that_are_left_out(csv: Path) -> None:
    data = whole(csv, exclude=["row", "dose"], missing="mean")
    assert list(data.provenance["columns"]) == ["age", "smoker"]
    data = whole(csv, features=["row", "age"], exclude=["row"], missing="mean")
    assert list(data.provenance["columns"]) == ["age"]
    with pytest.raises(UserError, match=r"no column 'rows' \('exclude'\), did you mean 'row'"):
        read(csv, exclude=["rows"])


def test_incomplete_rows_are_left_out_and_counted(csv: Path) -> None:
    """Unless something is filled: then only rows without a label or client are."""
    data = read(csv, exclude=["row"], drop_incomplete=True)
    assert data.x[:, 0].tolist() == [30, 60]
    assert data.provenance["preparation"].columns[-1].levels == ("yes",)  # of the rows that are left
    assert data.provenance["read"].endswith("3 of 5 rows are incomplete and left out")
    data = read(csv, exclude=["row"], drop_incomplete=True, missing="mean")
    assert len(data) == 4
    assert data.provenance["preparation"].columns[-1].levels == ("", "no", "yes")
    csv.write_text("age,hospital,ill\n,a,1\n1,,0\n")
    with pytest.raises(UserError, match="no row is complete"):
        read(csv, drop_incomplete=True)


def test_a_test_table_is_read_with_the_same_options(csv: Path) -> None:
    later = csv.with_name("later.csv")
    later.write_text("dose,age,smoker,ill,hospital\n,50,no,1,north\n3,50,,,north\n3,51,yes,0,north\n")
    data = read(csv, exclude=["row"], drop_incomplete=True, test_path=str(later))
    assert data.test_x is not None
    assert data.test_x.tolist() == [[51, 3, 1]]


@pytest.mark.parametrize(
    ("scale", "filled"), [("federated", [40, 2.5]), ("client", [60, 1.5]), ("none", [60, 1.5])]
)
def test_medians_fill_what_is_missing(csv: Path, scale: str, filled: list[float]) -> None:
    """Ages 30, 40 and 60, of the south 60; doses 1.5, 2.5 and 4, of the north 1.5."""
    data = whole(csv, features=["age", "dose"], missing="median")
    dealt = federate(data, partitioner("natural"), SplitPlan(test=0), scale=scale)  # type: ignore[arg-type]
    gaps = data.x.isnan()
    own = dealt.scale or dealt.own_scale
    assert own is not None
    raw = dealt.train.x * own.std + own.mean if scale == "federated" else None
    if scale == "client":
        raw = dealt.train.x * own.std[[1, 0, 0, 1]] + own.mean[[1, 0, 0, 1]]
    raw = dealt.train.x if scale == "none" else raw
    assert raw is not None
    assert raw[gaps].tolist() == pytest.approx(filled)
    assert raw[~gaps].tolist() == pytest.approx(data.x[~gaps].tolist())


def test_a_median_is_that_of_training_rows(tmp_path: Path, cache: Path) -> None:
    """Of the even number of 1, 2, 10 and 20 it is 6; a column of which nothing is known is filled with 0."""
    frame = pl.DataFrame({"a": [1.0, 2, 10, 20, None], "b": [None] * 5, "y": [0, 1, 0, 1, 0]})
    data = load(frame, label="y", missing="median")
    dealt = federate(data, partitioner("iid", clients=1), SplitPlan(test=0))
    assert dealt.scale is not None
    assert dealt.scale.fill.tolist() == [6, 0]
    split = federate(data, partitioner("iid", clients=1), SplitPlan(test=0.4))
    known = data.x[split.train.index, 0]
    assert split.scale is not None
    assert split.scale.fill[0] == known[~known.isnan()].quantile(0.5)


def test_a_constant_fills_numbers_before_anything_is_learnt(csv: Path) -> None:
    data = whole(csv, features=["age", "dose"], missing="constant", constant=-1)
    assert data.x.tolist() == [[-1, 2.5], [30, 1.5], [40, -1], [60, 4]]
    assert data.gaps == "none"
    assert data.provenance["read"].endswith(
        "2 of 8 numbers are missing and filled with -1, most in 'age' (25%)"
    )
    frame = pl.DataFrame({"when": ["2020-01-01", None], "a": [1, 2], "y": [0, 1]})
    with pytest.raises(UserError, match="column 'when' is empty in 1 of 2 rows"):
        load(frame, label="y", missing="constant")


def test_dates_become_four_numbers(tmp_path: Path, cache: Path) -> None:
    """1970-01-01 was a Thursday, 2024-02-29 too; noon is half a day."""
    days = ["1970-01-01", "2024-02-29 12:00", None, "1969/12/31T18:00:00.5+02:00"]
    data = load(pl.DataFrame({"when": days, "y": [0, 1, 0, 1]}), label="y", missing="mean")
    assert data.x[0].isnan().all()
    assert data.x.tolist()[1:] == [[1969, 12, 3, -0.25], [1970, 1, 4, 0], [2024, 2, 4, 19782.5]]
    assert data.numbers is not None
    assert data.numbers.all()
    assert data.provenance["read"].startswith("columns of the table: 1 of dates; 1 of 4 numbers")
    names = [f"when ({part})" for part in ("year", "month", "weekday", "days")]
    assert list(data.provenance["columns"]) == names


@pytest.mark.parametrize(
    ("cell", "order"),
    [
        ("2024-03-04", "ymd"),
        ("2024-3-4", "dmy"),  # the year first is never in doubt
        ("4.3.2024", "dmy"),
        ("04/03/2024 00:00:00", "dmy"),
        ("03-04-2024", "mdy"),
        ("March 4, 2024", "ymd"),
        ("Mar 4 2024", "ymd"),
        ("04-MAR-2024", "ymd"),
        ("4. March 2024 00:00", "ymd"),
    ],
)
def test_ways_to_write_a_day(cell: str, order: str) -> None:
    found = as_dates(pl.Series("^w.*$", [cell, None]), order)  # type: ignore[arg-type]
    assert found is not None
    assert found.to_list() == [datetime(2024, 3, 4), None]


@pytest.mark.parametrize("cell", ["2024-13-04", "04/03/24", "2024", "20240304", "tomorrow", "2024-03-04 x"])
def test_what_is_no_day(cell: str) -> None:
    assert as_dates(pl.Series([cell, "2024-03-04"])) is None


def test_typed_days_of_parquet_and_frames(tmp_path: Path, cache: Path) -> None:
    days = [date(2024, 3, 4), date(2024, 3, 5)]
    typed = pl.DataFrame({"when": days, "y": [0, 1]})
    typed.write_parquet(tmp_path / "t.parquet")
    frames = (typed, pd.DataFrame({"when": pd.to_datetime(days), "y": [0, 1]}), str(tmp_path / "t.parquet"))
    for given in frames:
        options = {"label": "y"}
        data = load("table", path=given, **options) if isinstance(given, str) else load(given, **options)
        assert data.x[:, :3].tolist() == [[2024, 3, 1], [2024, 3, 2]]
    zoned = pl.Series([datetime(2024, 3, 4, 23)]).dt.replace_time_zone("America/New_York")
    assert date_numbers(as_dates(zoned))[0, 2] == 1  # Monday there, whatever it is elsewhere


def test_days_in_doubt_are_asked_for(csv: Path) -> None:
    csv.write_text("when,ill\n03/04/2024,0\n05/06/2024,1\n")
    with pytest.raises(UserError, match=r"dates such as '03/04/2024': set date_order='dmy' if the day comes"):
        load("table", path=str(csv), label="ill")
    for order, month in (("dmy", 4), ("mdy", 3)):
        assert load("table", path=str(csv), label="ill", date_order=order).x[0, 1] == month
    assert load("table", path=str(csv), label="ill", categorical=["when"]).shape == (2,)


def test_dates_that_are_named_have_to_be_some(csv: Path) -> None:
    csv.write_text("when,ill\n2024-01-01,0\nsoon,1\n")
    with pytest.raises(UserError, match=r"column 'when' holds dates, but 'soon' in row 2 of patients: write"):
        load("table", path=str(csv), label="ill", dates=["when"])
    csv.write_text("when,ill\n,0\n,1\n")  # a client that knows none of its dates
    assert load("table", path=str(csv), label="ill", dates=["when"], missing="mean").shape == (4,)


AMOUNTS = "a,pay\n" + "".join(f"{n},{100 + n}\n" for n in range(60))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AMOUNTS, "label 'pay' has 60 values"),
        ("a,pay\n1,0.5\n2,1\n", "label 'pay' holds numbers with decimals"),
    ],
)
def test_an_amount_is_no_class(csv: Path, text: str, words: str) -> None:
    csv.write_text(text)
    with pytest.raises(UserError, match=f"{words}, .*: set bins=4 .*if it is a category, add 'pay' to"):
        load("table", path=str(csv), label="pay")
    values = len(set(text.split()[1:]))
    data = load("table", path=str(csv), label="pay", categorical=["pay"])
    assert len(data.classes) == values
    assert data.shape == (1,)


def test_fifty_values_are_classes(csv: Path) -> None:
    csv.write_text("a,pay\n" + "".join(f"{n},{n}\n" for n in range(50)))
    assert len(load("table", path=str(csv), label="pay").classes) == 50


def test_an_amount_is_cut_into_classes(csv: Path) -> None:
    csv.write_text(AMOUNTS)
    data = load("table", path=str(csv), label="pay", bins=3)
    assert data.classes == ("at most 119", "above 119 to 139", "above 139")
    assert torch.bincount(data.y).tolist() == [20, 20, 20]
    assert data.y[data.x[:, 0] == 19] == 0  # a bound belongs to the class below
    listed = load("table", path=str(csv), label="pay", bins=[119, 139])
    assert (listed.classes, listed.y.tolist()) == (data.classes, data.y.tolist())
    one = load("table", path=str(csv), label="pay", bins=[119])
    assert one.y.tolist() == load("table", path=str(csv), label="pay", threshold=119).y.tolist()


def test_a_value_that_fills_several_classes_is_one(csv: Path) -> None:
    csv.write_text("a,pay\n" + "".join(f"{n},{max(n, 7)}.5\n" for n in range(10)))
    assert load("table", path=str(csv), label="pay", bins=4).classes == ("at most 7.5", "above 7.5")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bins": [3, 1]}, "ascending"),
        ({"bins": []}, "ascending"),
        ({"bins": 1}, r"bins: 1 is not"),
        ({"bins": 3, "threshold": 1}, "both make classes"),
        ({"bins": 3, "label": "smoker"}, "'bins' is for numbers"),
        ({"missing": "mode"}, "'mode' is not 'refuse' or 'mean' or 'median' or 'constant'"),
        ({"date_order": "ydm"}, "date_order"),
    ],
)
def test_options_that_make_no_sense(csv: Path, options: dict, words: str) -> None:
    csv.write_text("a,smoker,ill\n1,yes,3\n2,no,1\n3,no,2\n")
    with pytest.raises(UserError, match=words):
        load("table", path=str(csv), **{"label": "ill", **options})


def test_all_problems_are_told_at_once(csv: Path) -> None:
    csv.write_text(
        "age,dose,day,name,hospital,ill\n"
        + "".join(f"{n},{n},0{1 + n % 9}/02/2024,n{n},a,{n % 2}\n" for n in range(300))
        + "inf,much,01/02/2024,n1,,\n"
    )
    with pytest.raises(UserError) as caught:
        read(csv)
    told = str(caught.value)
    assert told.startswith("6 problems: (1) ")
    for words in (
        "'day' holds dates such as",
        "'dose' holds numbers, but 'much' in row 301",
        "'name' has 300 different words",
        "label 'ill' is empty in 1 row: set drop_incomplete=true",
        "client 'hospital' is empty in 1 row",
    ):
        assert words in told
    with pytest.raises(UserError, match=r"2 problems: .*no column 'il' .*; .*no column 'hospita'"):
        read(csv, label="il", client="hospita")


def test_empty_cells_of_many_columns_are_one_problem(csv: Path) -> None:
    names = [f"c{n}" for n in range(8)]
    csv.write_text(",".join([*names, "y"]) + "\n" + ",".join(["1"] * 9) + "\n" + "," * 8 + "0\n")
    with pytest.raises(UserError, match=r"empty in some of 2 rows: 'c0' \(1\), .* and 3 more: set missing="):
        load("table", path=str(csv), label="y")


@pytest.mark.parametrize(
    ("start", "sign"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2,5\n", ";"),
        ("1,5;2,5\n3,5;4\n", ";"),
        ("a\tb\n1,000\t2\n", "\t"),
        ("a|b\n", "|"),
        ('"a;b",c\n1,2\n', ","),
        ("a;b;c\nfree; text;1;2\n", ";"),
        ("name\nx\n", ","),
        ("", ","),
    ],
)
def test_the_sign_between_cells_is_found_out(start: str, sign: str) -> None:
    assert separator_of(start) == sign


def test_a_spreadsheet_from_where_the_comma_is_the_decimal_sign(tmp_path: Path, cache: Path) -> None:
    """With semicolons, a byte order mark, and ends of lines as Windows writes them; packed or not."""
    text = "\ufeffalter;dosis;code;krank\r\n30;1,5;1,2,3;0\r\n40;-,5;4;1\r\n50;2;x;1\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode())
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "b.csv.gz"):
        data = load("table", path=str(tmp_path / name), label="krank", features=["alter", "dosis", "code"])
        assert data.x[:, :2].tolist() == [[30, 1.5], [40, -0.5], [50, 2]]
        assert data.provenance["preparation"].columns[2].levels == ("1,2,3", "4", "x")
    with pytest.raises(UserError, match=r"holds numbers, but '1,5' in row 1 of a: set decimal"):
        load("table", path=str(tmp_path / "a.csv"), label="krank", features=["dosis"], decimal=".")


def test_points_stay_where_cells_are_separated_by_commas(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.csv").write_text('dose,y\n"1,500",0\n"2,500",1\n')
    with pytest.raises(UserError, match="set decimal=','"):
        load("table", path=str(tmp_path / "a.csv"), label="y")
    data = load("table", path=str(tmp_path / "a.csv"), label="y", decimal=",")
    assert data.x[:, 0].tolist() == [1.5, 2.5]


def test_a_parquet_file_has_no_separator(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.parquet")
    assert TableFormat().of(tmp_path / "a.parquet") == TableFormat(separator=",", decimal=".")


def test_what_needs_all_rows_in_one_place() -> None:
    for options, scale, words in (
        ({"bins": 4}, "client", "list the numbers between the classes"),
        ({"missing": "median"}, "federated", "take 'mean', or each client's own"),
    ):
        with pytest.raises(UserError, match=words):
            refuse_apart(options, scale)  # type: ignore[arg-type]
    refuse_apart({"bins": [1, 2], "missing": "median"}, "client")


def test_columns_tell_what_they_become() -> None:
    assert Column("when", dates="ymd").width == 4
    assert Column("when", dates="ymd").is_quantity
    assert Column("a", fill=True).needed is Column("a", constant=0.0).needed is False


@pytest.mark.parametrize("cells", [[[1], [2]], [b"\xff", b"\xfe"]], ids=["lists", "bytes"])
def test_dates_are_neither_lists_nor_bytes(cells: list, tmp_path: Path, cache: Path) -> None:
    pl.DataFrame({"when": cells, "y": [0, 1]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"column 'when' holds .*, not numbers or words: convert it first"):
        load("table", path=str(tmp_path / "t.parquet"), label="y", dates=["when"])
