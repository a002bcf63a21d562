"""Runs the examples and writes each with its output as Markdown beside it.

.venv/bin/python scripts/run_examples.py             all of them (make examples)
.venv/bin/python scripts/run_examples.py hospitals   one

An example is an ordinary script in cells: ``# %% [markdown]`` begins text, ``# %%`` begins code.
"""

import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("hospitals", "fashion_mnist", "new_method")


class Cell(NamedTuple):
    """A piece of an example."""

    text: str
    is_code: bool


def main() -> None:
    from fedcohort.util.errors import UserError

    failed = False
    for name in sys.argv[1:] or NAMES:
        since = time.monotonic()
        try:
            text = written(name)
        except UserError as mistake:
            print(f"{name}: {mistake}; its data go below $FEDCOHORT_DATA", file=sys.stderr)
            failed = True
            continue
        (EXAMPLES / f"{name}.md").write_text(text, encoding="utf-8")
        print(f"examples/{name}.md written after {time.monotonic() - since:.0f} s")
    raise SystemExit(failed)


def written(name: str) -> str:
    """An example as Markdown, with what its code prints."""
    path = EXAMPLES / f"{name}.py"
    parts = [f"<!-- Written by scripts/run_examples.py; change examples/{path.name} instead. -->"]
    names = {"__name__": "__main__", "__file__": str(path)}
    for cell in cells(path.read_text(encoding="utf-8")):
        parts.append(shown(cell))
        if cell.is_code and (output := printed(cell.text, path, names)):
            parts.append(f"```text\n{output}\n```")
    return "\n\n".join(parts) + "\n"


def cells(text: str) -> Iterator[Cell]:
    """The text and code of an example, in order."""
    for part in re.split(r"^# %%", text, flags=re.M)[1:]:
        kind, _, body = part.partition("\n")
        if kind.strip() == "[markdown]":
            yield Cell(
                "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()),
                False,
            )
        else:
            yield Cell(body.strip(), True)


def shown(cell: Cell) -> str:
    return f"```python\n{cell.text}\n```" if cell.is_code else cell.text


def printed(code: str, path: Path, names: dict[str, str]) -> str:
    """What a cell prints; ``names`` are what earlier cells defined."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, path, "exec"), names)
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


if __name__ == "__main__":
    main()
