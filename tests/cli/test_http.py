"""``fedcohort serve``: reports for browsers on this machine, made when asked for, and nothing else."""

import http.client
import json
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fedcohort import report
from fedcohort.cli.http import HOST, PageServer
from fedcohort.cli.http_pages import curve
from fedcohort.util.errors import UserError
from support.cli_calls import Cli
from support.run_files import Write, rows

EXPERIMENT = """
rounds = 3
method = ["fedavg", "clust_psi_pfl"]
model = "logistic"

[data]
source = "synthetic"
samples = 120

[partition]
name = "dirichlet"
clients = 4
alpha = 0.5
"""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


def ask(server: PageServer, path: str, host: str | None = None, verb: str = "GET") -> Reply:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=30)
    connection.putrequest(verb, path, skip_host=True)
    connection.putheader("Host", host or f"{HOST}:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    reply = Reply(answer.status, dict(answer.getheaders()), answer.read().decode())
    connection.close()
    return reply


def start(root: Path) -> Iterator[PageServer]:
    with PageServer(root, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(write_run: Write) -> Iterator[PageServer]:
    """A directory with one stopped run, and a secret beside it."""
    root = write_run().parents[1]
    (root / "secret.txt").write_text("secret")
    (root.parent / "secret.txt").write_text("secret")
    yield from start(root)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which runs reports were made of; the reports themselves are a word."""
    calls: list[list[str]] = []

    def write(runs: list[Path], out: Path) -> Path:
        calls.append([run.name for run in runs])
        out.write_text(f"report number {len(calls)}")
        return out

    monkeypatch.setattr(report, "write_report", write)
    return calls


def test_the_index_lists_runs_with_state_and_accuracy(server: PageServer) -> None:
    page = ask(server, "/").body
    for word in ("e-001", "fedavg", "stopped", "2/4", "50.0%", "/report/e-001/fedavg-1a2b3c4d-s0"):
        assert word in page


def test_what_users_wrote_is_escaped(write_run: Write, server: PageServer) -> None:
    write_run("sly", method="<script>alert(1)</script>")
    assert "<script>alert" not in ask(server, "/").body
    assert "&lt;script&gt;alert" in ask(server, "/").body


def test_a_report_is_made_when_asked_for_and_again_when_there_are_new_rounds(
    server: PageServer, made: list[list[str]], write_run: Write, tmp_path: Path
) -> None:
    assert made == []
    path = "/report/e-001/fedavg-1a2b3c4d-s0"
    for _ in range(2):
        assert ask(server, path).body.startswith("report number 1")
    before = json.loads(ask(server, "/version/e-001").body)
    table = tmp_path / "runs/e-001/fedavg-1a2b3c4d-s0/table.csv"
    table.write_text(table.read_text() + rows(3, 0.9))
    assert json.loads(ask(server, "/version/e-001").body) != before
    assert ask(server, path).body.startswith("report number 2")
    write_run("other", seed=1)
    assert ask(server, "/report/e-001").body.startswith("report number 3")
    run = "fedavg-1a2b3c4d-s0"
    assert made == [[run], [run], [run, "other"]]


def test_an_open_page_asks_for_the_version_it_was_made_from(
    server: PageServer, made: list[list[str]]
) -> None:
    page = ask(server, "/report/e-001").body
    version = ask(server, "/version/e-001").body
    assert '"/version/e-001"' in page
    assert version in page
    assert ask(server, "/version/").body in ask(server, "/").body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "0.0.0.0:{port}"]
)
def test_other_hosts_are_refused(server: PageServer, host: str) -> None:
    """A page elsewhere that names this machine otherwise must not read reports (DNS rebinding)."""
    reply = ask(server, "/", host.format(port=server.server_port))
    assert reply.status == 403
    assert "e-001" not in reply.body
    assert ask(server, "/", f"localhost:{server.server_port}").status == 200


def test_only_this_machine_is_listened_to(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/report/secret.txt",
        "/report/../secret.txt",
        "/report/..%2f..%2fsecret.txt",
        "/report/e-001/../../../secret.txt",
        "/report/e-001/%2e%2e/%2e%2e/secret.txt",
        "/report//etc/passwd",
        "/report/e-001/nothing",
        "/version/nothing",
        "/etc/passwd",
        "//etc/passwd",
    ],
)
def test_nothing_but_runs_is_served(server: PageServer, made: list[list[str]], path: str) -> None:
    reply = ask(server, path)
    assert reply.status == 404
    assert "secret" not in reply.body
    assert made == []


def test_nothing_can_be_sent(server: PageServer) -> None:
    for verb in ("POST", "PUT", "DELETE"):
        assert ask(server, "/", verb=verb).status == 501
    assert ask(server, "/", verb="HEAD").body == ""


def test_following_pages_fill_no_log(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(server, "/version/").status == 200
    assert ask(server, "/favicon.ico").status == 204
    assert capfd.readouterr().err == ""


def test_a_curve_goes_from_bottom_to_top() -> None:
    """Three values over 120 points: 0 is 23 from the top, 1 is 1; an unknown one is left out."""
    assert 'points="0.0,23.0 60.0,12.0 120.0,1.0"' in curve([0.0, 0.5, 1.0])
    assert 'points="0.0,23.0 120.0,1.0"' in curve([0.0, float("nan"), 1.0])
    assert 'points=""' in curve([])


def test_pages_may_load_nothing_from_elsewhere(server: PageServer) -> None:
    headers = ask(server, "/").headers
    assert headers["Content-Security-Policy"].startswith("default-src 'self' ")
    assert "http" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"


def test_a_damaged_run_is_a_sentence_not_a_traceback(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "runs/e-001/fedavg-1a2b3c4d-s0/table.csv").write_text("#" * 500)
    reply = ask(server, "/report/e-001")
    assert reply.status == 500
    assert "Traceback" not in reply.body
    assert "No report" in reply.body


def test_a_damaged_comparison_hides_no_other(server: PageServer, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "runs/e-001", tmp_path / "runs/f-001")
    (tmp_path / "runs/f-001/fedavg-1a2b3c4d-s0/config.toml").write_text("rounds = = 3")
    reply = ask(server, "/")
    assert reply.status == 200
    assert "/report/e-001/fedavg-1a2b3c4d-s0" in reply.body
    assert "config.toml is damaged" in reply.body
    assert ask(server, "/report/f-001").status == 500
    assert ask(server, "/version/e-001").status == 200


def test_names_that_are_no_text_hide_no_other(server: PageServer, made: list[list[str]]) -> None:
    """A file's name may hold any bytes, of a comparison and of a run."""
    (run,) = server.reports.root.glob("*/*/")
    odd = Path(os.fsdecode(bytes(server.reports.root) + b"/odd\xff"))
    shutil.copytree(run, odd / os.fsdecode(b"run\xfe"))
    shutil.copy(run.parent / "experiment.toml", odd)
    index = ask(server, "/")
    assert index.status == 200
    for name in (run.parent.name, "odd%FF", "odd%FF/run%FE"):
        assert f'"/report/{name}"' in index.body
        assert [ask(server, f"/{page}/{name}").status for page in ("version", "report")] == [200, 200]
    assert len(made) == 3


@pytest.mark.parametrize("path", ["http://[", "//[", "/%ff%00", "/report/%ED%A0%80"])
def test_odd_paths_are_not_found(server: PageServer, path: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(server, path).status == 404
    assert capfd.readouterr().err == ""


def test_what_has_no_round_yet_is_followed_too(server: PageServer, tmp_path: Path) -> None:
    """The page says so, and looks again whether there is one."""
    (tmp_path / "runs/e-001/fedavg-1a2b3c4d-s0/table.csv").unlink()
    page = ask(server, "/report/e-001/fedavg-1a2b3c4d-s0").body
    assert "no run has completed a round yet" in page
    assert '"/version/e-001/fedavg-1a2b3c4d-s0"' in page


def test_a_browser_that_goes_away_is_no_error(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It closes the connection while a large report is sent."""
    sent = threading.Event()

    def large(*_: object) -> bytes:
        sent.set()
        return b"x" * 50_000_000

    monkeypatch.setattr(server.reports, "report", large)
    with socket.create_connection((HOST, server.server_port)) as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone at once
        host = f"{HOST}:{server.server_port}".encode()
        browser.sendall(b"GET /report/e-001 HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert sent.wait(10)
    assert ask(server, "/").status == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_real_runs_have_real_reports_and_are_left_as_they_are(cli: Cli, here: Path) -> None:
    (here / "e.toml").write_text(EXPERIMENT)
    assert cli("run", "e.toml", "--quiet").code == 0
    runs = here / "runs"
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    for server in start(runs):
        page = ask(server, "/report/e-001")
        assert page.status == 200
        assert "clust_psi_pfl" in page.body
        assert len(page.body) > 100_000  # the charts are in it
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before


def test_mistakes(tmp_path: Path, server: PageServer) -> None:
    with pytest.raises(UserError, match="there is no directory"):
        PageServer(tmp_path / "nowhere", 0)
    with pytest.raises(UserError, match="choose another --port"):
        PageServer(tmp_path, server.server_port)
    shutil.rmtree(tmp_path / "runs/e-001")
    assert "No runs yet" in ask(server, "/").body
