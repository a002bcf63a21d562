"""Programs that stand in for Flower's, so that supervision is tested in milliseconds."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcohort.flower import admission, processes, superlink, supernode


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Call with a name and Python code: that program of Flower is now this code."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def program(name: str) -> str:
        return str(folder / name)

    for module in (admission, processes, superlink, supernode):
        monkeypatch.setattr(module, "program", program)

    def write(name: str, code: str) -> None:
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)

    return write
