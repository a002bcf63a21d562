"""The rooms of the source and which may import which: checked by a test, drawn on docs/house.md."""

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

# From the ground up: a room may import rooms of lower floors only.
FLOORS = (
    ("util",),
    ("stats", "models"),
    ("data",),
    ("core", "serving"),
    ("api",),
    ("methods", "engines", "presets"),
    ("runs",),
    ("diagnosis",),
    ("report",),
    ("flower", "testing"),
    ("cli", "python", "bench"),
)
ATTIC = FLOORS[-1]  # may import anything, each other too
LOOSE = {"__init__.py", "__main__.py"}
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

BOX, TALL, GAP, WIDE = 200, 44, 12, 640  # pixels of the picture


def violations(source: Path) -> Iterator[str]:
    """What breaks the rule below ``source``, a folder of rooms: modules outside, and imports upwards, of the
    whole package or relative ones.

    Imports inside functions and those for type checkers count like any other.
    """
    package = source.name
    for entry in sorted(source.iterdir()):
        if entry.suffix == ".py" and entry.name not in LOOSE:
            yield f"{entry.name} lies loose"
        if entry.is_dir() and entry.name not in FLOOR and any(entry.rglob("*.py")):
            yield f"{entry.name} is on no floor"
    for path in sorted(source.glob("*/**/*.py")):
        room = path.relative_to(source).parts[0]
        for line, module in imported(path):
            top, _, rest = module.partition(".")  # what is named from where it stands has no top
            other = rest.partition(".")[0]
            inside = top == package and other != room and room not in ATTIC
            if not top or (inside and FLOOR.get(other, len(FLOORS)) >= FLOOR.get(room, 0)):
                yield f"{path.relative_to(source)}:{line} imports {module}"


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports; of ``from a import b``, a.b, and of ``from .a
    import b``, .a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            whence = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{whence}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def about(room: Path) -> str:
    """The first sentence of what a room says of itself."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def picture() -> str:
    """The floors as an SVG, the ground floor at the bottom."""
    tall = len(FLOORS) * (TALL + GAP) + GAP
    boxes = []
    for floor, rooms in enumerate(FLOORS):
        top = tall - (floor + 1) * (TALL + GAP)
        left = (WIDE - len(rooms) * (BOX + GAP) + GAP) / 2
        for place, room in enumerate(rooms):
            x = left + place * (BOX + GAP)
            boxes.append(
                f'<rect x="{x:g}" y="{top}" width="{BOX}" height="{TALL}" rx="6"/>'
                f'<text x="{x + BOX / 2:g}" y="{top + TALL / 2 + 5:g}">{escape(room)}</text>'
            )
    style = (
        "rect { fill: #eef3f8; stroke: #5b7c99 } "
        "text { font: 16px sans-serif; text-anchor: middle; fill: #1c2b39 }"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" role="img">'
    title = "<title>The rooms of fedcohort: each imports only rooms below it</title>"
    return "\n".join([head, title, f"<style>{style}</style>", *boxes, "</svg>"]) + "\n"


def page(source: Path) -> str:
    """The page in words: what each room is for, from the top floor down."""
    rows = [f"| `{room}/` | {about(source / room)} |" for rooms in reversed(FLOORS) for room in rooms]
    return PAGE.format(rows="\n".join(rows))


PAGE = """\
<!-- Written by scripts/update_docs.py from scripts/house.py and the rooms' own words. -->

# The house

Everything lives in a room below `src/fedcohort`, and a room imports only rooms on lower floors. A test reads
every import, also those inside functions and those for type checkers, none is relative, and no module lies
outside a room.

![The rooms, floor by floor](house.svg)

| room | what it is for |
|---|---|
{rows}

`cli`, `python` and `bench` may import anything, and no room imports them; `fedcohort` itself takes names from
`python` when they are first used. Method files import `fedcohort.api` and nothing else of the library, so
they are written like files of your own. Tests stand in rooms of the same names, and what they share is in
`tests/support`.
"""
