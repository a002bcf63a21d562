"""Names that somebody else chose, made fit to be printed, logged and opened in a spreadsheet or a browser."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

LONGEST = 80  # characters that a report has room for
FORMULA = re.compile(r"[=+\-@\uff1d\uff0b\uff0d\uff20]")  # a spreadsheet computes such a cell, also if wide
MARKDOWN = re.compile(r"([|\\`<\[\]])")  # how Markdown knows cells, code, tags, links and pictures


def safe_name(text: str, longest: int = LONGEST) -> str:
    """The name on one line, without control characters; one that a spreadsheet would compute is quoted."""
    line = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text.strip())
    short = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return f"'{short}" if FORMULA.match(short) and not _is_number(short) else short


def safe_names(names: Sequence[str], longest: int = LONGEST) -> list[str]:
    """Safe names of different things; those that would look the same are told apart by what they were."""
    safe = [safe_name(name, longest) for name in names]
    times = Counter(safe)
    return [
        short if times[short] == 1 or short == name else f"{short[: longest - 10]} #{_mark(name)}"
        for short, name in zip(safe, names, strict=True)
    ]


def in_markdown(text: str) -> str:
    """As Markdown prints it: never a tag, a link, a picture or another cell."""
    return MARKDOWN.sub(r"\\\1", text)


def natural(name: str) -> tuple[list[Any], str]:
    """The order of clients, wherever they have names: "site 10" comes after "site 9"."""
    parts = re.split(r"([0-9]+)", name)
    return [(len(n := part.lstrip("0")), n) if part.isdigit() else (-1, part) for part in parts], name


def in_order(names: Sequence[str]) -> list[int]:
    """The positions of the names in that order."""
    return sorted(range(len(names)), key=lambda position: natural(names[position]))


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
