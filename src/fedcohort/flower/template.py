"""``fedcohort flower init``: a complete Flower app around an experiment file."""

import json
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fedcohort.data.locate import user_path
from fedcohort.data.sources.table import refuse_apart
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import own_function

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
load = {quoted_load}               # module:function that loads the data of clients that named none
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

A Flower app that runs `{experiment}` with fedcohort. Flower sends this folder's modules
to the clients; fedcohort itself is installed there.

| file | |
|---|---|
| `experiment.toml` | what is run: edit it |
{own}| `pyproject.toml` | where Flower finds the parts; settings of a run under `[tool.flwr.app.config]` |
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

Needs Ray (`pip install 'fedcohort[simulation]'`), and data that are on this machine: the experiment's own,
dealt to clients by its partition, or what `load` returns for each client's number.

```console
$ export FLWR_HOME=flower-local
$ flwr run {folder} local --stream --federation-config "num-supernodes={parts} client-resources-num-cpus=1"
```

`fedcohort run experiment.toml` gives the same numbers much sooner, without Flower (and without `load`).
"""


OWN = "| `{name}` | your own code, as it was when this folder was written |\n"


def _named(experiment: Path, name: str) -> str:
    """The file's text, which keeps the name that its own file gave it."""
    text = experiment.read_text(encoding="utf-8")
    return text if "name" in tomllib.loads(text) else f"name = {json.dumps(name)}\n{text}"


def write_app(folder: Path, experiment: Path, clients: int = 0, load: str = "") -> list[Path]:
    """The app's files around a copy of the experiment and of the user's modules that it names; refuses a
    folder that exists."""
    from fedcohort.flower.processes import QUIET
    from fedcohort.runs.experiment import Experiment

    setting = Experiment.read(experiment, clients_here=False)
    if setting.data["source"] == "table" and not user_path(setting.data["path"]).exists():
        refuse_apart(setting.data, setting.scale)
    functions = [load] if load else []
    functions += [setting.model["name"]] if ":" in setting.model["name"] else []
    own = own_modules(setting.imports, functions)
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
        "quoted_load": json.dumps(load),
        "folder": folder,
        "out": place / "runs",
        "quiet": "\n".join(f"$ export {name}={value}" for name, value in QUIET.items()),
        "own": "".join(OWN.format(name=path.name) for path in own),
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
        (folder / "experiment.toml").write_text(_named(experiment, setting.name), encoding="utf-8")
        for path in own:
            copy = shutil.copytree if path.is_dir() else shutil.copyfile
            copy(path, folder / path.name)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    return [folder / name for name in (*texts, "experiment.toml", *(path.name for path in own))]


def own_modules(modules: Sequence[str], functions: Sequence[str]) -> list[Path]:
    """The files and packages of the working directory that hold these modules, and the modules of these
    ``module:function``: clients have no other copy. What is installed here must be installed there too."""
    for function in functions:
        own_function(function, "flower init")
    tops = [name.partition(":")[0].partition(".")[0] for name in (*modules, *functions)]
    places = [next((p for p in (Path(f"{top}.py"), Path(top)) if p.exists()), None) for top in tops]
    return list(dict.fromkeys(place for place in places if place is not None))
