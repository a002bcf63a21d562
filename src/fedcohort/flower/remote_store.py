"""Client memories seen from the server: where they are, not what they hold.

A State holds these where a simulation holds the memories themselves. Only a method that looks inside one, as
SCAFFOLD does when a group splits, makes the clients send theirs.
"""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from fedcohort.core.client_store import Memories
from fedcohort.core.records import Memory

Fetch = Callable[[dict[int, int]], dict[int, Memory]]  # by client and version


class RemoteMemory(dict[str, Tensor]):
    """One client's memory: its version, and the tensors themselves once somebody looked."""

    def __init__(self, version: int, look: Callable[[], Memory]) -> None:
        super().__init__()
        self.version, self.look = version, look

    def __bool__(self) -> bool:
        return True

    def __missing__(self, key: str) -> Tensor:
        self.update(self.look())
        return self[key]


class RemoteStore(Memories):
    """Which version each client keeps."""

    def __init__(self, versions: Mapping[int, int], fetch: Fetch) -> None:
        self._versions, self._fetch = dict(versions), fetch
        self._fetched: dict[int, Memory] | None = None

    def __getitem__(self, client: int) -> Memory:
        return RemoteMemory(self._versions[client], lambda: self._all()[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def versions(self) -> dict[int, int]:
        return self._versions

    def updated(self, mine: Mapping[int, Memory], version: int) -> "RemoteStore":
        return RemoteStore({**self._versions, **dict.fromkeys(mine, version)}, self._fetch)

    def emptied(self) -> "RemoteStore":
        return RemoteStore({}, self._fetch)

    def _all(self) -> dict[int, Memory]:
        """Who looks at one looks at all: they are fetched together."""
        if self._fetched is None:
            self._fetched = self._fetch(self._versions)
        return self._fetched
