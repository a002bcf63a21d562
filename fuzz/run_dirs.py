"""Run directories of somebody else: a file of a real one changed, then every command looks at it or goes on.

Commands that look must run nothing that the directory names; nothing may be written but what was asked for.
"""

import contextlib
import io
import json
import re
import struct
import tempfile
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w

from fedcohort.cli.app import main
from fedcohort.cli.http import Reports
from fuzz import wild
from fuzz.draw import Draw
from fuzz.guard import CANARY
from fuzz.wild import damaged

SHARE, SECONDS = 20, 30.0
FEDERATION = """
[data]
source = "synthetic"
samples = 120
classes = 3
features = 4
[partition]
name = "dirichlet"
clients = 6
min_size = 4
[model]
name = "logistic"
"""
EXPERIMENT = f"""
rounds = 2
cohort = 3
method = ["clust_psi_pfl", "scaffold"]
{FEDERATION}"""
ORDERS = frozenset(chr(code) for code in (*range(32), 127)) - {"\n"}  # what terminals obey
COUNTS = "client,0,1,2\na,3,4,5\nb,9,0,0\n"
LOOKS: dict[str, tuple[str, ...]] = {
    "report": ("report", "{home}", "--out", "out.html"),
    "report a run": ("report", "{run}", "--out", "out.html"),
    "watch": ("watch", "{home}", "--once"),
    "assign": ("assign", "{run}", "--counts", "counts.csv"),
    "drift": ("drift", "counts.csv", "counts.csv", "--run", "{run}"),
    "table": ("table", "{home}", "--over", "last:2", "--against", "scaffold"),
    "table in LaTeX": ("table", "{home}", "--format", "latex"),
    "table in Markdown": ("table", "{home}", "--format", "markdown"),
    "export": ("export", "{run}", "--out", "model"),
    "export the best": ("export", "{home}", "--out", "model", "--client", "client 0"),
    "resume": ("run", "--resume", "{home}", "--quiet"),
    "resume a run": ("run", "--resume", "{run}", "--json"),
}
HOSTILE = (
    {"imports": [CANARY]},
    {"model": {"name": f"{CANARY}:main"}},
    {"model": {"name": "os:system", "command": "touch escaped"}},
    {"model": {"name": "subprocess:run", "args": ["touch", "escaped"]}},
    {"name": "../../escaped"},
    {"data": {"source": "table", "path": "/etc/passwd", "label": "x"}},
    {"sweep": {"model": [{"name": "subprocess:run", "args": ["touch", "escaped"]}]}},
    {"sweep": {"model": {"name": ["os:system"], "command": ["touch escaped"]}}},
    {"sweep": {"imports": [[CANARY]], "track.mlflow.uri": ["sqlite:///../escaped"]}},
    {"track": {"mlflow": {"uri": "sqlite:///../escaped"}}},
    {"run": {"ray": "127.0.0.1:9"}},
    {"method": [{"name": "scaffold", "label": "[/x][link=file:///etc/passwd]"}]},
)


@cache
def template() -> dict[str, bytes]:
    """The files of a comparison of two runs; a run's directory goes by the name of its method."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        file = Path(place) / "e.toml"
        file.write_text(EXPERIMENT)
        with contextlib.suppress(SystemExit):
            main(["run", str(file), "--out", str(Path(place) / "runs"), "--json"])
        home = Path(place) / "runs" / "e-001"
        return {
            str(path.relative_to(home)): path.read_bytes()
            for path in sorted(home.rglob("*"))
            if path.is_file()
        }


def make(draw: Draw) -> dict[str, Any]:
    files = template()
    changed: dict[str, bytes | None] = {}
    names = sorted(name for name in files if not name.endswith((".html", "lock")))
    for _ in range(1 + draw.below(2)):
        name = draw.pick(names)
        changed[name] = None if draw.one_in(16) else odd(draw, name, files[name], HOSTILE)
    if draw.below(2):
        changed |= {name: None for name in names if name.endswith("result.json")}  # stopped before its end
    return {"changed": changed, "look": draw.pick((*LOOKS, "serve"))}


def odd(draw: Draw, name: str, content: bytes, hostile: Sequence[dict[str, Any]]) -> bytes:
    """One value changed where the format is known, else some bytes; ``hostile`` are settings that do harm."""
    if draw.below(3) == 0:
        return (
            draw.pick((b"", b"\0", b"{}", b"[]", b"null", b"1", b"[" * 5000))
            if draw.one_in(5)
            else damaged(draw, content)
        )
    if name.endswith(".toml"):
        table = tomllib.loads(content.decode())
        if draw.one_in(3):
            return tomli_w.dumps({**table, **draw.pick(hostile)}).encode()
        change(draw, table, wild.anything)
        return tomli_w.dumps(table).encode()
    if name.endswith(".json"):
        table = json.loads(content)
        change(draw, table, json_value)
        return json.dumps(table).encode()
    if name.endswith(".csv"):
        cells = re.split(rb"([,\n])", content)
        cells[2 * draw.below((len(cells) + 1) // 2)] = str(json_value(draw)).encode(errors="replace")
        return b"".join(cells)
    if name.endswith(".safetensors"):
        return changed_head(draw, content)
    return damaged(draw, content)


def changed_head(draw: Draw, content: bytes) -> bytes:
    """A safetensors file whose header says something else."""
    size = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8 : 8 + size])
    change(draw, head, json_value)
    new = json.dumps(head).encode()
    return struct.pack("<Q", len(new)) + new + content[8 + size :]


def change(draw: Draw, table: Any, value: Any) -> None:
    """Puts an odd value somewhere inside, also into tables that are kept as text."""
    keys: list[Any] = sorted(table, key=str) if isinstance(table, dict) else list(range(len(table)))
    if not keys:
        return
    key = draw.pick(keys)
    inner = table[key]
    if isinstance(inner, str) and inner.startswith(("{", "[")) and draw.below(4):
        parsed = json.loads(inner)
        change(draw, parsed, value)
        table[key] = json.dumps(parsed)
    elif isinstance(inner, dict | list) and inner and draw.below(4):
        change(draw, inner, value)
    elif draw.one_in(8):
        del table[key]
    else:
        table[key] = value(draw)


def json_value(draw: Draw) -> Any:
    odd = (
        None,
        True,
        -1,
        0,
        1,
        10**30,
        10**400,
        -0.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        {},
        [[]],
        ["a"],
        "\ud800",
    )
    return draw.pick(odd) if draw.below(3) else wild.text(draw)


def try_case(case: dict[str, Any], home: Path) -> str:
    directory = home / "runs" / "e-001"
    for name, content in (template() | case["changed"]).items():
        if content is not None:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    (home / "counts.csv").write_text(COUNTS)
    look = case["look"]
    if look == "serve":
        shelf = Reports(home / "runs", home)
        for name in shelf.look():
            shelf.find(name)
        return look
    run = next((path for path in sorted(directory.iterdir()) if path.is_dir()), directory)
    words = [word.format(home=directory, run=run) for word in LOOKS[look]]
    return f"{look}: {'refused' if call(words) else 'done'}"


def call(words: list[str]) -> int:
    """The exit code of a command that ends well or with a sentence, and gives a terminal no orders."""
    code: Any = 0
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            code = end.code or 0
    assert code in (0, 2), f"exit code {code}"
    assert not ORDERS & {*said.getvalue()}, f"it speaks to the terminal: {said.getvalue()!r:.2000}"
    said.getvalue().encode()
    return int(code)
