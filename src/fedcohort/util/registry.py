"""Things found by the name of their file: methods, partitions, data sources, models.

``methods/scaffold.py`` holds the class registered as ``"scaffold"``; there is no table to edit and no second
spelling. A name is imported only when it is asked for. Other packages add theirs through an entry point.
"""

import importlib
import pkgutil
import sys
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """All classes of one kind. ``package`` holds one file each; ``group`` is the entry point for others."""

    def __init__(self, kind: str, package: str, group: str) -> None:
        self.kind, self.package, self.group = kind, package, group
        self._classes: dict[str, type[T]] = {}

    def register(self, cls: C) -> C:
        """Class decorator: the file's name becomes the registered name."""
        name = cls.__module__.rpartition(".")[2]
        other = self._classes.get(name)
        if other is not None and other.__module__ != cls.__module__:
            raise UserError(f"two {self.kind}s are called '{name}': {other.__module__} and {cls.__module__}")
        self._classes[name] = cls
        cls.name = name  # type: ignore[attr-defined]
        return cls

    def names(self) -> list[str]:
        """Every name that :meth:`get` knows, sorted; nothing is imported."""
        package = importlib.import_module(self.package)
        own = {module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"}
        return sorted(own | set(self._others()) | set(self._classes))

    def get(self, name: str) -> type[T]:
        if name not in self._classes:
            self._load(name)
        return self._classes[name]

    def _load(self, name: str) -> None:
        others = self._others()
        if name not in self.names():
            raise UserError(f"unknown {self.kind} '{name}'{nearest(name, self.names())}")
        target = others.get(name, f"{self.package}.{name}")
        try:
            importlib.import_module(target)
        except ImportError as error:
            if name in others:
                raise UserError(
                    f"the {self.kind} '{name}' of another package cannot be imported: {error}"
                ) from error
            raise
        if name not in self._classes:
            raise UserError(
                f"{target} registers no {self.kind} called '{name}': decorate its class with @register"
            )

    def _others(self) -> dict[str, str]:
        """Name to module, from packages that declare the entry point (``name = "package.module"``)."""
        return _declared(self.group, tuple(sys.path))


@lru_cache(maxsize=16)
def _declared(group: str, path: tuple[str, ...]) -> dict[str, str]:
    """By all packages on this path: to look through them takes longer than all else that is done here."""
    return {entry.name: entry.value.partition(":")[0] for entry in entry_points(group=group)}
