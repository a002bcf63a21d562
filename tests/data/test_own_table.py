"""One client's table is read as the table of all would be."""

from pathlib import Path

import pytest

from fedcohort.data.own_table import own_table

ROWS = "site,number,age,sick\nnorth,1,40,yes\nnorth,2,50,no\n"
ALL = {"source": "table", "path": "all.csv", "client": "site", "label": "sick", "exclude": ["number"]}


@pytest.mark.parametrize("client", ["site", "@file"])
def test_whose_rows_they_are_is_left_out(client: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(ROWS)
    table, frame = own_table({**ALL, "client": client}, tmp_path / "mine.csv", drop_incomplete=True)
    features = [column.name for column in table.learn(frame).columns]
    assert features == (["age"] if client == "site" else ["age", "site"])
    assert (table.client, table.drop_incomplete) == (None, True)


def test_options_of_another_source_are_not_a_tables(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(ROWS)
    table, frame = own_table({"source": "digits"}, tmp_path / "mine.csv", label="sick")
    assert "site" in frame.columns
    assert table.label == "sick"
