"""A whole deployment on this machine: a server, clients, an app, and the proof that nothing of it is left."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import tomli_w

from fedcohort.flower.certs import write_certificates, write_key
from fedcohort.flower.processes import environment, free_port, program
from fedcohort.flower.template import write_app
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import run
from support.loopback import Network, foreign_peers, marked, running_after

MARK = "FEDCOHORT_DEPLOYMENT"
FEDCOHORT = str(Path(sys.executable).parent / "fedcohort")


class Running:
    """A command in the background, with its output in a file."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.log = log
        with log.open("a") as file:
            self.process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                cwd=log.parent,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float = 60, times: int = 1) -> None:
        deadline = time.monotonic() + seconds
        while self.text.count(words) < times:
            assert time.monotonic() < deadline, f"no {words!r} within {seconds} s:\n{self.text[-3000:]}"
            time.sleep(0.2)

    def end(self) -> None:
        """Asks it to; waits for nothing."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


class Deployment:
    """Use as a context manager; what is below ``folder`` stays for the test to look at."""

    def __init__(
        self, folder: Path, network: Network, experiment: dict, clients: int, load: str = "", wanted: int = 0
    ) -> None:
        self.folder, self.network = folder, network
        self.certs, self.home, self.app = folder / "certs", folder / "server", folder / "app"
        self.port, self.local_port = free_port(), free_port()
        self.env = {**environment(self.home), MARK: str(folder), "OMP_NUM_THREADS": "1"}
        write_certificates(self.certs, [], clients)
        (folder / "experiment.toml").write_text(tomli_w.dumps(experiment))
        write_app(self.app, folder / "experiment.toml", wanted, load)
        self.clients: dict[int, Running] = {}
        self.foreign: set[str] = set()
        self.starts = 0  # of the server; all write to one log

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *_: object) -> None:
        for running in (*self.clients.values(), self.server):
            running.end()
        for running in (*self.clients.values(), self.server):
            running.process.wait(30)
        processes, ports = running_after(self._marked, 20), self.network.listening()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        assert not processes, f"processes were left behind: {processes}"
        if self.network.holder is None:  # others may listen there
            ports &= {self.port, self.local_port}
        assert not ports, f"ports were left open: {ports}"
        assert not self.network.attempts(), "somebody tried to reach another machine"
        assert not self.foreign, f"connections left this machine: {self.foreign}"

    def _marked(self) -> list[int]:
        return marked(f"{MARK}={self.folder}")

    def start_server(self) -> None:
        words = [FEDCOHORT, "flower", "server", "--certs", str(self.certs), "--home", str(self.home)]
        words += ["--port", str(self.port), "--local-port", str(self.local_port)]
        self.starts += 1
        self.server = self._background(words, "server.log")
        self.server.wait_for("serving at", times=self.starts)

    def start_clients(self, count: int) -> None:
        """So many clients, each with its part of the experiment's data, until all are connected."""
        for number in range(count):
            self.start_client(number, "--part", str(number))
        for number in range(count):
            self.clients[number].wait_for("SuperNode ID:")

    def start_client(self, number: int, *options: str, key: Path | None = None) -> Running:
        key = key or self.certs / f"clients/client-{number}.key"
        words = [FEDCOHORT, "flower", "client", "--superlink", f"127.0.0.1:{self.port}", "--key", str(key)]
        words += ["--ca", str(self.certs / "ca.crt"), "--home", str(self.folder / f"node-{number}")]
        self.clients[number] = self._background([*words, *options], f"client-{number}.log")
        return self.clients[number]

    def refuse_stranger(self) -> None:
        """A node with a key that nobody admitted, and one with none at all: neither gets in."""
        key, _ = write_key(self.folder / "stranger.key")
        stranger = self.start_client(99, "--part", "0", key=key)
        words = [program("flower-supernode"), "--superlink", f"127.0.0.1:{self.port}"]
        words += ["--root-certificates", str(self.certs / "ca.crt"), "--port", str(free_port())]
        keyless = self._background(words, "keyless.log")
        self.clients[98] = keyless
        stranger.wait_for("not connected; trying again")
        stranger.end()
        assert keyless.process.wait(90) != 0, keyless.text
        for running in (stranger, keyless):
            assert "SuperNode ID:" not in running.text

    def shut_out(self, number: int) -> None:
        """Its key leaves the folder: it is refused from then on, also when the key comes back."""
        key = self.certs / f"clients/client-{number}.pub"
        text = key.read_text()
        key.unlink()
        self.server.wait_for(f"shut out client-{number}", 30)
        self.clients[number].wait_for("not connected; trying again", 120)
        key.write_text(text)
        self.server.wait_for(f"client-{number} was shut out", 30)

    def flwr(self, *words: str) -> dict:
        """One of Flower's own commands, with its answer in JSON."""
        command = self.network.command([program("flwr"), *words, "--format", "json"])
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def start_run(self, **config: str | int) -> str:
        self.finished = self.server.text.count("Finished task")
        words = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
        return str(self.flwr("run", str(self.app), "fedcohort", "--run-config", words)["run-id"])

    def wait_for_run(self, run: str, seconds: float = 120) -> str:
        """Its last status; ``finished:completed`` if all went well."""
        deadline, asked = time.monotonic() + seconds, 0.0
        while True:
            if self.network.holder is None:
                self.foreign |= foreign_peers(self._marked())
            ended = self.server.text.count("Finished task") > self.finished
            if ended or time.monotonic() - asked > 20:  # asking costs two seconds of a processor
                asked = time.monotonic()
                status = str(self.flwr("list", "fedcohort", "--run-id", run)["runs"][0]["status"])
                if status.startswith("finished"):
                    return status
                assert time.monotonic() < deadline, f"still {status}:\n{self.server.text[-3000:]}"
            time.sleep(1)

    def results(self) -> Path:
        """The directory of the only run."""
        (table,) = (self.app / "runs").rglob("table.csv")
        return table.parent

    def report(self) -> str:
        """The final report, as HTML."""
        (page,) = (self.app / "runs").rglob("report.html")
        return page.read_text()

    def told(self) -> str:
        """What the run's own log says happened to whom."""
        return (self.results() / "flower.log").read_text()

    def kill(self, running: Running, program: str = "") -> None:
        """As a power cut would: all processes of a command, or those of one program of it."""
        session = running.process.pid
        for process in self._marked():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_text()
                if os.getsid(process) == session and program in words:
                    os.kill(process, signal.SIGKILL)

    def _background(self, command: list[str], log: str) -> Running:
        return Running(self.network.command(command), self.folder / log, self.env)


def read_rows(run: Path, client: str = "") -> dict[tuple[int, str], float]:
    """Of a run's table, the numbers about one client or about the whole federation, by round and name."""
    with (run / "table.csv").open(newline="") as file:
        return {
            (int(row["round"]), f"{row['scope']}.{row['metric']}"): float(row["value"])
            for row in csv.DictReader(file)
            if row["client"] == client and (client or not row["group"])
        }


def simulate(experiment: dict) -> dict[str, float]:
    """The last numbers of the same experiment without Flower."""
    setting = Experiment.of(experiment)
    return run(setting.methods[0], setting.task(setting.seeds[0]), setting.rounds, setting.evaluation).metrics


EXPERIMENT = {
    "rounds": 2,
    "cohort": 1.0,
    "data": {"source": "digits"},
    "partition": {"name": "dirichlet", "clients": 3, "alpha": 0.5},
    "model": {"name": "logistic"},
    "local": {"steps": 3, "batch": 16},
    "evaluate": {"every": 1, "on": "test"},
    "method": ["scaffold"],  # its clients must remember something from round to round
}
