"""``init``: what it says of a table, the file that it writes, which runs as it is, and what it refuses."""

import random
import tomllib
from pathlib import Path

import pytest

from fedcohort.runs.experiment import Experiment
from support.cli_calls import Answer, Cli, contents


def patients(rows: int = 120, sites: int = 3) -> str:
    """A patient's number, two measurements, one of which tells something, a code, a sex, and a result that is
    the outcome in other words."""
    draw = random.Random(0)
    lines = ["patient,age,dose,stage,sex,result,hospital,outcome"]
    for n in range(rows):
        ill = draw.random() < 0.4
        age = "" if n % 10 == 3 else draw.randint(30, 80)
        cells = (1000 + n, age, f"{draw.gauss(ill, 1):.2f}", draw.randint(1, 4), draw.choice("mf"))
        line = ",".join(map(str, (*cells, "positive" if ill else "negative", f"h{n % sites}", int(ill))))
        lines.append(line)
    return "\n".join(lines) + "\n"


def skewed(sites: int) -> str:
    """Of each site's patients another share is ill."""
    lines = [f"{n % 7}.5,h{site},{int(n < site % 21)}" for site in range(sites) for n in range(20)]
    return "\n".join(["dose,hospital,outcome", *lines])


@pytest.fixture
def table(here: Path) -> Path:
    path = here / "patients.csv"
    path.write_text(patients())
    return path


def written(cli: Cli, *words: str, out: str = "experiment.toml") -> tuple[Answer, dict]:
    answer = cli("init", *words, "--out", out)
    assert (answer.code, answer.err) == (0, "")
    return answer, tomllib.loads(Path(out).read_text())


def refused(cli: Cli, here: Path, *words: str) -> str:
    before = contents(here)
    answer = cli("init", *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert contents(here) == before
    return answer.err


ASKED = ("patients.csv", "--client", "hospital", "--label", "outcome")


def test_what_is_said_and_written(table: Path, cli: Cli) -> None:
    answer, file = written(cli, *ASKED)
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in answer.out.splitlines() if line.strip()}
    assert lines["clients"] == "3: h0, h1, h2"
    assert lines["age"].startswith("numbers 30 to 80")
    assert lines["stage"] == "numbers 1 to 4, perhaps codes"
    assert lines["sex"] == "categories 2: f, m"
    assert lines["patient"] == "left out identifier: row numbers, 1000 to 1119"
    assert lines["result"] == "left out copy of the label: tells it alone"
    assert "fedcohort run experiment.toml" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    asked = {"source": "table", "path": "patients.csv", "label": "outcome", "client": "hospital"}
    assert file["data"] == {**asked, "exclude": ["patient", "result"], "categorical": [], "missing": "mean"}
    assert "# perhaps codes, not amounts: stage" in Path("experiment.toml").read_text()
    assert file["cohort"] == 1.0
    assert file["split"] == {"test": 0.2, "validation": 0.2}
    assert file["model"] == {"name": "logistic"}
    assert file["method"] == ["fedavg", "local_only", "centralised"]
    assert "Train one model with plain fedavg" in answer.out


def test_the_file_runs_as_it_is(table: Path, cli: Cli) -> None:
    _, file = written(cli, *ASKED)
    answer = cli("run", "experiment.toml", "--set", "rounds=1", "--seeds", "0", "--quiet")
    assert answer.code == 0
    for method in file["method"]:
        assert method.partition("(")[0] in answer.out


def test_nothing_is_overwritten(table: Path, here: Path, cli: Cli) -> None:
    (here / "experiment.toml").write_text("mine")
    assert "exists already and is left as it is" in refused(cli, here, *ASKED)
    assert "choose another --out" in refused(cli, here, *ASKED, "--out", "nowhere/e.toml")


def test_what_the_owner_says_has_the_last_word(table: Path, cli: Cli) -> None:
    _, file = written(cli, *ASKED, "--feature", "patient", "--set", "local.lr=0.5", "--set", "model=mlp")
    assert file["data"]["exclude"] == ["result"]
    assert (file["local"], file["model"]) == ({"lr": 0.5}, "mlp")
    _, file = written(cli, *ASKED, "--set", 'data.exclude=["age"]', out="b.toml")
    assert file["data"]["exclude"] == ["age"]
    assert "missing" not in file["data"]
    answer, file = written(cli, *ASKED, "--set", 'data.categorical=["patient"]', out="c.toml")
    assert file["data"]["exclude"] == ["result"]
    assert "categories   as you said" in answer.out
    _, file = written(cli, *ASKED, "--set", 'method=[{name="fedprox", mu=0.5}]', out="d.toml")
    assert file["method"] == [{"name": "fedprox", "mu": 0.5}]


def test_not_everybody_trains_where_there_are_many(here: Path, cli: Cli) -> None:
    for sites, share in ((49, 1.0), (50, 0.2)):
        (here / f"{sites}.csv").write_text(skewed(sites))
        _, file = written(cli, f"{sites}.csv", *ASKED[1:], out=f"{sites}.toml")
        assert file["cohort"] == share
        assert ({"fedentopt", "fedlecc"} <= {*file["method"]}) == (share < 1)  # else nobody is to be chosen


def test_more_rows_take_a_larger_network(here: Path, cli: Cli) -> None:
    (here / "patients.csv").write_text(patients(4000))
    assert written(cli, *ASKED)[1]["model"] == {"name": "mlp", "widths": [64]}


def test_small_clients_are_left_out_and_told(here: Path, cli: Cli) -> None:
    text = patients()
    (here / "patients.csv").write_text(text + "1,50,0.5,1,m,positive,tiny,1\n")
    answer, file = written(cli, *ASKED)
    assert "left out: 1 client with fewer than 10 rows" in answer.out
    assert "120 of 121" in answer.out
    assert file["partition"] == {"name": "natural", "min_samples": 10}
    (here / "patients.csv").write_text("\n".join(text.splitlines()[:13]))
    error = refused(cli, here, *ASKED, "-o", "b")
    assert "no client has 10 rows ('hospital' has 3 values in 12 rows)" in error


def test_rows_without_label_or_client_are_left_out_and_told(here: Path, cli: Cli) -> None:
    (here / "patients.csv").write_text(patients() + "1,50,0.5,1,,positive,,1\n2,50,0.5,1,m,positive,h1,\n")
    answer, file = written(cli, *ASKED)
    assert "left out: 2 rows without a label or a client" in answer.out
    assert file["data"]["drop_incomplete"]
    assert Experiment.read("experiment.toml").federation(0).sizes.sum() == 120


def test_an_amount_becomes_classes(table: Path, here: Path, cli: Cli) -> None:
    words = "patients.csv", "--client", "hospital", "--label", "dose"
    error = refused(cli, here, *words)
    assert "'dose' holds numbers with decimals" in error
    assert "add --set data.bins=4 for 4 classes" in error
    _, file = written(cli, *words, "--set", "data.bins=3")
    assert len(file["data"]["bins"]) == 2  # as clients that are elsewhere need it
    sizes = Experiment.read("experiment.toml").dataset.y.bincount().tolist()
    assert max(sizes) - min(sizes) <= 4
    _, file = written(cli, *words, "--set", "data.threshold=0.5", out="two.toml")
    assert file["data"]["threshold"] == 0.5
    error = refused(cli, here, *words[:-1], "sex", "--set", "data.bins=3", "-o", "d")
    assert "'bins' is for numbers" in error
    assert "data.bins" in refused(cli, here, *words, "--set", "data.bins=99", "-o", "d")


def test_dates_texts_and_words_that_mean_nothing(here: Path, cli: Cli) -> None:
    draw, lines = random.Random(0), ["seen,note,lab,site,y"]
    for n in range(90):
        note = " ".join(draw.choice(["pain", "no", "fever", "cough", "well"]) for _ in range(6))
        lab = "unknown" if n % 30 == 7 else f"{draw.random():.2f}"
        lines.append(f"{draw.randint(1, 12)}/{draw.randint(13, 28)}/2020,{note},{lab},s{n % 3},{n % 2}")
    (here / "t.csv").write_text("\n".join(lines))
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y")
    asked = {"source": "table", "path": "t.csv", "label": "y", "client": "site"}
    data = {"text": ["note"], "text_width": 4096, "dates": ["seen"], "date_order": "mdy"}
    assert file["data"] == {**asked, **data, "empty": ["unknown"], "missing": "mean"}
    assert (file["model"], file["local"]) == ({"name": "logistic"}, {"lr": 1.0})
    assert "month first" not in answer.out
    lines = [lines[0], *(f"{1 + n % 9}/{1 + n % 7}/2020,{n},{n % 5}.5,s{n % 3},{n % 2}" for n in range(90))]
    (here / "t.csv").write_text("\n".join(lines))
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y", out="b.toml")
    assert "dates may have the month first" in answer.out
    assert file["data"]["date_order"] == "dmy"


def test_files_without_header_and_one_for_each_client(here: Path, cli: Cli) -> None:
    draw = random.Random(0)
    for site in ("north", "south"):
        lines = [f"{draw.random():.2f},{draw.randint(0, 1)}" for _ in range(40)]
        (here / f"{site}.data").write_text("\n".join(lines))
    answer, file = written(cli, "*.data", "--label", "column_2")
    assert "*.data has no header" in answer.out
    assert (file["data"]["client"], file["data"]["header"]) == ("@file", False)
    assert Experiment.read("experiment.toml").federation(0).clients == ("north", "south")
    error = refused(cli, here, "*.data", "--label", "ill", "-o", "b.toml")
    assert "*.data begins with numbers, so its columns are column_1 to column_2: name one" in error


def test_rows_of_nobody_are_dealt(table: Path, cli: Cli) -> None:
    deal = "dirichlet(clients=4, alpha=1.0)"
    answer, file = written(cli, "patients.csv", "--label", "outcome", "--set", f"partition={deal}")
    assert "4: client 0" in answer.out
    assert file["partition"] == deal
    assert "client" not in file["data"]


def test_a_table_cannot_write_lines_of_its_own(here: Path, cli: Cli) -> None:
    """Names and cells of a table stand in comments of the file."""
    evil = "a\nrounds = 99\n"
    rows = "".join(f"{n // 2 % 5},{n % 5}.5,s{n % 2},{n % 2}\n" for n in range(40))
    (here / "t.csv").write_text(f'"{evil}","[bold]b[/]",site,y\n{rows}')
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y")
    assert file["rounds"] == 50
    assert "perhaps codes, not amounts: a?rounds = 99" in Path("experiment.toml").read_text()
    assert "[bold]b[/]" in answer.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "perhaps: fedcohort init patients.csv --client hospital --label outcome; rows that belong"),
        ("--label sex", "perhaps: fedcohort init patients.csv --client hospital --label sex"),
        ("--client hospitl --label outcom", "2 problems: (1) the table has no column 'outcom' ('--label')"),
        ("--client outcome --label outcome", "both name 'outcome'"),
        ("--client hospital --label patient", "label 'patient' has 120 values, so it looks like an amount"),
        ("--client hospital --label patient --set data.categorical=['patient']", "120 different values in"),
        ("--client hospital --label outcome --feature ages", "no column 'ages' ('--feature'), did you mean"),
        ("--client result --label sex --set data.features=['hospital'] --set data.exclude=['hospital']",
         "no feature column besides"),
        ("--client hospital --label outcome --set data.exclude=['patint']", "no column 'patint' ('exclude')"),
        ("--label outcome --set partition=iid(clients=1)", "one client, and nobody to learn with"),
        ("--label outcome --set partition=idd", "unknown partition 'idd', did you mean 'iid'?"),
        ("--client hospital --label outcome --set rouns=3", "rouns"),
    ],
)  # fmt: skip
def test_mistakes(table: Path, here: Path, cli: Cli, words: str, text: str) -> None:
    assert text in refused(cli, here, "patients.csv", *words.split())


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("a,site,y\n", "holds no rows")])
def test_an_empty_table(here: Path, cli: Cli, text: str, words: str) -> None:
    (here / "t.csv").write_text(text)
    assert words in refused(cli, here, "t.csv", "--client", "site", "--label", "y")


def test_no_column_is_left(here: Path, cli: Cli) -> None:
    (here / "t.csv").write_text("n,site,y\n" + "".join(f"{n},s{n % 2},{n // 2 % 2}\n" for n in range(40)))
    error = refused(cli, here, "t.csv", "--client", "site", "--label", "y")
    assert "no column is left that a model could read ('n', identifier: row numbers, 0 to 39)" in error


def test_a_table_is_no_experiment_file(table: Path, cli: Cli) -> None:
    answer = cli("run", "patients.csv")
    assert answer.code == 2
    assert "'fedcohort init patients.csv --client COLUMN --label COLUMN' writes one" in answer.err


def test_diagnose_says_which_columns_look_like_client_and_label(table: Path, cli: Cli) -> None:
    for words in ((), ("--client", "hospital")):
        answer = cli("diagnose", "patients.csv", *words)
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert "add --client hospital --label outcome" in answer.err
    assert "perhaps --client hospital" in cli("diagnose", "patients.csv", "--label", "outcome").err
