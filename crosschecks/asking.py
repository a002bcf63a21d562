"""Runs a peer on a problem, in the peer's own environment."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runners import call, environment, install
from crosschecks.problem import Arrays, Moves, Training, write

PEERS = Path(__file__).parent / "peers"
OWN = {"fedartml"}  # requirements that the benchmarks do not have


def ask(peer: str, problem: Training | Moves | Arrays) -> tuple[dict[str, Any], dict[str, str]]:
    """What the peer computed, by name, and the versions that did; makes its environment first."""
    install(peer, *([PEERS] if peer in OWN else []))
    with tempfile.TemporaryDirectory() as folder:
        path = write(problem, Path(folder) / "problem.npz")
        python = str(environment(peer) / "bin" / "python")
        answer = call([python, "-m", f"crosschecks.peers.{peer}", str(path)])
    return answer["runs"], answer["versions"]
