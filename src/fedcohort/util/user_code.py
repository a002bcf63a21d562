"""The user's own modules: methods listed in ``imports``, models named ``"module:function"``.

They are executed for who names their file on the command line. A run directory may be somebody else's: it is
looked at without them, and continued with them only when the user says so.
"""

import importlib
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcohort.util.errors import UserError
from fedcohort.util.registry import Registry

TRACKER = "track "  # before the name of a tracker, among what an experiment would do
KEPT_HERE = ("tensorboard",)  # trackers that write into the run's own directory
OWN: set[str] = set()  # the files of the modules that were imported here


def import_own(module: str, setting: str) -> ModuleType:
    """Imports a module of the working directory or the environment, named in ``setting``."""
    if str(Path.cwd()) not in sys.path:  # a console script does not look in the working directory by itself
        sys.path.insert(1, str(Path.cwd()))  # behind the program's own: of a Flower app, what came with it
    try:
        found = importlib.import_module(module)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        itself = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        cure = "run from the directory that holds it" if itself else "install what it needs"
        raise UserError(f"{setting}: cannot import '{module}' ({error}); {cure}") from error
    except Exception as error:  # somebody else's code: anything may happen
        raise UserError(f"{setting}: '{module}' fails with {in_words(error)}") from error
    if found.__file__:
        OWN.add(found.__file__)
    return found


@contextmanager
def own_mistakes() -> Iterator[None]:
    """An error that comes through a module imported here becomes one sentence that names its line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # somebody else's code: anything may happen
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in OWN]
        if not lines:
            raise
        where = f"{Path(lines[-1].filename).name}, line {lines[-1].lineno}, in {lines[-1].name}"
        raise UserError(f"{where}: {in_words(error)}") from error


def own_function(reference: str, setting: str) -> Callable[..., Any]:
    """The function that is called ``module:function``."""
    module, _, name = reference.partition(":")
    found = getattr(import_own(module, setting), name, None) if module and name else None
    if not callable(found):
        raise UserError(f"{setting}: there is no function '{reference}'; write 'module:function'")
    return found


def own_code_in(table: Mapping[str, Any]) -> list[str]:
    """What an experiment with these settings would import, call or send results to, beyond fedcohort."""
    imports, model = table.get("imports", ()), table.get("model", "")
    name = model.get("name", "") if isinstance(model, Mapping) else model
    listed = [imports] if isinstance(imports, str) else imports if isinstance(imports, list | tuple) else []
    trackers, sweep = table.get("track", {}), table.get("sweep", {})
    named = trackers if isinstance(trackers, Mapping) else ["?"]
    told = [f"{TRACKER}{each}" for each in named if each not in KEPT_HERE]
    swept = sweep.items() if isinstance(sweep, Mapping) else ()
    tried = [text for key, values in swept if key.partition(".")[0] == "model" for text in _texts(values)]
    return [*map(str, listed), *(text for text in (str(name), *tried) if ":" in text), *told]


def _texts(value: Any) -> Iterator[str]:
    """All that are in a table or a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def refuse_unknown_code(
    deed: str, table: Mapping[str, Any], trusted: Collection[str], cure: str = "add --trust"
) -> None:
    """Raises UserError if a ``deed`` with these settings would run anything but ``trusted``."""
    unknown = [name for name in own_code_in(table) if name not in trusted]
    if unknown:
        raise UserError(
            f"{deed} would {' and '.join(map(_deed, unknown))}, as its files say: if you know what that "
            f"does, {cure}"
        )


def _deed(name: str) -> str:
    if name.startswith(TRACKER):
        return f"send results to '{name.removeprefix(TRACKER)}'"
    return f"call '{name}' to make its model" if ":" in name else f"import '{name}'"


def resume_command(directory: Path, table: Mapping[str, Any], command: str = "run") -> str:
    """What continues a directory with these settings."""
    trust = " --trust" * bool(own_code_in(table))
    return f"fedcohort {command} --resume {shlex.quote(str(directory))}{trust}"


def comes_with_fedcohort(registry: Registry[Any], name: str) -> bool:
    """Whether a name is one of fedcohort's own files: importing these runs nobody else's code."""
    package = importlib.import_module(registry.package)
    return any(module.name == name for module in pkgutil.iter_modules(package.__path__))


def in_words(error: Exception) -> str:
    """An exception on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
