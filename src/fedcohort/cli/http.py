"""The reports of a directory of runs in a browser on this machine: made when asked for, kept up to date.

Only 127.0.0.1 is listened to, and a request must have been meant for it: a web site that makes a browser call
this server by another name (DNS rebinding), or from its own pages, is refused. What can be asked for is a run
that was found in the directory, by its name there; no path of a request ever reaches the file system. Nothing
is written into run directories, and nothing that they name is executed.
"""

import hashlib
import json
import os
import sys
import tempfile
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedcohort.cli.http_pages import GLANCE, PAUSE, Found, follow, index_page, message_page, version_of
from fedcohort.runs.status import Followers, Status
from fedcohort.runs.stored import homes_in
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import in_words

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data: blob:",  # no network
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Reports:
    """The runs and comparisons of a directory, by name, and the reports made of them so far."""

    def __init__(self, root: Path, reports: Path) -> None:
        if not root.is_dir():
            raise UserError(f"there is no directory {root}: name one that holds runs")
        self.root, self.reports = root, reports
        self.followers: dict[str, Followers] = {}
        self.made: dict[str, str] = {}  # which version of each report is on disk
        self.looking, self.making = threading.Lock(), threading.Lock()

    def look(self) -> dict[str, Found]:
        """Everything there is to show, newest first."""
        homes = sorted(homes_in(self.root), key=_changed, reverse=True)
        with self.looking:
            return {home.name: self._look_at(home) for home in homes}

    def _look_at(self, home: Path) -> Found:
        try:
            return self.followers.setdefault(home.name, Followers(home)).look()
        except UserError as mistake:
            return str(mistake)
        except Exception as error:  # somebody's files: anything may happen, and one directory hides no other
            return f"{home} cannot be shown ({in_words(error)})"

    def find(self, name: str) -> list[Status]:
        """The runs that a name stands for: ``demo-001``, or ``demo-001/fedavg-1a2b3c4d-s0``."""
        home, _, run = name.partition("/")
        found = self.look().get(home, [])
        if isinstance(found, str):
            raise UserError(found)
        return [status for status in found if run in ("", status.directory.name)]

    def report(self, name: str, runs: list[Status], version: str) -> bytes:
        """The report of these runs; made anew only if they changed."""
        from fedcohort.report import write_report

        path = self.reports / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.html"
        with self.making:
            if self.made.get(name) != version:
                write_report([run.directory for run in runs], path)
                self.made[name] = version
            return path.read_bytes()


def _changed(home: Path) -> float:
    try:
        return home.stat().st_mtime
    except OSError:  # just removed
        return 0.0


class PageServer(ThreadingHTTPServer):
    """Answers browsers of this machine until it is stopped."""

    daemon_threads = True

    def __init__(self, root: Path, port: int) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="fedcohort-")
        self.reports = Reports(root, Path(self.scratch.name))
        try:
            super().__init__((HOST, port), PageHandler)
        except OSError as error:
            raise UserError(f"port {port} cannot be used ({error.strerror}): choose another --port") from None
        names = (HOST, "localhost")
        self.called = {f"{name}:{self.server_port}" for name in names}
        self.called |= set(names) if self.server_port == 80 else set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went on to another page before this one was sent is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        self.scratch.cleanup()


class PageHandler(BaseHTTPRequestHandler):
    """``/`` lists runs, ``/report/NAME`` is a report, ``/version/NAME`` tells an old page from a new one."""

    server: PageServer
    server_version, sys_version = "fedcohort", ""
    timeout = 30

    def do_GET(self) -> None:
        if not self._was_meant():
            self._send(HTTPStatus.FORBIDDEN, message_page("Refused", f"This server only answers {HOST}."))
            return
        path = unquote(self.path.partition("?")[0], errors="surrogateescape")  # as Python has names of files
        page, _, name = path.lstrip("/").partition("/")
        try:
            self._answer(page, name)
        except (UserError, OSError) as mistake:  # of somebody's files; the next request may find them whole
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, message_page("No runs", str(mistake)))

    def _was_meant(self) -> bool:
        """Whether a user asked, or a page of this server: browsers say from where a request comes."""
        origins = {None, *(f"http://{name}" for name in self.server.called)}
        site = self.headers.get("Sec-Fetch-Site")
        called = self.headers.get("Host") in self.server.called
        return called and site in (None, "none", "same-origin") and self.headers.get("Origin") in origins

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, page: str, name: str) -> None:
        reports = self.server.reports
        if page == "" and not name:
            self._send(HTTPStatus.OK, index_page(reports.root, reports.look()))
            return
        if page == "favicon.ico":  # browsers ask by themselves; there is none
            self._send(HTTPStatus.NO_CONTENT, "")
            return
        if page == "version" and not name:
            self._send(HTTPStatus.OK, json.dumps(version_of(reports.look().values())), "application/json")
            return
        runs = reports.find(name) if page in ("report", "version") else []
        if not runs:
            self._send(HTTPStatus.NOT_FOUND, message_page("Not found", "There is no such run here."))
            return
        version = version_of([runs])
        if page == "version":
            self._send(HTTPStatus.OK, json.dumps(version), "application/json")
            return
        try:
            report = reports.report(name, runs, version)
            self._send(HTTPStatus.OK, report + follow(name, version, PAUSE).encode())
        except (ConnectionError, TimeoutError):  # of the browser
            raise
        except Exception as error:  # perhaps there is no round yet; and somebody's files may hold anything
            why = str(error) if isinstance(error, UserError) else in_words(error)
            text = message_page("No report", why) + follow(name, version, GLANCE)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _send(self, status: HTTPStatus, body: str | bytes, kind: str = "text/html") -> None:
        content = body.encode(errors="replace") if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for header, value in HEADERS.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page that follows a run asks every few seconds."""
