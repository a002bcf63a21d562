"""Directories of ``tune`` that somebody else wrote: something changed, then gone on with."""

import contextlib
import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fedcohort.cli.app import main
from fuzz.draw import Draw
from fuzz.run_dirs import EXPERIMENT, HOSTILE, call, odd

SHARE, SECONDS = 10, 60.0
TUNED = (
    {"tune": {"sampler": "random"}},
    {"tune": {"sampler": "grid", "trials": 10**9}},
    {"tune": {"sampler": "random", "seconds": float("inf")}},
    {"tune": 3},
)


@cache
def template() -> dict[str, bytes]:
    """One trial of one method."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        file = Path(place) / "e.toml"
        file.write_text(EXPERIMENT.replace('["clust_psi_pfl", "scaffold"]', '["scaffold"]'))
        with contextlib.suppress(SystemExit):
            main(["tune", str(file), "--out", str(Path(place) / "runs"), "--budget", "1", "--quiet"])
        home = Path(place) / "runs" / "e-tune-001"
        return {
            str(path.relative_to(home)): path.read_bytes()
            for path in sorted(home.rglob("*"))
            if path.is_file() and not path.name.endswith((".html", "lock"))
        }


def make(draw: Draw) -> dict[str, Any]:
    files = template()
    names = ["tune.toml"] * 3 + [name for name in files if "/" in name]
    changed: dict[str, bytes | None] = {}
    for _ in range(1 + draw.below(2)):
        name = draw.pick(names)
        changed[name] = None if draw.one_in(16) else odd(draw, name, files[name], (*HOSTILE, *TUNED))
    return changed


def try_case(case: dict[str, Any], home: Path) -> str:
    directory = home / "runs" / "e-tune-001"
    for name, content in (template() | case).items():
        if content is not None:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    return "refused" if call(["tune", "--resume", str(directory), "--quiet"]) else "done"
