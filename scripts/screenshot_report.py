"""Makes the pictures of docs/report.md: parts of the report of a comparison, as Chromium shows them.

.venv/bin/fedcohort demo && .venv/bin/python scripts/screenshot_report.py runs/demo-001
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import sync_playwright

from fedcohort.report import write_report

DOCS = Path(__file__).parents[1] / "docs"


class Picture(NamedTuple):
    """Neighbouring cards of a tab."""

    name: str
    address: str
    first: str
    last: str


PICTURES = (
    Picture("report-summary.png", "#/summary", "In short", "All methods by global accuracy"),
    Picture(
        "report-served.png",
        "#/served?method=clust_psi_pfl",
        "Who is badly served, and why?",
        "Every client, and what luck allows",
    ),
    Picture("report.png", "#/methods", "Accuracy by round (global)", "What accuracy costs (global)"),
)


def main(comparison: Path) -> None:
    path = shutil.which("chromium")
    assert path is not None, "install Chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = write_report([comparison], Path(folder) / "report.html")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        for picture in PICTURES:
            page = browser.new_page(viewport={"width": 900, "height": 700}, device_scale_factor=1.5)
            page.goto(f"{page_file.as_uri()}{picture.address}")
            titles = (picture.first, picture.last)
            first, last = (page.locator("article:visible", has_text=title).bounding_box() for title in titles)
            clip = {
                "x": first["x"],
                "y": first["y"],
                "width": first["width"],
                "height": last["y"] + last["height"] - first["y"],
            }
            page.screenshot(path=DOCS / picture.name, full_page=True, clip=clip)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
