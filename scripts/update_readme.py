"""Puts real output into README.md: runs the commands it shows and replaces what stands between the markers.

.venv/bin/python -m scripts.update_readme
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.tables import ratio
from scripts.hearts import write_tables

README = Path(__file__).parents[1] / "README.md"
PEERS = {
    "flower": "Flower", "pfl": "pfl-research", "fedlab": "FedLab", "fedjax": "FedJAX", "bare": "bare PyTorch",
}  # fmt: skip
JOBS = {
    "A": "perceptron, 10 of 100 clients",
    "B": "LeNet-5, 10 of 100 clients",
    "C": "perceptron, 100 of 1,000 small clients",
}
ROLES = ("selector", "objective", "averaging", "server_optimiser", "grouping", "adaptation", "transform")


def fedcohort(*words: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    command = [sys.executable, "-m", "fedcohort", *words]
    environment = {**os.environ, "COLUMNS": "80"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return "\n".join(line.rstrip() for line in out.rstrip().splitlines())


def start() -> str:
    """From a table to a model in use: what the commands that stand there print."""
    found = re.search(r"<!-- start -->\n(.*?)<!-- end -->", README.read_text(encoding="utf-8"), re.S)
    assert found is not None
    shown = list[str]()
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here):
        write_tables(Path(os.environ["FEDCOHORT_DATA"]), Path())
        for command in re.findall(r"^\$ (.*)$", found[1], re.M):
            program, *words = shlex.split(command)
            if program == "fedcohort":
                printed = fedcohort(*words)
            else:  # head -3 FILE
                printed = "\n".join(Path(words[-1]).read_text().splitlines()[: int(words[0][1:])])
            shown.append(f"$ {command}\n{printed}\n")
    return f"```console\n{''.join(shown)}```"


def demo() -> str:
    with tempfile.TemporaryDirectory() as out:
        return console("make demo", fedcohort("demo", "--out", out))


def diagnose() -> str:
    partition = "dirichlet(clients=30, alpha=0.1)"
    verdict = fedcohort("diagnose", "digits", "--partition", partition).split("\nFederation")[0]
    return console(f'fedcohort diagnose digits --partition "{partition}"', f"{verdict}\n...")


def journey() -> str:
    """What the commands that follow its experiment file print."""
    text = README.read_text(encoding="utf-8")
    file = re.search(r"```toml\n(# skews.toml\n.*?)```", text, re.S)
    assert file is not None
    home = "runs/skews-001"
    table = f"table {home} --over last:10 --against fedavg"
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here):
        Path("skews.toml").write_text(file[1], encoding="utf-8")
        fedcohort("run", "skews.toml", "--quiet")
        fedcohort("run", "--resume", home, "--seeds", "0,1,2,3,4", "--quiet")
        shown = fedcohort(*table.split())
    first = f"fedcohort run skews.toml\n$ fedcohort run --resume {home} --seeds 0,1,2,3,4"
    return console(f"{first}\n$ fedcohort {table}", shown)


def methods() -> str:
    entries = json.loads(fedcohort("methods", "--json"))
    rows = ["| method | role | what it does |", "|---|---|---|"]
    for entry in sorted(entries, key=lambda e: (ROLES.index(e["roles"][0]), e["name"])):
        if not entry["reference"]:
            role = ", ".join(entry["roles"]).replace("_", " ") + (
                " (default)" if entry["default_for"] else ""
            )
            title = entry["title"].replace("|", r"\|")
            rows.append(f"| `{entry['name']}` | {role} | {title} |")
    return "\n".join(rows)


def speed() -> str:
    """How many times as long as fedcohort each peer takes for a round, from the last `make bench-peers`."""
    results = json.loads((README.parent / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    rows = ["| job | " + " | ".join(PEERS.values()) + " |", "|---" * (len(PEERS) + 1) + "|"]
    for job, about in JOBS.items():
        ratios = (ratio(results, job, peer) for peer in PEERS)
        rows.append(f"| {about} | " + " | ".join(f"{times:.1f}x" for times in ratios) + " |")
    machine = results["machine"]
    return "\n".join([*rows, "", f"{machine['cpu']}, {machine['cores']} cores, {results['started'][:10]}."])


def example() -> str:
    """What the Python example prints."""
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert code is not None
    out = subprocess.run([sys.executable, "-c", code[1]], capture_output=True, text=True, check=True).stdout
    return f"```text\n{out.rstrip()}\n```"


def console(command: str, output: str) -> str:
    return f"```console\n$ {command}\n{output}\n```"


def main() -> None:
    places = {make.__name__: make for make in (start, demo, diagnose, journey, speed, methods, example)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=[*places], help=f"of {', '.join(places)}")
    text = README.read_text(encoding="utf-8")
    for make in map(places.__getitem__, parser.parse_args().places):
        marked = re.compile(rf"(<!-- {make.__name__} -->\n).*?(<!-- end -->)", re.S)
        assert marked.search(text), f"README.md has no place for {make.__name__}"
        new = make()
        text = marked.sub(lambda found, new=new: f"{found[1]}{new}\n{found[2]}", text)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
