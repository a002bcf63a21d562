"""``fedcohort flower init``: a complete Flower app around an experiment file."""

import json
import shutil
from pathlib import Path

from fedcohort.errors import UserError

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedcohort-app"
version = "1.0.0"
description = "An experiment of fedcohort on clients that are elsewhere"
license = "Apache-2.0"
dependencies = ["fedcohort[flower]"]    # installed at every client beforehand; Flower installs nothing

[tool.hatch.build.targets.wheel]
packages = ["fedcohort_app"]

[tool.flwr.app]
publisher = "fedcohort"

[tool.flwr.app.components]
serverapp = "fedcohort_app.server_app:app"
clientapp = "fedcohort_app.client_app:app"

[tool.flwr.app.config]
experiment = {quoted_experiment}
out = {quoted_out}
clients = {clients}             # to wait for before the first round; 0: as many as the partition has
round-timeout = 600     # seconds until a client that has not answered is given up
resume = ""             # a directory below 'out', to continue it
"""

IGNORED = "runs/\n*.fab\n"  # Flower sends clients all of the folder but this

SERVER = '''"""The server's part: the experiment's methods, one after the other, on the clients there are."""

from fedcohort.flower.server_app import app

__all__ = ["app"]
'''

CLIENT = '''"""A client's part: it trains and is evaluated on its own data, which stay where they are."""

from fedcohort.flower.client_app import app

__all__ = ["app"]
'''

README = """\
# {title}

A Flower app that runs `{experiment}` with fedcohort. Flower sends the two modules in
`fedcohort_app/` to the clients; fedcohort itself is installed there.

| file | |
|---|---|
| `experiment.toml` | what is run: edit it |
| `pyproject.toml` | where Flower finds the parts; settings of a run under `[tool.flwr.app.config]` |
| `fedcohort_app/server_app.py`, `client_app.py` | the two parts |
| `.gitignore` | what Flower does not send to clients: results |

In every terminal first (no telemetry, no update checks, no packages installed while running):

```console
{quiet}
```

## On machines of their own

With `fedcohort flower server` running and its clients connected, at the server:

```console
$ export FLWR_HOME=flower-server
$ flwr run {folder} --stream
```

Results are in `{out}`. `flwr run` ends with success even when the run failed: `flwr list` has the truth.
After a crash, continue the last run directory to its end:

```console
$ flwr run {folder} --stream --run-config 'resume="{out}/NAME-001"'
```

## On one machine, in simulation

Needs Ray (`pip install 'fedcohort[simulation]'`), and an experiment whose data are on this machine:

```console
$ export FLWR_HOME=flower-local
$ flwr run {folder} local --stream --federation-config "num-supernodes={parts} client-resources-num-cpus=1"
```

`fedcohort run experiment.toml` gives the same numbers much sooner, without Flower.
"""


def write_app(folder: Path, experiment: Path, clients: int = 0) -> list[Path]:
    """The app's files around a copy of the experiment; refuses a folder that exists."""
    from fedcohort.experiment import Experiment
    from fedcohort.flower.processes import QUIET

    setting = Experiment.read(experiment)
    if folder.exists():
        raise UserError(f"{folder} exists already and is left as it is: choose another folder")
    place = folder.resolve()
    fields = {
        "title": setting.name,
        "clients": clients,
        "parts": clients or getattr(setting.partition, "clients", 10),
        "experiment": place / "experiment.toml",
        "quoted_experiment": json.dumps(str(place / "experiment.toml")),  # a JSON string is one in TOML
        "quoted_out": json.dumps(str(place / "runs")),
        "folder": folder,
        "out": place / "runs",
        "quiet": "\n".join(f"$ export {name}={value}" for name, value in QUIET.items()),
    }
    texts = {
        "pyproject.toml": PYPROJECT.format(**fields),
        "README.md": README.format(**fields),
        ".gitignore": IGNORED,
        "fedcohort_app/__init__.py": "",
        "fedcohort_app/server_app.py": SERVER,
        "fedcohort_app/client_app.py": CLIENT,
    }
    try:
        (folder / "fedcohort_app").mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        shutil.copyfile(experiment, folder / "experiment.toml")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    return [folder / name for name in (*texts, "experiment.toml")]
