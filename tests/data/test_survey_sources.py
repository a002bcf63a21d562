"""Census records and Amazon reviews, in the layout of their files."""

import gzip
from pathlib import Path

import pytest

from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import UserError

EXTRACT = """serialno,stabbr,pwgtp,mar,sex,agep,pincp,wagp
1,CA,47.0,2,2,53,0.0,0.0
2,AZ,14.0,1,2,41,19100.0,16827.6
3,CA,10.0,1,1,35,50000.0,50000.0
4,AZ,10.0,5,1,16,60000.0,60000.0
5,CA,0.0,5,1,20,60000.0,60000.0
6,CA,9.0,5,1,60,50001.0,0.0
"""
OFFICIAL = """RT,ST,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PWGTP,PINCP
P,06,30,1,21,1,3255,6,0,40,1,1,10,70000
P,06,31,,16,5,,36,17,,2,9,10,30000
P,06,32,6,16,5,4700,36,2,20,2,9,10,30000
"""


@pytest.fixture
def survey(tmp_path: Path, cache: Path) -> Path:
    (tmp_path / "acs_pums").mkdir()
    (tmp_path / "acs_pums" / "twenty.csv.gz").write_bytes(gzip.compress(EXTRACT.encode()))
    return tmp_path


def test_an_extract_of_the_survey(survey: Path) -> None:
    """Rows 1 (no income), 4 (a child) and 5 (no weight) are not in the task; 50,000 is not more than that."""
    data = load("acs_income", root=survey)
    assert data.classes == ("at most 50,000", "above 50,000")
    assert data.shape == (1 + 5 + 2,)
    assert data.numbers.tolist() == [True, *[False] * 7]
    people = {
        row[0]: (row[1:], label, state)
        for row, label, state in zip(data.x.tolist(), data.y.tolist(), data.owner, strict=True)
    }
    assert people == {
        41: ([1, 0, 0, 0, 0, 0, 1], 0, "AZ"),
        35: ([1, 0, 0, 0, 0, 1, 0], 0, "CA"),
        60: ([0, 0, 0, 0, 1, 1, 0], 1, "CA"),
    }
    assert data.provenance["read"] == (
        "ACSIncome with the features AGEP, MAR, SEX; the files lack OCCP, POBP, SCHL, WKHP, COW, RAC1P, "
        "RELP, so nobody is left out for WKHP"
    )
    assert federate(data, partitioner("natural"), SplitPlan(test=0)).clients == ("AZ", "CA")
    assert load("acs_income", root=survey, one_hot=False).shape == (3,)


def test_the_bureau_s_own_files(tmp_path: Path, cache: Path) -> None:
    """One a state; who works no hours is left out, and an empty cell is 0 where one is not."""
    (tmp_path / "psam_p06.csv").write_text(OFFICIAL)
    (tmp_path / "psam_p48.csv").write_text(OFFICIAL.replace("P,06", "P,48").replace("4700", ""))
    data = load("acs_income", path=str(tmp_path))
    assert data.shape == (5 + 9 + 5 + 9 + 18 + 2,)
    assert sorted(data.owner) == ["06", "06", "48", "48"]
    assert sorted(data.x[:, 1].tolist()) == [0, 3255, 3255, 4700]
    assert "lack" not in data.provenance["read"]
    one = load("acs_income", path=str(tmp_path / "psam_p06.csv"))
    assert torch_rows(one) == sorted(
        row for row, state in zip(data.x.tolist(), data.owner, strict=True) if state == "06"
    )
    assert len(load("acs_income", path=str(tmp_path / "psam_*.csv"))) == 4


def torch_rows(data) -> list:
    return sorted(data.x.tolist())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has no rows, or none of the columns"),
        ("AGEP,MAR\n30,1\n", "has no column PINCP: give person records"),
        ("AGEP,PINCP\n30,5\n", "nobody in .* is in the task"),
        ("AGEP,PINCP\nold,500\n", "column AGEP holds words"),
        ("AGEP,PINCP\n30,500\n31,600\n", "all labels are equal"),
        ("", "is empty"),
    ],
)
def test_other_tables_are_refused_in_one_sentence(
    tmp_path: Path, cache: Path, text: str, message: str
) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load("acs_income", path=str(tmp_path / "p.csv"))


def test_a_survey_that_is_not_there(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(UserError, match="there is no CSV file in acs_pums: put some there"):
        load("acs_income", root=tmp_path)
    with pytest.raises(UserError, match=r"there is no file nothing\.csv"):
        load("acs_income", root=tmp_path, path="nothing.csv")
    with pytest.raises(UserError, match=r"reviews\.csv\.gz is missing: put it into a folder amazon"):
        load("amazon", root=tmp_path)


REVIEWS = """domain,label,rating,asin,product_name,date,title,text,reviewer_id
books,0,1.0,1,A book,"May 1, 2006",Dull,"A dull, dull book",7
books,1,5.0,2,A book,"May 2, 2006",Good,A good book,8
dvd,1,4.0,3,A film,"May 3, 2006",Good,A good film,7
dvd,0,2.0,4,A film,"May 4, 2006",Dull,A dull film,9
"""


def test_reviews(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "amazon_multidomain").mkdir()
    (tmp_path / "amazon_multidomain" / "reviews.csv").write_text(REVIEWS)
    products = load("amazon", root=tmp_path, length=4)
    assert products.classes == ("books", "dvd")
    assert products.x.shape == (4, 4)
    moods = load("amazon", root=tmp_path, label="sentiment", owner="reviewer")
    assert moods.classes == ("negative", "positive")
    assert sorted(moods.owner) == ["7", "7", "8", "9"]
    assert (
        sorted(zip(products.owner, products.y.tolist(), strict=True)) == [("books", 0)] * 2 + [("dvd", 1)] * 2
    )


def test_the_real_survey(real_data: Path) -> None:
    """A quarter of 100,000 adults in 20 states earn more, before those without an income are left out."""
    if not (real_data / "acs_pums").is_dir():
        pytest.skip("the survey is not here")
    data = {"source": "acs_income", "root": str(real_data)}
    asked = Experiment.of(
        {"method": "fedavg", "data": data, "partition": {"name": "natural"}, "model": "logistic"}
    )
    federation = asked.federation(0)
    assert federation.num_clients == 20
    assert federation.clients[0] == "AK"
    rich = (federation.counts + federation.test.counts(2)).sum(0)
    assert 80_000 < int(rich.sum()) < 100_000
    assert 0.24 < float(rich[1] / rich.sum()) < 0.32


def test_the_real_reviews(real_data: Path) -> None:
    if not (real_data / "amazon_multidomain" / "reviews.csv.gz").is_file():
        pytest.skip("the Amazon reviews are not here")
    assert load("amazon", root=real_data).y.bincount().tolist() == [2000] * 4
    moods = load("amazon", root=real_data, label="sentiment")
    assert moods.y.bincount().tolist() == [4000] * 2
    assert federate(moods, partitioner("natural")).clients == ("books", "dvd", "electronics", "kitchen")
