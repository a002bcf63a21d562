"""The documentation site builds without a warning, lists every page and loads nothing from the network."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import site_pages

import fedcohort
import fedcohort.api
from fedcohort.core.method import METHODS
from support import REPOSITORY

LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``make docs``, into a folder of the test: long, so who asks for it is marked."""
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return out


@pytest.mark.deploy
def test_every_page_is_there_and_reached_from_the_navigation(site: Path) -> None:
    pages = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    for folder in ("examples", "studies"):
        pages |= {path.relative_to(REPOSITORY) for path in (REPOSITORY / folder).glob("*.md")}
    pages |= {Path("index.md"), Path("contributing.md"), Path("commands.md"), Path("python.md")}
    front = (site / "index.html").read_text()
    for page in pages:
        assert (site / page).with_suffix(".html").exists(), page
        assert f'href="{page.with_suffix(".html")}"' in front, f"{page} is not in the navigation"


@pytest.mark.deploy
def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    found = {url for page in site.rglob("*.html") for url in LOADED.findall(page.read_text())}
    assert found == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)


@pytest.mark.deploy
def test_search_works_from_disk(site: Path, browser: Any) -> None:
    """No worker may be started there, and no file but scripts be read."""
    context = browser.new_context()
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "methods" / "fedavg.html").as_uri())
    page.click("input[name=query]")
    page.keyboard.type("silhouette")
    found = page.locator(".md-search-result__item a").first
    found.wait_for()
    assert found.get_attribute("href").startswith("file:")
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    context.close()


@pytest.mark.deploy
def test_a_method_page_shows_its_source(site: Path) -> None:
    for name in METHODS.names():
        page = site / "methods" / f"{name}.html"
        if page.exists():  # not those that other tests registered
            assert 'id="source"' in page.read_text(), name


@pytest.mark.deploy
def test_the_reference_names_every_command_and_every_python_name(site: Path) -> None:
    commands, python = (site / "commands.html").read_text(), (site / "python.html").read_text()
    for command in ("demo", "run", "diagnose", "watch", "serve", "methods", "new method"):
        assert f'id="fedcohort-{command.replace(" ", "-")}"' in commands
    for name in fedcohort.__all__:
        assert f"fc.{name}" in python


@pytest.mark.parametrize("module", ["python", "api"])
def test_the_reference_says_something_of_every_name(module: str) -> None:
    """Beside its heading, how it is written, and where it lives."""
    page = {"python": site_pages.python_page, "api": site_pages.api_page}[module]()
    names = {"python": fedcohort, "api": fedcohort.api}[module].__all__
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == names
    shown = re.compile(r"```.*?```|^\*[\w.]+\*$", re.MULTILINE | re.DOTALL)
    said = {name: shown.sub("", text) for name, text in sections.items()}
    assert [name for name, text in said.items() if not text.strip()] == []


@pytest.mark.deploy
def test_links_out_of_the_docs_are_pages_or_plain_text(site: Path) -> None:
    for page in site.rglob("*.html"):
        targets = re.findall(r'href="([^"#?]+\.(?:md|py|toml))"', page.read_text())
        assert not targets, f"{page.name} links to {targets}"
