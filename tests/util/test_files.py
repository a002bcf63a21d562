"""Files that may be somebody else's."""

import tracemalloc
from pathlib import Path

import pytest

from fedcohort.util.errors import UserError
from fedcohort.util.files import LARGE, read_bytes, read_json, read_toml


def test_a_small_file_takes_little_memory_however_large_it_might_be(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"1,2,3")
    tracemalloc.start()
    try:
        assert read_bytes(path, LARGE) == b"1,2,3"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert read_bytes(path, start=4) == b"3"
    assert read_bytes(path, start=9) == b""


def test_a_file_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # takes no room
    with pytest.raises(UserError, match="it has 1,073,741,824 bytes"):
        read_bytes(path)


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\uDFFF": 1}', r'[["a\ude00\ud83d"]]'])
def test_half_a_character_is_no_text(text: str, tmp_path: Path) -> None:
    """It could be neither printed nor written."""
    path = tmp_path / "env.json"
    path.write_text(text)
    with pytest.raises(UserError, match="surrogates not allowed"):
        read_json(path)
    path.write_text(r'"\ud83d\ude00"')
    assert read_json(path) == "\U0001f600"


def test_settings_are_short(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = [" + "1," * 600_000 + "]")
    with pytest.raises(UserError, match="it has 1,200,006 bytes"):
        read_toml(path)
