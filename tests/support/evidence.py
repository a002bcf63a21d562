"""A table of evidence that is small enough to be worked out by hand."""

from collections.abc import Mapping

from fedcohort.runs.advice.evidence import BASE, ERROR, FEATURES, GAIN, NAMES, Measured

TRUSTED = {"any": True, "one_model": True, "noised": True}
RATES = {name: {"digits": 0.1} for name in ("fedavg", "scaffold", "fedprox", "ifca")}


def table(*federations: tuple[float, Mapping[str, float]], epsilon: str = "", **trusted: bool) -> Measured:
    """Federations that differ in skew alone, with what methods gained there."""
    rows = []
    for skew, gains in federations:
        row = dict(zip(NAMES, ("digits", f"dirichlet(alpha={skew})", "20", "0.1", epsilon), strict=True))
        row |= dict.fromkeys(FEATURES, "2") | {"emd_share": str(skew), BASE: "0.5"}
        for method, gain in {BASE: 0.0, **gains}.items():
            row |= {GAIN + method: str(gain), ERROR + method: "0.01"}
        rows.append(row)
    return Measured.of(rows, {"rates": RATES, "trusted": {**TRUSTED, **trusted}})
