"""Somebody else's run directory: what its files name is executed only by --resume, and only with --trust."""

import json
import shutil
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcohort.cli.http import PageServer
from support import REPOSITORY
from support.cli_calls import Cli, contents

EVIL = "from pathlib import Path\nPath('canary').touch()\n"
STORED = REPOSITORY / "tests" / "stored" / "digits-001"
CALL = """
[model]
name = "subprocess:run"
args = ["touch", "canary"]
"""
COUNTS = "site,0,1,2\nnorth,4,5,6\nsouth,9,1,2\n"


@pytest.fixture
def canary(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What appears when evil.py is imported, from the working directory; its method is no other's."""
    (here / "evil.py").write_text(EVIL)
    (here / "counts.csv").write_text(COUNTS)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return here / "canary"


def poison(home: Path, how: str) -> None:
    """Lets all settings of a directory name code."""
    for path in (*home.glob("*.toml"), *home.glob("*/*.toml")):
        text = path.read_text()
        if how == "imports":
            path.write_text('imports = ["evil"]\n' + text)
        else:
            head, _, rest = text.partition("[model]\n")
            path.write_text(head + CALL + "\n[local]\n" + rest.partition("[local]\n")[2])


@pytest.fixture(params=["imports", "model", "imports of 0.1.0", "model of 0.1.0"])
def trap(request: pytest.FixtureRequest, run_once: Callable[..., Path], here: Path, canary: Path) -> Path:
    """A complete run whose files name code, as we leave it or as version 0.1.0 did."""
    how, _, older = request.param.partition(" of ")
    if older:
        shutil.copytree(STORED, here / "runs/e-001")
    else:
        run_once()
    poison(here / "runs/e-001", how)
    return next(path.parent for path in here.glob("runs/e-001/*/result.json"))


@contextmanager
def serving(root: Path) -> Iterator[PageServer]:
    with PageServer(root, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def look(cli: Cli, run: Path) -> list[int]:
    """The exit codes of every command that looks at a run or at its comparison."""
    commands = [
        ("report", str(run)),
        ("report", str(run.parent)),
        ("watch", str(run.parent), "--once"),
        ("watch", str(run.parent), "--json"),
        ("assign", str(run), "--counts", "counts.csv", "--client", "site"),
        ("drift", "counts.csv", "counts.csv", "--client", "site", "--run", str(run)),
    ]
    return [cli(*words).code for words in commands]


def test_commands_that_look_execute_nothing(trap: Path, cli: Cli, here: Path, canary: Path) -> None:
    """They do their work. Only drift refuses, because the run had other clients, and assign, where an older
    fedcohort kept no label counts."""
    before = contents(here / "runs")
    assert look(cli, trap) == [0, 0, 0, 0, 0 if (trap / "roster.safetensors").exists() else 2, 2]
    assert not canary.exists()
    assert contents(here / "runs") == before


def test_a_page_that_is_asked_for_executes_nothing(trap: Path, here: Path, canary: Path) -> None:
    with serving(here / "runs") as server:
        for path in ("", "report/e-001", f"report/e-001/{trap.name}"):
            with urllib.request.urlopen(server.url + path, timeout=30) as page:
                assert trap.name.partition("-")[0] in page.read().decode()
    assert not canary.exists()


def test_to_resume_needs_trust(trap: Path, cli: Cli, here: Path, canary: Path) -> None:
    """One sentence names what would be executed; with the word it is."""
    (trap / "result.json").unlink()
    before = contents(here / "runs")
    for directory in (trap, trap.parent):
        answer = cli("run", "--resume", str(directory))
        assert (answer.code, answer.out) == (2, "")
        assert "would import 'evil'" in answer.err or "would call 'subprocess:run'" in answer.err
        assert "add --trust" in answer.err
        assert answer.err.count("\n") == 1
        assert not canary.exists()
        assert contents(here / "runs") == before
    cli("run", "--resume", str(trap), "--trust")
    assert canary.exists()


@pytest.mark.parametrize(
    "swept",
    [
        'model = [{name = "subprocess:run", args = ["touch", "canary"]}, "mlp"]',
        '"model.name" = ["subprocess:getoutput"]\n"model.cmd" = ["touch canary"]',
        'model.name = ["subprocess:getoutput"]\nmodel.cmd = ["touch canary"]',
        'track.mlflow.uri = ["sqlite:///canary"]',
        'run.ray = ["127.0.0.1:9"]',
    ],
)
def test_what_a_directory_sweeps_runs_nothing(
    swept: str, run_once: Callable[..., Path], cli: Cli, here: Path, canary: Path
) -> None:
    """Code may also stand among the values that a comparison is to try."""
    home = here / run_once()
    shutil.rmtree(next(home.glob("*/result.json")).parent)
    with (home / "experiment.toml").open("a") as file:
        file.write(f"\n[sweep]\n{swept}\n")
    for words in (("report", str(home)), ("watch", str(home), "--once"), ("run", "--resume", str(home))):
        answer = cli(*words)
        assert not canary.exists()
    assert answer.code == 2
    assert "add --trust" in answer.err or "is not swept" in answer.err
    assert cli("run", "--resume", str(home), "--trust").code == 2  # none of them makes a model
    assert canary.exists() == ("model" in swept)


def test_trust_is_for_directories(cli: Cli) -> None:
    answer = cli("run", "e.toml", "--trust")
    assert answer.code == 2
    assert "--trust goes with --resume" in answer.err


OWN = '''from dataclasses import dataclass

from fedcohort.api import Grouping, register


@register
@dataclass(frozen=True)
class Mine(Grouping):
    """All clients share one model."""

    def uses(self):
        return frozenset({"counts"})
'''


@pytest.fixture
def own(cli: Cli, here: Path, elsewhere: Path) -> Path:
    """A run of the user's own method, whose file is gone afterwards."""
    (here / "mine.py").write_text(OWN)
    answer = cli("run", "e.toml", "--set", "method=['mine']", "--set", "imports=['mine']", "--json")
    (run,) = json.loads(answer.out)["runs"]
    (here / "mine.py").unlink()
    return Path(run["dir"])


def test_runs_of_own_methods_are_shown_without_them(own: Path, cli: Cli, here: Path) -> None:
    """All that the method asks of clients was written down when it ran; of an older directory, it is not
    known."""
    (here / "counts.csv").write_text(COUNTS)
    assert cli("report", str(own)).code == 0
    text = (here / "report.html").read_text()
    assert "label counts" in text
    assert "s model, 1 local step)" in text
    answer = cli("assign", str(own), "--counts", "counts.csv", "--client", "site", "--json")
    assert json.loads(answer.out)["rule"].startswith("Hellinger")
    for name in ("about.json", "roster.safetensors"):
        (own / name).unlink()
    assert cli("report", str(own)).code == 0
    assert "What it asks of a client is not known" in (here / "report.html").read_text()
    assert cli("assign", str(own), "--counts", "counts.csv", "--client", "site").code == 2


def test_the_command_that_goes_on_says_trust_where_it_is_needed(
    cli: Cli, here: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    (here / "mine.py").write_text(OWN)
    monkeypatch.setattr("fedcohort.python.comparison.carry_out", stop)
    answer = cli("run", "e.toml", "--set", "method=['mine']", "--set", "imports=['mine']")
    assert answer.err.endswith("Continue with: fedcohort run --resume runs/e-001 --trust\n")
    assert cli("run", "e.toml").err.endswith("Continue with: fedcohort run --resume runs/e-002\n")


def test_only_this_server_s_pages_and_users_ask(here: Path, cli: Cli) -> None:
    """A browser says of an image on another web site's page that it is cross-site."""
    cli("run", "e.toml", "--quiet")
    with serving(here / "runs") as server:
        own = server.url.rstrip("/")
        asked = {
            (("Sec-Fetch-Site", "none"),): 200,
            (("Sec-Fetch-Site", "same-origin"), ("Origin", own)): 200,
            (("Origin", own.replace("127.0.0.1", "localhost")),): 200,
            (("Sec-Fetch-Site", "cross-site"),): 403,
            (("Sec-Fetch-Site", "same-site"),): 403,
            (("Origin", "http://evil.example"),): 403,
            (("Origin", "null"),): 403,
            (("Origin", own + "0"),): 403,
        }
        for headers, status in asked.items():
            for path in ("", "report/e-001", "version/e-001"):
                request = urllib.request.Request(server.url + path, headers=dict(headers))
                try:
                    with urllib.request.urlopen(request, timeout=30) as page:
                        got = page.status
                except urllib.error.HTTPError as error:
                    got = error.code
                assert got == status, (headers, path)


def test_a_directory_sends_results_nowhere_without_trust(cli: Cli, here: Path) -> None:
    """Its tracker may be a file or a server of somebody else's."""
    cli("run", "e.toml", "--quiet")
    home = here / "runs/e-001"
    next(home.glob("*/result.json")).unlink()
    elsewhere = here / "elsewhere"
    with (home / "experiment.toml").open("a") as file:
        file.write(f'\n[track.mlflow]\nuri = "sqlite:///{elsewhere}"\n')
    refused = cli("run", "--resume", str(home))
    assert refused.code == 2
    assert "would send results to 'mlflow'" in refused.err
    assert not elsewhere.exists()


def test_a_look_reads_no_data_that_a_directory_names(cli: Cli, here: Path) -> None:
    """A pipe in its place would let it wait, a huge synthetic set take all memory."""
    home = shutil.copytree(STORED, here / "old")
    for path in home.rglob("*.toml"):
        head, _, rest = path.read_text().partition("[data]\n")
        odd = 'source = "synthetic"\nsamples = 20000000\nfeatures = 20\n'
        path.write_text(f"{head}[data]\n{odd}\n[partition]\n{rest.partition('[partition]' + chr(10))[2]}")
    (complete,) = home.glob("fedavg*")
    (here / "counts.csv").write_text(COUNTS)
    assert cli("report", str(home)).code == 0
    answer = cli("assign", str(complete), "--counts", "counts.csv", "--client", "site")
    assert answer.code == 2
    assert "keeps no label counts" in answer.err
