"""Folders of papers' tables that somebody else wrote: listed, shown, and made again.

What a folder names is not run: neither code of its experiment file nor a program beside it.
"""

from pathlib import Path
from typing import Any

from fuzz import wild
from fuzz.draw import Draw
from fuzz.guard import CANARY
from fuzz.run_dirs import FEDERATION, call, odd

SHARE, SECONDS = 10, 30.0
EXPERIMENT = f"""
name = "t"
rounds = 1
cohort = 3
seeds = [0]
method = ["fedprox", "fedavg"]
{FEDERATION}
[sweep]
local.lr = [0.1, 0.2]
""".encode()
ABOUT = b"""
about = "a table"
also = ["bytes_up"]
[scales.small]
about = "fewer"
set = ["local.batch=8"]
[scales.smoke]
set = ["seeds=[0]"]
[[claims]]
about = "better"
method = "fedavg"
against = "fedprox"
conditions = "local.lr=0.1"
metric = "global.accuracy"
relative = true
[[claims]]
about = "more than half"
method = "fedavg"
against = 50
paper = 10.0
conditions = "local.lr=0.1"
metric = "global.accuracy"
"""
STUDY = b"""
about = "a figure"
[study]
name = "fuzz_canary"
file = "rows.csv"
conditions = "K=$clients"
method = "cafa"
data = "labels"
"""
EXPECTED = b"""table,row,column,conditions,method,metric,value,std,unit
I,FedProx,0.1,local.lr=0.1,fedprox,global.accuracy,60.0,1.0,%
I,FedAvg,0.1,local.lr=0.1,fedavg,global.accuracy,61.0,,%
I,FedAvg,0.2,local.lr=0.2,fedavg,global.accuracy+bytes_up,70.0,1.0,MB
I,Another,0.1,,,,80.0,,%
"""
RESULTS = b"""conditions,method,scale,seed,global.accuracy,bytes_up,rounds,seconds,config,data,version,command
local.lr=0.1,fedavg,paper,0,0.5,100.0,1,0.5,0123abcd,x,1,c
local.lr=0.1,fedprox,paper,0,0.4,100.0,1,0.5,0123abcd,x,1,c
"""
ROWS = b"clients,seed,global.accuracy,bytes_up\n3,0,0.5,1\n"
TABLES = {"experiment.toml": EXPERIMENT, "expected.csv": EXPECTED, "results.csv": RESULTS}
HOSTILE = (
    {"imports": [CANARY]},
    {"model": {"name": f"{CANARY}:main"}},
    {"sweep": {"model": {"name": ["os:system"], "command": ["touch escaped"]}}},
    {"track": {"mlflow": {"uri": "sqlite:///../escaped"}}},
    {"run": {"ray": "127.0.0.1:9"}},
    {"name": "../../escaped"},
    {"scales": {"smoke": {"set": [f"imports=['{CANARY}']"]}}},
    {"scales": {"smoke": {"set": ["model={name='os:system', command='touch escaped'}"]}}},
    {"study": {"name": "os", "file": "../../x.csv", "conditions": "", "method": "", "data": ""}},
)
WAYS: dict[str, tuple[str, ...]] = {
    "list": (),
    "list as JSON": ("--json",),
    "show": ("p/t", "--quiet", "--budget", "1s"),
    "smoke": ("p/t", "--scale", "smoke", "--quiet"),
    "smoke as JSON": ("p/t", "--scale", "smoke", "--json", "--seeds", "1"),
}


def make(draw: Draw) -> dict[str, Any]:
    files = TABLES | {"table.toml": STUDY if draw.one_in(3) else ABOUT}
    changed: dict[str, bytes | None] = {}
    for _ in range(1 + draw.below(2)):
        name = draw.pick(sorted(files))
        changed[name] = None if draw.one_in(16) else odd(draw, name, files[name], HOSTILE)
    if draw.one_in(8):
        changed["runs.json"] = wild.damaged(draw, b'{"fedavg@local.lr=0.1": 0.5}')
    return {"files": files | changed, "way": draw.pick(tuple(WAYS))}


def try_case(case: dict[str, Any], home: Path) -> str:
    """A program with the name of the canary lies where a study would."""
    folder, way = home / "papers" / "p" / "t", case["way"]
    folder.mkdir(parents=True)
    for name, content in case["files"].items():
        if name == "runs.json":
            (home / "runs/replicate/p-paper").mkdir(parents=True)
            (home / "runs/replicate/p-paper/seconds_per_round.json").write_bytes(content)
        elif content is not None:
            (folder / name).write_bytes(content)
    (home / "studies").mkdir()
    (home / "studies" / f"{CANARY}.py").write_text("")
    (home / "studies" / "rows.csv").write_bytes(ROWS)
    return f"{way}: {'refused' if call(['replicate', *WAYS[way]]) else 'done'}"
