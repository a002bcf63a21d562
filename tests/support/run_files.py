"""What a run leaves on disk, written by hand."""

from collections.abc import Callable
from pathlib import Path

CONFIG = 'name = "e"\nrounds = {rounds}\nseeds = [{seed}]\n\n[[method]]\nname = "{method}"\n'
HEADER = "round,scope,client,group,metric,value\n"

Write = Callable[..., Path]


def rows(number: int, accuracy: float, trained: int = 2) -> str:
    """What one round adds to a table: two clients asked, ``trained`` of them used."""
    asked = "".join(f"{number},cohort,north {k},0,trained,{float(k < trained)}\n" for k in range(2))
    return asked + (
        f"{number},round,,,bytes_up,{100.0 * number}\n"
        f"{number},global,,,accuracy,{accuracy}\n{number},grouping,,,groups,3.0\n"
    )
