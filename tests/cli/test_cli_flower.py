"""``fedcohort flower``: what its commands write, and what they refuse before anything is started."""

import io
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.cli_calls import contents

CLIENT = ["client", "--superlink", "127.0.0.1:1", "--key", "a.key", "--ca", "ca.crt"]
MISTAKES = {
    "no data": (CLIENT, "say where this client's data are"),
    "data twice": ([*CLIENT, "--data", "p.csv", "--load", "m:f"], "say where this client's data are"),
    "no label": ([*CLIENT, "--data", "p.csv"], "name the label column of p.csv with --label"),
    "no such table": ([*CLIENT, "--data", "q.csv", "--label", "outcome"], "q.csv"),
    "no such column": ([*CLIENT, "--data", "p.csv", "--label", "outcom"], "did you mean 'outcome'?"),
    "no key": (
        [*CLIENT, "--data", "p.csv", "--label", "outcome"],
        "there is no ca.crt: check --ca and --key",
    ),
    "noise of what is withheld": (
        [*CLIENT, "--data", "p.csv", "--label", "outcome", "--epsilon", "0.1"],
        "--epsilon and --budget are of noise: add --privacy noised",
    ),
    "an epsilon of nothing": (
        [*CLIENT, "--data", "p.csv", "--label", "outcome", "--privacy", "noised", "--epsilon", "0"],
        "policy.epsilon: 0.0 is not a number between 1e-06 and 1e+06",
    ),
    "no label in a row": ([*CLIENT, "--data", "g.csv", "--label", "outcome"], "add --drop-incomplete, or"),
    "a median of all": (
        ["init", "app", "--experiment", "median.toml"],
        "data.missing: a median of everybody needs the rows of all clients in one place",
    ),
    "no such loader": ([*CLIENT, "--load", "math:no"], "--load: there is no function 'math:no'"),
    "no function": ([*CLIENT, "--load", "math"], "write 'module:function'"),
    "no module": ([*CLIENT, "--load", "nowhere:load"], "--load: cannot import 'nowhere'"),
    "an app without its loader": (
        ["init", "app", "--experiment", "e.toml", "--load", "nowhere:load"],
        "flower init: cannot import 'nowhere'",
    ),
    "no certificates": (["server"], "make it with 'fedcohort flower certs'"),
    "a name with a slash": (["key", "a/b"], "cannot be a client's name"),
    "no experiment": (["init", "app", "--experiment", "none.toml"], "there is no experiment file none.toml"),
    "an app that exists": (["init", ".", "--experiment", "e.toml"], "exists already and is left as it is"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_starts_nothing(cli, here, mistake):
    words, answer = MISTAKES[mistake]
    (here / "p.csv").write_text("age,outcome\n1,0\n2,1\n")
    (here / "g.csv").write_text("age,outcome\n1,0\n2,\n")
    elsewhere = "{source='table', path='at the clients', label='outcome', missing='median'}"
    (here / "median.toml").write_text(f"method = 'fedavg'\ndata = {elsewhere}\n")
    before = contents(here)
    code, _, err = cli("flower", *words)
    assert code == 2
    assert answer in err
    assert err.count("\n") == 1
    assert contents(here) == before


def test_certs_and_key_say_what_they_wrote(cli, here):
    code, out, _ = cli("flower", "certs", "certs", "--host", "fl.example.org", "--clients", "1")
    assert code == 0
    names = ["ca.key", "ca.crt", "server.key", "server.crt", "clients/client-0.key", "clients/client-0.pub"]
    assert out.split() == [f"certs/{name}" for name in names]
    assert cli("flower", "key", "hospital-a").out.split() == ["hospital-a.key", "hospital-a.pub"]


def test_the_app_is_what_flower_wants_of_one(cli, here):
    """Checked with Flower's own rules, which 'flwr run' applies before it sends an app."""
    from flwr.cli.config_utils import load_and_validate

    assert cli("flower", "init", "app", "--experiment", "e.toml").code == 0
    config, warnings = load_and_validate(here / "app/pyproject.toml", check_module=True)
    assert not warnings
    settings = config["tool"]["flwr"]["app"]["config"]
    assert set(settings) == {"experiment", "load", "out", "clients", "round-timeout", "resume"}
    written = (here / "e.toml").read_text()
    assert Path(settings["experiment"]).read_text() == f'name = "e"\n{written}'  # reports carry it


def test_a_name_of_its_own_is_kept(cli, here):
    (here / "named.toml").write_text('method = ["fedavg"]\nname = "the ward"\n')
    assert cli("flower", "init", "app", "--experiment", "named.toml").code == 0
    assert (here / "app/experiment.toml").read_text() == (here / "named.toml").read_text()


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_results_are_not_sent_to_clients_with_the_app(cli, here):
    """What Flower packs is a zip of the app's folder."""
    from flwr.cli.build import build_fab_from_disk

    assert cli("flower", "init", "app", "--experiment", "e.toml").code == 0
    run = here / "app/runs/e-001/fedprox-0-s0"
    run.mkdir(parents=True)
    (run / "result.json").write_text("{}")
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(here / "app"))) as packed:
        names = set(packed.namelist())
    assert {"pyproject.toml", "experiment.toml", "fedcohort_app/client_app.py"} <= names
    assert not [name for name in names if "runs" in name]


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_ones_own_modules_are_sent_with_the_app(cli, here):
    """The model, a method, the loader: files and packages of the working directory, not what is installed."""
    from flwr.cli.build import build_fab_from_disk

    (here / "its_net.py").write_text("def make(shape, classes): ...\n")
    (here / "its_method.py").write_text("")
    (here / "its_ward").mkdir()
    (here / "its_ward/__init__.py").write_text("from its_ward.reader import load\n")
    (here / "its_ward/reader.py").write_text("def load(client): ...\n")
    text = 'imports = ["its_method", "json"]\nmethod = ["fedavg"]\nmodel = "its_net:make"\n'
    (here / "own.toml").write_text(text)
    words = ["flower", "init", "app", "--experiment", "own.toml", "--load", "its_ward:load"]
    code, out, _ = cli(*words)
    assert code == 0
    assert {"app/its_net.py", "app/its_method.py", "app/its_ward"} <= set(out.split())
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(here / "app"))) as packed:
        names = set(packed.namelist())
    assert {"its_net.py", "its_method.py", "its_ward/__init__.py", "its_ward/reader.py"} <= names
    assert not [name for name in names if "json" in name]
    assert "`its_net.py`" in (here / "app/README.md").read_text()


def test_a_folder_may_have_any_name(cli, here):
    assert cli("flower", "init", "Klinik 'Süd' \"A\"", "--experiment", "e.toml").code == 0
    (project,) = here.glob("*/pyproject.toml")
    table = tomllib.loads(project.read_text())
    assert Path(table["tool"]["flwr"]["app"]["config"]["experiment"]).exists()
