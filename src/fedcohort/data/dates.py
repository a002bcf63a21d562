"""Dates in cells, and the numbers that become of them: year, month, weekday, and days since 1970.

A year of four digits that comes first, or a month by name, leaves no doubt. Where all three are numbers and
the year comes last, only who wrote the table knows whether the day or the month is first.
"""

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import polars as pl

Order = Literal["ymd", "dmy", "mdy"]  # of year, month and day where all are numbers
PARTS = ("year", "month", "weekday", "days")
DAY = 86_400_000_000  # in microseconds
HOUR = r"(?:[T ]+(\d{1,2}:\d{2}(?::\d{2})?)(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?$"  # of whichever zone
YEAR_FIRST = r"^(\d{4})[./-](\d{1,2})[./-](\d{1,2})" + HOUR
YEAR_LAST = r"^(\d{1,2})[./-](\d{1,2})[./-](\d{4})" + HOUR
FORMS = {  # what a day looks like, and what Polars calls that
    "ymd": (YEAR_FIRST, "%Y-%m-%d"),
    "dmy": (YEAR_LAST, "%d-%m-%Y"),
    "mdy": (YEAR_LAST, "%m-%d-%Y"),
    "day, month by name": (r"^(\d{1,2})[. /-]+([A-Za-z]{3,9})[., /-]+(\d{4})" + HOUR, "%d-%B-%Y"),
    "month by name, day": (r"^([A-Za-z]{3,9})[. /-]+(\d{1,2})[., /-]+(\d{4})" + HOUR, "%B-%d-%Y"),
}
NEVER_IN_DOUBT = ("ymd", "day, month by name", "month by name, day")


def as_dates(column: "pl.Series", order: Order = "ymd") -> "pl.Series | None":
    """The column as days with hours, null where empty; None if it holds anything else, or nothing."""
    import polars as pl

    if isinstance(column.dtype, pl.Datetime):
        column = column.dt.replace_time_zone(None)  # the hour that clocks showed there
    if column.dtype in (pl.Date, pl.Datetime):
        return column.cast(pl.Datetime("us"))
    if column.dtype != pl.String or column.null_count() == len(column):
        return None
    cells, found = column.alias("cells"), pl.Series([None] * len(column), dtype=pl.Datetime("us"))
    for name in dict.fromkeys((*NEVER_IN_DOUBT, order)):
        shape, form = FORMS[name]
        if not cells.str.contains(shape).any():
            continue
        tidy = cells.str.replace(shape, "${1}-${2}-${3} ${4}").str.strip_chars()
        for hour in ("", " %H:%M", " %H:%M:%S"):
            read = tidy.str.to_datetime(form + hour, strict=False, time_unit="us")
            found = found.zip_with(found.is_not_null(), read)
    return found if found.null_count() == column.null_count() else None


def in_doubt(column: "pl.Series") -> bool:
    """Whether all cells are numbers with the year last: dates, but which number is the day?"""
    import polars as pl

    known = column.drop_nulls()
    return column.dtype == pl.String and len(known) > 0 and bool(known.str.contains(YEAR_LAST).all())


def date_numbers(dates: "pl.Series") -> np.ndarray:
    """``[n, 4]``: the PARTS of each date, NaN where there is none. Weeks begin with Monday, 1."""
    import polars as pl

    parts = [dates.dt.year(), dates.dt.month(), dates.dt.weekday(), dates.to_physical() / DAY]
    return np.stack([part.cast(pl.Float64).to_numpy() for part in parts], axis=1)
