"""The user's own modules: methods listed in ``imports``, models named ``"module:function"``."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcohort.errors import UserError


def import_own(module: str, setting: str) -> ModuleType:
    """Imports a module of the working directory or the environment, named in ``setting``."""
    if str(Path.cwd()) not in sys.path:  # a console script does not look in the working directory by itself
        sys.path.insert(1, str(Path.cwd()))  # behind the program's own: of a Flower app, what came with it
    try:
        return importlib.import_module(module)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"{setting}: cannot import '{module}' ({error}); run from the directory that holds it"
        ) from error
    except Exception as error:  # somebody else's code: anything may happen
        raise UserError(f"{setting}: '{module}' fails with {in_words(error)}") from error


def own_function(reference: str, setting: str) -> Callable[..., Any]:
    """The function that is called ``module:function``."""
    module, _, name = reference.partition(":")
    found = getattr(import_own(module, setting), name, None) if module and name else None
    if not callable(found):
        raise UserError(f"{setting}: there is no function '{reference}'; write 'module:function'")
    return found


def in_words(error: Exception) -> str:
    """An exception on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
