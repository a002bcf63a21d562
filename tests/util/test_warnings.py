"""Words about what takes long."""

import time

from fedcohort.util.warnings import told_after, warnings_to


def test_only_what_takes_long_is_told() -> None:
    said: list[str] = []
    with warnings_to(said.append):
        with told_after(5.0, "quick"):
            pass
        with told_after(0.01, "slow"):
            deadline = time.monotonic() + 5
            while not said and time.monotonic() < deadline:
                time.sleep(0.01)
    assert said == ["slow"]
