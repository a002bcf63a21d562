"""The terminal rendering: complete, ordered, and no wider than promised."""

import io

import numpy as np
from rich.console import Console

from fedcohort.cli.diagnosis_tables import show
from fedcohort.diagnosis import diagnose


def printed(counts: np.ndarray, **options) -> str:
    console = Console(file=io.StringIO(), width=options.pop("width", 100))
    names = options.pop("clients", None)
    show(diagnose(counts, clients=names), console, **options)
    return console.file.getvalue()  # type: ignore[attr-defined]


def federation(clients: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return np.array([random.multinomial(10_000, random.dirichlet([0.2] * 12)) for _ in range(clients)])


def test_every_part_is_printed_within_the_width() -> None:
    names = [f"hospital of a very long name number {index}" for index in range(40)]
    text = printed(federation(40), clients=names, width=140)
    assert max(map(len, text.splitlines())) <= 100
    for part in ("Verdict", "WPSI", "Hellinger", "clust_psi_pfl", "fedlecc", "silhouette", "advice"):
        assert part in text


def test_the_most_deviating_clients_come_first_and_the_rest_is_counted() -> None:
    counts = np.vstack([np.tile([50, 50], (20, 1)), [[100, 0]]])
    names = [f"usual{index}" for index in range(20)] + ["odd"]
    text = printed(counts, clients=names)
    table = text[text.index("most deviating") :]
    assert table.index("odd") < table.index("usual0")
    assert "and 6 more" in text
    assert "usual19" not in table[: table.index("and 6 more")]
    assert "and 6 more" not in printed(counts, clients=names, all_clients=True)


def test_empty_clients_and_odd_names_do_no_harm() -> None:
    text = printed(np.array([[5, 1], [0, 0], [1, 5]]), clients=["[red]a[/red]", "none", "[/]"])
    assert "[red]a[/red]" in text
    assert "1 without samples" in text


def test_known_iid_clients_are_compared_with_those_found() -> None:
    counts = np.array([[50, 50]] * 5 + [[90, 5], [5, 90]])
    console = Console(file=io.StringIO(), width=100)
    show(diagnose(counts, iid=np.arange(7) < 5), console)
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "IID clients, accuracy" in text
    assert "IID clients" not in printed(counts)
