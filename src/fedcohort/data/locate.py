"""Where data files are: the path given, the data root, the cache, and only then the network."""

import hashlib
import logging
import os
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from fedcohort.util.errors import UserError
from fedcohort.util.files import cache_folder

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Marks a setting of a data source as the path of a file or folder; ``or_hub``: or a name on a hub."""

    or_hub: bool = False


DataPath = Annotated[str, Place()]  # of a file or folder, as a setting of a data source
HubPath = Annotated[str, Place(or_hub=True)]  # of one here, or the name of one on a hub


def user_path(text: str) -> Path:
    """The path that a user wrote, or a sentence if no file can have it."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"'{text}' cannot be looked for ({reason}): check the path") from None
    return path


@dataclass(frozen=True)
class Remote:
    """A file on the network; ``digest`` is ``"sha256:..."`` or ``"md5:..."`` as its publisher states it."""

    url: str
    digest: str


@dataclass(frozen=True)
class Places:
    """The places a source may look for its files, in this order."""

    given: Path | None = None  # the source's own 'path' option
    root: Path | None = None
    cache: Path = field(default_factory=cache_folder)
    offline: bool = False

    @classmethod
    def of(cls, root: str | Path | None = None) -> "Places":
        """From an option and the environment: FEDCOHORT_DATA, FEDCOHORT_CACHE, FEDCOHORT_OFFLINE."""
        base = root or os.environ.get("FEDCOHORT_DATA")
        base = user_path(str(base)) if base else None
        if base and not base.is_dir():
            raise UserError(f"there is no data folder {base}: check 'root' or FEDCOHORT_DATA")
        offline = bool(os.environ.get("FEDCOHORT_OFFLINE"))
        return cls(None, base, offline=offline)

    def at(self, path: str | None) -> "Places":
        """The same places, with the user's own folder first."""
        if path is None:
            return self
        given = user_path(path)
        if self.root is not None and not given.is_dir() and (self.root / path).is_dir():
            given = self.root / path
        return replace(self, given=given)

    def folders(self, names: Sequence[str]) -> list[Path]:
        """Existing folders that may hold a source usually kept under one of ``names``."""
        if self.given is not None:
            if not self.given.is_dir():
                raise UserError(f"{self.given} is not a folder: give the folder that holds the data files")
            return [self.given]
        bases = [base for base in (self.root, self.cache) if base is not None]
        return [base / name for base in bases for name in names if (base / name).is_dir()]

    def find(self, names: Sequence[str], files: Sequence[str]) -> Path | None:
        """The first existing file among the spellings ``files`` in the folders of a source."""
        candidates = (folder / file for folder in self.folders(names) for file in files)
        return next((path for path in candidates if path.is_file()), None)

    def file(self, path: str) -> Path:
        """A file named by the user: as it stands, else below the data root."""
        candidates = user_path(path), *([self.root / path] if self.root else [])
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        if any(candidate.is_dir() for candidate in candidates):
            raise UserError(f"{path} is a folder: name its files, like '{path}/*.csv'")
        raise UserError(f"there is no file {self.sought(path)}: check the path")

    def sought(self, path: str) -> str:
        """A path that leads nowhere, with the folders at which it was taken to start."""
        if user_path(path).is_absolute():
            return path
        if self.root is None:
            return f"{path} in {Path.cwd()}, and FEDCOHORT_DATA names no folder of data"
        return f"{path} in {Path.cwd()} or {self.root}"

    def fetch(self, names: Sequence[str], files: Sequence[str], remote: Remote) -> Path:
        """:meth:`find`, else download into the cache and check the digest."""
        found = self.find(names, files)
        if found is not None:
            return found
        home = self.given or (self.root or self.cache) / names[0]
        advice = f"{files[0]} is missing: put it into {home}"
        if self.offline or self.given is not None:
            raise UserError(f"{advice} (from {remote.url})")
        try:
            return download(remote, self.cache / names[0] / remote.url.rpartition("/")[2])
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise UserError(f"{advice}, because {remote.url} cannot be downloaded ({reason})") from error


def download(remote: Remote, target: Path) -> Path:
    """Fetch a file; it appears at ``target`` only when complete and genuine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    kind, _, expected = remote.digest.partition(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    log.info("downloading %s to %s", remote.url, target)
    try:
        with (
            urllib.request.urlopen(remote.url, timeout=30) as answer,  # noqa: S310  # stands in a source's file
            part.open("wb") as out,
        ):
            while block := answer.read(1 << 20):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != expected:
            raise UserError(
                f"{remote.url} is damaged or was replaced ({kind} {digest.hexdigest()}, not {expected}): "
                f"try again, or put a good copy at {target}"
            )
        return part.replace(target)
    finally:
        part.unlink(missing_ok=True)
