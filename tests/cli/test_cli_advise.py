"""``fedcohort advise``: what it reads, what it prints, and how it answers mistakes."""

import json
import tomllib
from pathlib import Path

import pytest

from support.cli_calls import TINY, Cli
from support.evidence import table

EVIDENCE = table(*((skew, {"scaffold": 0.1, "ifca": 0.2}) for skew in (0.2, 0.6, 1.0)))
COUNTS = "site,a,b\nx,9,1\ny,1,9\nz,5,5\n"
LONG = "site,label\n" + "".join(f"{'xyz'[row % 3]},{'ab'[row % 2]}\n" for row in range(30))


@pytest.fixture(autouse=True)
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: EVIDENCE)
    monkeypatch.setattr("fedcohort.cli.advice_panel.shipped", lambda: EVIDENCE)
    (here / "counts.csv").write_text(COUNTS)
    (here / "long.csv").write_text(LONG)
    (here / "auto.toml").write_text(f"method = 'auto'\n{TINY}")
    (here / "withheld.toml").write_text(f"method = 'fedavg'\n{TINY}\n[privacy]\ncounts = 'withheld'\n")


def told(cli: Cli, *words: str) -> dict:
    answer = cli("advise", *words, "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_a_panel_says_what_to_do_and_why(cli: Cli) -> None:
    out = " ".join(cli("advise", "counts.csv", "--client", "site").out.replace("│", " ").split())
    assert "do this train with ifca: +20.0 points of accuracy over fedavg (+20.0 to +20.0 on 80%" in out
    assert "runner-up scaffold: +10.0 points" in out
    assert "1 of 3 clients train a round" in out
    assert "most like it that were measured, ifca did best on" in out
    assert "local.lr was best at 0.1 (fedavg: 0.1)" in out
    assert """--set 'method=["fedavg", "ifca"]'""" in out
    assert "clients: 3 here, 2 in what was measured; the advice is a guess there" in out


def test_where_the_table_is_no_judge_tuning_is_advised(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = table(*((skew, {"scaffold": 0.1, "ifca": 0.2}) for skew in (0.2, 0.6, 1.0)), any=False)
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: unsure)
    out = " ".join(cli("advise", "counts.csv", "--client", "site").out.replace("│", " ").split())
    assert 'do this tune ifca, scaffold, fedavg, as method = "auto" does' in out
    assert "such advice was not surely better than always the same method" in out
    assert """fedcohort tune experiment.toml --set 'method=["ifca", "scaffold", "fedavg"]'""" in out


def test_one_model_for_all(cli: Cli) -> None:
    assert told(cli, "counts.csv", "--client", "site", "--one-model")["method"] == "scaffold"


@pytest.mark.parametrize(
    ("words", "clients", "cohort"),
    [
        (("counts.csv", "--client", "site"), 3, 1),
        (("counts.csv", "--client", "site", "--cohort", "2"), 3, 2),
        (("counts.csv", "--client", "site", "--cohort", "1"), 3, 1),
        (("counts.csv", "--client", "site", "--cohort", "1.0"), 3, 3),
        (("long.csv", "--client", "site", "--label", "label"), 3, 1),
        (("digits", "--partition", "dirichlet(clients=20, alpha=1)"), 20, 2),
        (("auto.toml",), 6, 3),
        (("auto.toml", "--cohort", "0.5"), 6, 3),
        (("auto.toml", "--cohort", "4"), 6, 4),
    ],
)
def test_what_it_reads(cli: Cli, words: tuple[str, ...], clients: int, cohort: int) -> None:
    features = told(cli, *words)["features"]
    assert (features["clients"], features["cohort"]) == (clients, cohort)


def test_noise_is_added_as_clients_would(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    noised = table(*((skew, {"scaffold": 0.1}) for skew in (0.2, 0.6, 1.0)), epsilon="1.0")
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: noised)
    exact = 0.8 * 20 / 30
    for source in (("counts.csv", "--client", "site"), ("auto.toml",)):
        strict, loose = (
            told(cli, *source, "--epsilon", epsilon)["features"] for epsilon in ("0.01", "1000000")
        )
        assert strict["label_emd"] != pytest.approx(loose["label_emd"])
    assert told(cli, "counts.csv", "--client", "site", "--epsilon", "1e6")["features"]["label_emd"] == (
        pytest.approx(exact)
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing.csv",), "there is no file"),
        (("digits",), "say how to deal it by --partition"),
        (("counts.csv", "--client", "site", "--cohort", "0"), "must be a number of clients or a fraction"),
        (("counts.csv", "--client", "site", "--cohort", "1.5"), "must be a number of clients or a fraction"),
        (("counts.csv", "--client", "site", "--cohort", "half"), "write a number of clients like 5"),
        (("counts.csv", "--client", "site", "--epsilon", "0"), "privacy.epsilon"),
        (
            ("counts.csv", "--client", "site", "--epsilon", "1"),
            "nothing was measured with noised label counts",
        ),
        (("withheld.toml",), "privacy.counts is 'withheld'"),
    ],
)
def test_a_mistake_is_one_sentence(cli: Cli, words: tuple[str, ...], sentence: str) -> None:
    answer = cli("advise", *words)
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_a_run_says_what_auto_became(cli: Cli) -> None:
    answer = cli("run", "auto.toml")
    assert answer.code == 0, answer.err
    assert "note: auto is ifca: +20.0 points of accuracy over fedavg" in " ".join(answer.err.split())
    assert "ifca" in answer.out


def test_a_run_tunes_where_the_table_is_no_judge(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tuning found best is the only method of the directory, with the settings that were best."""
    unsure = table(*((skew, {"scaffold": 0.1, "fedprox": 0.2}) for skew in (0.2, 0.6, 1.0)), any=False)
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: unsure)
    monkeypatch.setattr("fedcohort.python.auto.EACH", 2)
    answer = cli("run", "auto.toml")
    assert answer.code == 0, answer.err
    words = " ".join(answer.err.split())
    assert "note: auto is one of fedprox, scaffold, fedavg: label counts do not tell" in words
    assert words.index("auto is one of") < words.index("[1/") < words.index("tuning chose")
    assert (here / "runs/auto-tune-001/tuned.html").exists()
    best = tomllib.loads((here / "runs/auto-tune-001/best.toml").read_text())["method"]
    (method,) = tomllib.loads((here / "runs/auto-001/experiment.toml").read_text())["method"]
    assert f"note: tuning chose {method['name']}, " in words
    assert method in best
    tried = json.loads(cli("tune", "--resume", "runs/auto-tune-001", "--json").out)["methods"]
    first = max(tried, key=lambda each: (each["rounds"], each["accuracy"]))
    assert method.get("label", method["name"]) == first["method"]
    assert len(best) == len(tried) == 3
    again = cli("run", "--resume", "runs/auto-001")
    assert (again.code, again.out) == (0, answer.out)
