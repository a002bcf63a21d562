"""Words of sentences that tell numbers."""


def counted(number: float, what: str) -> str:
    """``1 class``, ``2 classes``, ``1,000 rounds``; ``what`` is one of them, perhaps with words before it."""
    if round(number) == 1:
        return f"1 {what}"
    return f"{number:,.0f} {what}{'es' if what.endswith('s') else 's'}"
