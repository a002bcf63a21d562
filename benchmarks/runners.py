"""Who takes part: each engine's environment, and the command that runs a job in it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
CORES = os.cpu_count() or 1


class RunError(Exception):
    """An environment could not be made, or a run did not end with a result; the text says why."""


@dataclass(frozen=True)
class Runner:
    """One engine in one configuration."""

    name: str
    module: str  # in benchmarks.peers
    peer: str = ""  # whose environment; empty: fedcohort's own
    threads: int = 1  # of the numerical library, in each process
    processes: int = 1  # started by torchrun, if more than one

    def command(self, folder: Path, rounds: int, *extra: str) -> list[str]:
        python = str(environment(self.peer) / "bin" / "python") if self.peer else sys.executable
        launcher = [python]
        if self.processes > 1:
            launcher += ["-m", "torch.distributed.run", f"--nproc-per-node={self.processes}", "--standalone"]
        options = ["--folder", str(folder), "--rounds", str(rounds), "--threads", str(self.threads)]
        return [*launcher, "-m", f"benchmarks.peers.{self.module}", *options, *extra]


RUNNERS = {
    runner.name: runner
    for runner in (
        Runner("fedcohort", "fedcohort_runner"),
        Runner("bare", "bare"),
        Runner("bare-all", "bare", threads=CORES),
        Runner("flower", "flower", "flower"),
        Runner("pfl", "pfl", "pfl"),
        Runner("pfl-all", "pfl", "pfl", processes=CORES),
        Runner("fedlab", "fedlab", "fedlab"),
        Runner("fedlab-all", "fedlab", "fedlab", threads=CORES),
        Runner("fedjax", "fedjax", "fedjax"),
    )
}


def environment(peer: str) -> Path:
    return HERE / ".venvs" / peer


def install(peer: str, folder: Path = HERE / "peers") -> None:
    """Makes the peer's environment from its pinned requirements in ``folder``, unless it is there and up to
    date.

    pip, not uv: some machines offer the CPU build of PyTorch as a file that only pip is told about.
    """
    plain, alone = (folder / f"requirements-{peer}{end}.txt" for end in ("", "-no-deps"))
    files = [file for file in (plain, alone) if file.exists()]
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    ready = environment(peer) / ".ready"
    if ready.exists() and ready.read_text() == wanted:
        return
    print(f"installing {peer} into {environment(peer)} (a few minutes) ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment(peer))], check=True)
    for file in files:
        pip = [str(environment(peer) / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(file)]
        done = subprocess.run(pip + ["--no-deps"] * (file == alone), capture_output=True, text=True)
        if done.returncode:
            raise RunError(f"pip install -r {file.name}: {_last_words(done.stderr)}")
    ready.write_text(wanted)


def call(command: list[str], threads: int = 1, timeout: float = 1800) -> dict[str, Any]:
    """Runs a command that prints one JSON line last, and returns what it says."""
    settings = {
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PYTHONWARNINGS": "ignore",
    }
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a run that hangs can be ended with all it started
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise RunError(f"no result after {timeout:.0f} seconds") from None
        except BaseException:  # the user's Ctrl-C does not reach the other session by itself
            os.killpg(process.pid, signal.SIGTERM)
            raise
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise RunError(_last_words(errors))
    return json.loads(lines[-1])


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"
