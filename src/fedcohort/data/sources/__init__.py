"""Data sources: one file each, a frozen dataclass whose fields are the source's options."""

from typing import Protocol

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import Places
from fedcohort.util.registry import Registry


class Source(Protocol):
    """Anything with options that can load a data set."""

    def load(self, where: Places) -> Dataset:
        """Read, check and scale the data."""
        ...


SOURCES: Registry[Source] = Registry("data source", "fedcohort.data.sources", "fedcohort.sources")
register = SOURCES.register
