"""The table of one client, read as a table of all clients' rows would be."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.data.locate import Places
from fedcohort.data.sources import COMMON, places_in
from fedcohort.data.sources.table import Table
from fedcohort.data.tables import read_table
from fedcohort.util.settings import build

if TYPE_CHECKING:
    import polars as pl

OWN = {"client", "empty", "drop_incomplete"}  # what a client decides for itself


def own_table(data: Mapping[str, Any], path: str | Path, **own: Any) -> tuple[Table, "pl.DataFrame"]:
    """With the options ``data`` of the experiment and its ``own``. All rows are the same client's, so the
    column that would tell clients apart is left out: as a feature it would be another one everywhere."""
    given = data if data["source"] == "table" else {}
    others = {*COMMON, *places_in(data), *OWN}
    options = {key: value for key, value in given.items() if key not in others}
    table = build(Table, {**options, **own, "path": str(path)}, "data")
    frame = read_table(table.path, Places.of(), table.layout)
    whose = given.get("client")
    return table, frame.drop(whose, strict=False) if whose else frame
