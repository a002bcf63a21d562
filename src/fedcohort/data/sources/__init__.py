"""Data sources: one file each, a frozen dataclass whose fields are the source's options."""

from collections.abc import Mapping
from typing import Any, Protocol, get_args, get_type_hints

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import DataPath, Place, Places
from fedcohort.data.scaling import ScaleRule
from fedcohort.util.registry import Registry


class Source(Protocol):
    """Anything with options that can load a data set."""

    def load(self, where: Places) -> Dataset:
        """Read, check and scale the data."""
        ...


SOURCES: Registry[Source] = Registry("data source", "fedcohort.data.sources", "fedcohort.sources")
register = SOURCES.register
COMMON = {"source": str, "root": DataPath, "scale": ScaleRule}  # settings for every source, beside its own


def places_in(data: Mapping[str, Any]) -> dict[str, Place]:
    """Which of these settings of a source are paths: those whose fields have such a type."""
    hints = get_type_hints(SOURCES.get(data["source"]), include_extras=True) | COMMON
    return {key: place for key in data for place in _marks(hints.get(key)) if isinstance(place, Place)}


def _marks(hint: Any) -> list[Any]:
    """What annotations say of a type, or of the types that it may be."""
    return [*getattr(hint, "__metadata__", ()), *(mark for each in get_args(hint) for mark in _marks(each))]
