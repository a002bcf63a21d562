"""The server's side of a deployment: Flower's SuperLink behind TLS, and who is admitted to it.

Three programs run here. The SuperLink keeps messages and hands them out; the SuperExec starts the ServerApp
of each run; the proxy is what clients reach. Each is started again when it ends, without the others: a run
outlives a crash of the SuperLink.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedcohort.flower.admission import Admission
from fedcohort.flower.certs import CA, CLIENTS, SERVER, SERVER_KEY
from fedcohort.flower.door import Limits
from fedcohort.flower.processes import Process, environment, program, wait_for_health
from fedcohort.util.errors import UserError

CONNECTION = "fedcohort"  # what Flower's own commands call this server: flwr run APP fedcohort
LOOK = 1.0  # seconds between two looks at the processes and the folder of keys
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # only if the operator says so


@dataclass(frozen=True)
class ServerPlaces:
    """Where one server keeps its files and listens."""

    certs: Path  # as written by fedcohort.flower.certs
    home: Path  # of Flower: its database, configuration, installed apps
    host: str = "127.0.0.1"  # where clients reach it
    port: int = 8443
    local_port: int = 8444  # where Flower's own commands reach it, on this machine only
    per_address: int = Limits.per_address  # connections that clients of one address may have at a time

    @property
    def _link(self) -> str:
        return f"127.0.0.1:{self.local_port}"

    def serve(self, say: Callable[[str], None]) -> None:
        """Runs until interrupted."""
        self._prepare()
        programs = {
            "SuperLink": self._start_link,
            "SuperExec": self._start_executor,
            "proxy": self._start_proxy,
        }
        record = self.home / "admitted.json"
        clients = Admission(self.certs / CLIENTS, record, CONNECTION, environment(self.home))
        running = dict[str, Process]()
        try:
            for name, start in programs.items():
                if name == "proxy":  # nobody gets in before those who may not are shut out
                    clients.look(say)
                running[name] = start(say)
            say(f"serving at {self.host}:{self.port}")
            while True:
                time.sleep(LOOK)
                clients.look(say)
                for name in [name for name, process in running.items() if not process.alive]:
                    say(f"the {name} ended; starting it again")
                    running[name].stop()
                    running[name] = programs[name](say)
        finally:
            for process in reversed(running.values()):
                process.stop()

    def _prepare(self) -> None:
        for name in (CA, SERVER, SERVER_KEY):
            if not (self.certs / name).is_file():
                raise UserError(f"there is no {self.certs / name}: make it with 'fedcohort flower certs'")
        (self.certs / CLIENTS).mkdir(exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        ca = str((self.certs / CA).resolve())
        connection = {"address": self._link, "root-certificates": ca}
        table = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (self.home / "config.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
        if not self._secret.exists():
            with os.fdopen(os.open(self._secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))

    @property
    def _secret(self) -> Path:
        """What only our SuperExec knows, so that nobody else can fetch the ServerApp's work."""
        return self.home / "superexec.secret"

    def _start_link(self, say: Callable[[str], None]) -> Process:
        command = [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.local_port)]
        command += ["--ssl-ca-certfile", str(self.certs / CA), "--ssl-certfile", str(self.certs / SERVER)]
        command += ["--ssl-keyfile", str(self.certs / SERVER_KEY), "--enable-supernode-auth"]
        command += ["--database", str(self.home.resolve() / "state.db"), "--isolation", "process"]
        command += ["--disable-runtime-dependency-installation"]
        command += ["--superexec-auth-secret-file", str(self._secret)]
        return self._start(command, say, self._link)

    def _start_executor(self, say: Callable[[str], None]) -> Process:
        command = [program("flower-superexec"), "--runtime-api-address", self._link]
        command += ["--root-certificates", str(self.certs / CA)]
        command += ["--superexec-auth-secret-file", str(self._secret)]
        return Process(command, environment(self.home), say)

    def _start_proxy(self, say: Callable[[str], None]) -> Process:
        command = [sys.executable, "-m", "fedcohort.flower.proxy", "--upstream", self._link]
        command += ["--host", self.host, "--port", str(self.port), "--ca", str(self.certs / CA)]
        command += ["--certificate", str(self.certs / SERVER), "--key", str(self.certs / SERVER_KEY)]
        command += ["--clients", str(self.certs / CLIENTS), "--per-address", str(self.per_address)]
        host = "127.0.0.1" if self.host in EVERYWHERE else self.host
        return self._start(command, say, f"{host}:{self.port}")

    def _start(self, command: list[str], say: Callable[[str], None], address: str) -> Process:
        process = Process(command, environment(self.home), say)
        try:
            wait_for_health(address, self.certs / CA, process)
        except BaseException:
            process.stop()
            raise
        return process
