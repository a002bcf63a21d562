"""``init``: what it says of a table, the file that it writes, which runs as it is, and what it refuses."""

import random
import tomllib
from pathlib import Path

import pytest

from fedcohort.cli.new_experiment import text_width
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
    assert file["data"] == {**asked, "exclude": ["patient", "result"], "missing": "mean"}
    assert '# categorical = ["stage"]' in Path("experiment.toml").read_text()
    assert file["cohort"] == 1.0
    assert file["split"] == {"test": 0.2, "validation": 0.2}
    assert file["model"] == {"name": "logistic"}
    assert file["method"][:3] == ["fedavg", "local_only", "centralised"]
    assert len(file["method"]) > 3


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
    _, file = written(cli, *ASKED, "--feature", "patient", "--exclude", "age")
    assert file["data"]["exclude"] == ["age", "result"]
    assert "missing" not in file["data"]


def test_not_everybody_trains_where_there_are_many(here: Path, cli: Cli) -> None:
    for sites, share in ((49, 1.0), (50, 0.2)):
        (here / "patients.csv").write_text(patients(2000, sites))
        _, file = written(cli, *ASKED, out=f"{sites}.toml")
        assert file["cohort"] == share
        selectors = {method.selector.name for method in Experiment.read(f"{sites}.toml").methods}
        assert share < 1 or selectors == {"uniform"}  # there is nobody to choose


def test_more_rows_take_a_larger_network(here: Path, cli: Cli) -> None:
    (here / "patients.csv").write_text(patients(4000))
    assert written(cli, *ASKED)[1]["model"] == {"name": "mlp", "widths": [64]}


def test_small_clients_are_left_out_and_told(here: Path, cli: Cli) -> None:
    text = patients()
    (here / "patients.csv").write_text(text + "1,50,0.5,1,m,positive,tiny,1\n")
    answer, file = written(cli, *ASKED)
    assert "1 clients with fewer than 10 rows are left out" in answer.out
    assert "120 of 121" in answer.out
    assert file["partition"] == {"name": "natural", "min_samples": 10}
    (here / "patients.csv").write_text("\n".join(text.splitlines()[:10]))
    assert "no client has 10 rows ('hospital' has 3 values in 9 rows)" in refused(
        cli, here, *ASKED, "-o", "b"
    )


def test_rows_without_label_or_client_are_left_out_and_told(here: Path, cli: Cli) -> None:
    (here / "patients.csv").write_text(patients() + "1,50,0.5,1,,positive,,1\n2,50,0.5,1,m,positive,h1,\n")
    answer, file = written(cli, *ASKED)
    assert "2 rows lack a label or a client and are left out" in answer.out
    assert file["data"]["drop_incomplete"]
    assert Experiment.read("experiment.toml").federation(0).sizes.sum() == 120


def test_an_amount_becomes_classes(table: Path, here: Path, cli: Cli) -> None:
    words = "patients.csv", "--client", "hospital", "--label", "dose"
    assert "'dose' holds numbers with decimals" in refused(cli, here, *words)
    assert "--bins 4 for 4 classes" in refused(cli, here, *words)
    _, file = written(cli, *words, "--bins", "3")
    assert len(file["data"]["bins"]) == 2
    sizes = Experiment.read("experiment.toml").dataset.y.bincount().tolist()
    assert max(sizes) - min(sizes) <= 4
    _, file = written(cli, *words, "--bins", "0.5,", out="two.toml")
    assert file["data"]["bins"] == [0.5]
    _, file = written(
        cli, "patients.csv", "--client", "hospital", "--label", "outcome", "--category", out="c"
    )
    assert file["data"]["categorical"] == ["outcome"]
    for bins in ("1", "51", "x", "inf,", ","):
        assert f"--bins {bins}: write a number of classes" in refused(
            cli, here, *words, "--bins", bins, "-o", "d"
        )
    assert "--bins is for numbers" in refused(
        cli, here, "patients.csv", "--client", "hospital", "--label", "sex", "--bins", "3", "-o", "d"
    )


def test_dates_texts_and_words_that_mean_nothing(here: Path, cli: Cli) -> None:
    draw, lines = random.Random(0), ["seen,note,lab,site,y"]
    for n in range(90):
        note = " ".join(draw.choice(["pain", "no", "fever", "cough", "well"]) for _ in range(6))
        lab = "unknown" if n % 30 == 7 else f"{draw.random():.2f}"
        lines.append(f"{draw.randint(1, 12)}/{draw.randint(13, 28)}/2020,{note},{lab},s{n % 3},{n % 2}")
    (here / "t.csv").write_text("\n".join(lines))
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y")
    data = {
        "text": ["note"],
        "text_width": 4096,
        "dates": ["seen"],
        "date_order": "mdy",
        "empty": ["unknown"],
    }
    assert file["data"] == {
        "source": "table",
        "path": "t.csv",
        "label": "y",
        "client": "site",
        **data,
        "missing": "mean",
    }
    assert (file["model"], file["local"]) == ({"name": "logistic"}, {"lr": 1.0})
    assert "month first" not in answer.out
    (here / "t.csv").write_text(
        "\n".join(lines).replace("/2020", "/20").replace("/1", "/0").replace("/2", "/0")
    )
    lines = [lines[0], *(f"{1 + n % 9}/{1 + n % 7}/2020,{n},{n % 5}.5,s{n % 3},{n % 2}" for n in range(90))]
    (here / "t.csv").write_text("\n".join(lines))
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y", out="b.toml")
    assert "dates may have the month first" in answer.out
    assert file["data"]["date_order"] == "dmy"


def test_texts_take_no_more_than_a_gigabyte() -> None:
    assert text_width(8000, 1) == 4096
    assert text_width(100_000, 1) == 512
    assert text_width(10**9, 1) == 512
    assert text_width(20_000, 2) == 2048


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
    _, file = written(cli, "patients.csv", "--label", "outcome", "--partition", deal, "--exclude", "hospital")
    assert file["partition"] == {"name": "dirichlet", "clients": 4, "alpha": 1.0}
    assert "client" not in file["data"]


def test_a_table_cannot_write_lines_of_its_own(here: Path, cli: Cli) -> None:
    """Names and cells of a table stand in comments of the file."""
    evil = "a\nrounds = 99\n"
    rows = "".join(f"{n},{n % 5}.5,s{n % 2},{n % 2}\n" for n in range(40))
    (here / "t.csv").write_text(f'"{evil}","[bold]b[/]",site,y\n{rows}')
    answer, file = written(cli, "t.csv", "--client", "site", "--label", "y")
    assert file["rounds"] == 50
    assert file["data"]["exclude"] == [evil.strip()]
    assert "[bold]b[/]" in answer.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "perhaps: fedcohort init patients.csv --client hospital --label outcome; rows that belong to nobody"),
        ("--label sex", "perhaps: fedcohort init patients.csv --client hospital --label sex"),
        ("--client hospitl --label outcom", "2 problems: (1) the table has no column 'outcom' ('--label')"),
        ("--client outcome --label outcome", "both name 'outcome'"),
        ("--client hospital --label patient", "label 'patient' has 120 values, so it looks like an amount"),
        ("--client hospital --label patient --category", "120 values in 120 rows, so few of each"),
        ("--client hospital --label outcome --feature ages", "no column 'ages' ('--feature'), did you mean 'age'?"),
        ("--client result --label sex --exclude age --exclude dose --exclude stage --exclude hospital "
         "--exclude patient --exclude outcome", "no column is left that a model could read ('patient', unwanted"),
        ("--label outcome --partition iid(clients=1)", "one client, and nobody to learn with"),
        ("--label outcome --partition idd", "unknown partition 'idd', did you mean 'iid'?"),
    ],
)  # fmt: skip
def test_mistakes(table: Path, here: Path, cli: Cli, words: str, text: str) -> None:
    assert text in refused(cli, here, "patients.csv", *words.split())


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("a,site,y\n", "holds no rows")])
def test_an_empty_table(here: Path, cli: Cli, text: str, words: str) -> None:
    (here / "t.csv").write_text(text)
    assert words in refused(cli, here, "t.csv", "--client", "site", "--label", "y")
