"""Values that nobody expects, and damage to bytes."""

import datetime
from typing import Any

from fuzz.draw import Draw
from fuzz.guard import CANARY

INTS = (
    0, 1, 2, 3, 7, 100, 1000, -1, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64,
    10**30, -(2**63), -(10**30),
)  # fmt: skip
FLOATS = (
    0.0, 1.0, 1.5, -1.0, -0.0, 0.999999, 1e-9, 1e-40, 1e-300, 5e-324, 1e9, 1e25, 1e30, 1e39, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
TEXTS = (
    "", "a", " ", "\n", "\x00", "a\x1b[31mb", '=HYPERLINK("http://x","y")', "@SUM(A1)", "-2+3", "+1", "'",
    '"', "../../../../tmp/escaped", "/etc/passwd", "~root", "~nobody-here/x", "a/b", "..", "con", "x" * 300,
    "ä€\U0001f600", "\u202e", "\ufeff", "{0.__class__}", "{self}", "%s%n", "${HOME}", "$(touch x)", "`id`",
    f"{CANARY}:main", CANARY, "__import__('os').system('id')", "os:system", "nan", "inf", "1e999",
    "9" * 5000, "0x10", "true", "None", "<script>alert(1)</script>", "a,b", "a;b", "fedavg",
    "fedavg+fedavg", "a(", "a(b)", "a(b=)", "a(**b)", "*", "fedprox(mu=1e999)", "fedprox(mu=(1,2))",
    "fedprox(mu={1:2})", "fedprox(mu=-1)", "fedprox(mu={[]:1})", "uniform+" * 3000 + "uniform", "(" * 300,
    "[" * 5000, "fedprox(mu=" + "-" * 5000 + "1)", "a.b.c", "a\x00b", "clust-psi-pfl/fedprox",
    "fedlecc/haccs(rho=2)", "\\", "fedprox(mu=" + "9" * 5000 + ")", "²", "١٢٣", "1_000",
)  # fmt: skip
RUNS = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\x80",
    b"\n",
    b'"',
    b"{",
    b"9" * 400,
    b"nan",
    b"-",
)


def whole(draw: Draw) -> int:
    return draw.pick(INTS)


def text(draw: Draw) -> str:
    if draw.below(3):
        return draw.pick(TEXTS)
    points = [draw.below(0x250) if draw.below(4) else draw.below(0xD800) for _ in range(draw.below(8))]
    return "".join(map(chr, points))


def anything(draw: Draw) -> Any:
    """A value that TOML can write."""
    kind = draw.below(9)
    if kind < 5:
        return (draw.pick(INTS), draw.pick(FLOATS), text(draw), draw.pick((True, False)), [])[kind]
    if kind < 7:
        return [draw.pick(INTS) for _ in range(draw.below(4))]
    return draw.pick(({}, {"name": {"name": 1}}, [[["deep"]]], datetime.date(2020, 1, 1), ["", ""], [{}]))


def damaged(draw: Draw, content: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or put in."""
    changed = bytearray(content)
    for _ in range(1 + draw.below(4)):
        at = draw.below(len(changed) + 1)
        kind = draw.below(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.below(8)
        elif kind == 1:
            run = draw.pick(RUNS)
            changed[at : at + len(run)] = run
        elif kind == 2:
            del changed[at : at + 1 + draw.below(64)]
        elif kind == 3:
            changed[at:at] = changed[at : at + 1 + draw.below(64)]
        elif kind == 4:
            changed[at:at] = bytes(draw.below(256) for _ in range(1 + draw.below(8)))
        elif draw.below(3) == 0:
            del changed[at:]
    return bytes(changed)
