"""Settings as a TOML file with a reason beside each."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

WIDTH = 100  # of what a file begins with
REASON = 24  # the column at which reasons begin


def commented(head: Sequence[str], settings: Mapping[str, Any], reasons: Mapping[str, Any]) -> str:
    """The text of a file: sentences, then settings. A reason, of a setting like ``local.lr``, is a text, or
    has one for each entry of a list."""
    lines = [
        line for text in head for line in textwrap.wrap(f"# {_plain(text)}", WIDTH, subsequent_indent="# ")
    ]
    for key, value in sorted(settings.items(), key=lambda item: isinstance(item[1], dict)):
        if not isinstance(value, dict):
            lines += _lines(key, value, reasons.get(key, ""))
            continue
        lines += ["", f"[{key}]"]
        for name, each in value.items():
            lines += _lines(name, each, reasons.get(f"{key}.{name}", ""))
    return "\n".join(lines) + "\n"


def _lines(key: str, value: Any, why: str | Mapping[str, str]) -> list[str]:
    if isinstance(why, Mapping):
        width = max(len(_value(entry)) for entry in value) + 1
        entries = [f"    {_value(entry) + ',':{width}}  {_comment(why.get(entry, ''))}" for entry in value]
        return [f"{key} = [", *map(str.rstrip, entries), "]"]
    return [f"{f'{key} = {_value(value)}':{REASON - 1}} {_comment(why)}".rstrip()]


def _value(value: Any) -> str:
    """As TOML writes it, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value(str(key))} = {_value(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _comment(text: str) -> str:
    return f"# {_plain(text)}" if text else ""


def _plain(text: str) -> str:
    """Nothing that a table holds may begin a line of its own."""
    return "".join(each if each.isprintable() else "?" for each in text)
