"""docs/deploy.md, executed: its files written, its commands run, those that stay left running."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support import REPOSITORY
from support.deployment import MARK, Running
from support.loopback import Network, marked, own_network, running_after

pytestmark = pytest.mark.deploy

DOCUMENT = REPOSITORY / "docs/deploy.md"
BLOCK = re.compile(r"<!-- (file|run|stay)(?:: (.*?))? -->\n```\w+\n(.*?)```", re.DOTALL)


class Reader:
    """Somebody who types what the document says."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, MARK: str(folder), "OMP_NUM_THREADS": "1"}
        self.said, self.staying = "", list[Running]()

    def follow(self, kind: str, words: str, block: str) -> None:
        if kind == "file":
            (self.folder / words).write_text(block)
            return
        for line in block.splitlines():
            command = line.removeprefix("$ ")
            assert command != line, f"not a command: {line}"
            self._stay(command, words) if kind == "stay" else self._run(command)

    def _run(self, command: str) -> None:
        if command.startswith("export "):
            self.env |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            return
        words = self.network.command(["bash", "-c", command])
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=400
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        self.said += done.stdout

    def _stay(self, command: str, words: str) -> None:
        log = self.folder / f"terminal-{len(self.staying)}.log"
        running = Running(self.network.command(shlex.split(command)), log, self.env)
        self.staying.append(running)
        running.wait_for(words)

    def leave(self) -> None:
        for running in reversed(self.staying):
            running.end()
        for running in self.staying:
            running.process.wait(30)


def table_of(folder: Path) -> str:
    (table,) = folder.glob("app/runs/experiment-001/fedavg-*/table.csv")
    return table.read_text()


def test_the_tutorial_works_as_it_is_written(tmp_path):
    with own_network() as network:
        if network.holder is None:
            pytest.skip("the tutorial's ports are fixed: it needs a network of its own")
        reader = Reader(tmp_path, network)
        try:
            for kind, words, block in BLOCK.findall(DOCUMENT.read_text()):
                reader.follow(kind, words, block)
        finally:
            reader.leave()
        assert not running_after(lambda: marked(f"{MARK}={tmp_path}"), 20)
        assert not network.listening()
        assert not network.attempts(), "somebody tried to reach another machine"
    assert "finished:completed" in reader.said
    for hospital in "abcd":
        assert f"hospital-{hospital}" in table_of(tmp_path), reader.said
    assert "round 3 of 3: 4 of 4 clients trained" in reader.said  # in the terminal of 'flwr run'
    (result,) = tmp_path.glob("app/runs/experiment-001/fedavg-*/result.json")
    assert '"global.accuracy"' in result.read_text()
