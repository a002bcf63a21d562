"""A client's side of a deployment: Flower's SuperNode, kept connected.

The server refuses a client that it still believes to be connected, for a minute after a crash, with the same
words as a client it does not know. So a refusal is retried for longer than that before it is believed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedcohort.flower.processes import Process, environment, free_port, program
from fedcohort.util.errors import UserError

PATIENCE = 120.0  # seconds of refusals after which they are believed: longer than the server's minute
PAUSE = 5.0  # seconds between two attempts
LATER = 60.0  # seconds between them when refusals are believed: each costs a good part of a core
CONNECTED = "SuperNode ID:"  # Flower's word that the server knows this client


@dataclass(frozen=True)
class Client:
    """How one client reaches the server, and what its ClientApp is told about the data here."""

    superlink: str  # host:port
    ca: Path  # the certificate of the server's authority
    key: Path  # this client's private key
    home: Path  # of Flower: installed apps, and what a method keeps at this client
    settings: Mapping[str, str | float] = field(default_factory=dict)  # of the node: data, policy, ...

    def join(self, say: Callable[[str], None]) -> None:
        """Stays connected until interrupted."""
        for file in (self.ca, self.key):
            if not file.is_file():
                raise UserError(f"there is no {file}: check --ca and --key")
        command = self._command()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)  # models of this client's rows are kept here
        once, since = False, time.monotonic()  # whether it was ever connected, and since when it is not
        while True:
            if self._stay(command, say):
                once, since = True, time.monotonic()
            believed = time.monotonic() - since > PATIENCE
            if believed and not once:
                raise UserError(
                    f"the server at {self.superlink} did not accept {self.key} in {PATIENCE:.0f} seconds: "
                    f"check --superlink, --ca, and that its operator admitted {self.key.stem}.pub"
                )
            pause = LATER if believed else PAUSE
            say(
                f"not connected; trying again in {pause:.0f} seconds "
                "(after a crash the server needs a minute; two clients cannot share a key)"
            )
            time.sleep(pause)

    def _stay(self, command: list[str], say: Callable[[str], None]) -> bool:
        """One SuperNode from its start to its end; true if the server accepted it."""
        accepted = []

        def hear(line: str) -> None:
            if CONNECTED in line:
                accepted.append(line)
            say(line)

        node = Process([*command, "--port", str(free_port())], environment(self.home), hear)
        try:
            while node.alive:
                time.sleep(0.2)
        finally:
            node.stop()
        return bool(accepted)

    def _command(self) -> list[str]:
        command = [program("flower-supernode"), "--superlink", self.superlink]
        command += ["--root-certificates", str(self.ca), "--auth-supernode-private-key", str(self.key)]
        return [*command, "--node-config", node_config(self.settings)]


def node_config(settings: Mapping[str, str | float]) -> str:
    """Flower's spelling of a node's settings: ``data="/data/patients.csv" partition-id=3``."""
    words = []
    for name, value in settings.items():
        if isinstance(value, str):
            if set("\"'\\\n") & set(value):
                raise UserError(f"--{name} {value}: Flower cannot pass on quotes or backslashes; rename it")
            words.append(f'{name}="{value}"')
        else:
            words.append(f"{name}={value}")
    return " ".join(words)
