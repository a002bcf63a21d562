"""The committed examples are what their scripts say, and what they teach is true."""

import importlib
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedcohort.core.method import make
from fedcohort.runs.experiment import Experiment
from fedcohort.testing import check_method
from support import REPOSITORY

SCRIPT = runpy.run_path(str(REPOSITORY / "scripts" / "run_examples.py"))
EXAMPLES: Path = SCRIPT["EXAMPLES"]


@pytest.mark.parametrize("name", SCRIPT["NAMES"])
def test_the_committed_page_shows_the_script_with_output(name: str) -> None:
    """Text and code in their order, and something printed after the code; the numbers are the machine's."""
    page, at = (EXAMPLES / f"{name}.md").read_text(), 0
    for cell in SCRIPT["cells"]((EXAMPLES / f"{name}.py").read_text()):
        piece = SCRIPT["shown"](cell)
        assert piece in page[at:], f"run 'make examples': {name}.md does not have {piece[:60]!r} in its place"
        at = page.index(piece, at) + len(piece)
    assert page.count("```text\n") >= 3


@pytest.mark.deploy
@pytest.mark.parametrize("name", SCRIPT["NAMES"])
def test_it_still_runs(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCOHORT_DATA", str(real_data))
    assert SCRIPT["written"](name).count("```text\n") >= 3


def test_every_example_is_run_and_listed() -> None:
    written = {path.stem for path in EXAMPLES.glob("*.md")}
    assert written == set(SCRIPT["NAMES"])


def test_cells_are_text_or_code() -> None:
    text = "# %% [markdown]\n# # Title\n#\n# words\n\n# %%\nx = 1\nprint(x)\n"
    prose, code = SCRIPT["cells"](text)
    assert SCRIPT["shown"](prose) == "# Title\n\nwords"
    assert SCRIPT["shown"](code) == "```python\nx = 1\nprint(x)\n```"
    assert SCRIPT["printed"](code.text, Path("x.py"), {}) == "1"


def test_the_hospitals_are_diagnosed_as_the_page_says(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything before training is run again, and gives the committed words."""
    monkeypatch.setenv("FEDCOHORT_DATA", str(real_data))
    path = EXAMPLES / "hospitals.py"
    code = [cell.text for cell in SCRIPT["cells"](path.read_text()) if cell.is_code]
    names: dict[str, Any] = {"__file__": str(path)}
    page = (EXAMPLES / "hospitals.md").read_text()
    for cell in code[:2]:
        printed = SCRIPT["printed"](cell, path, names)
        assert printed
        assert f"```text\n{printed}\n```" in page


def test_absent_data_are_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run_examples.py", "hospitals"])
    before = (EXAMPLES / "hospitals.md").read_text()
    with pytest.raises(SystemExit) as end:
        SCRIPT["main"]()
    assert end.value.code
    said = capsys.readouterr().err
    assert "no file matches heart_disease_uci/*.data" in said
    assert "$FEDCOHORT_DATA" in said
    assert (EXAMPLES / "hospitals.md").read_text() == before


def test_the_example_method_is_its_equation_and_keeps_the_contract(elsewhere: Path) -> None:
    """Counts 3, 1 and 0 of three classes: shares 4/7, 2/7 and 1/7 with one sample more of each."""
    shutil.copy(EXAMPLES / "logit_adjusted.py", elsewhere)
    importlib.import_module("logit_adjusted")
    client: Any = SimpleNamespace(counts=torch.tensor([3, 1, 0]))
    part: Any = make("logit_adjusted", {"tau": 2.0})[0]
    assert torch.allclose(part.logits(client).shift, 2 * torch.tensor([4 / 7, 2 / 7, 1 / 7]).log())
    check_method("logit_adjusted")


def test_the_example_experiment_is_valid() -> None:
    experiment = Experiment.read(EXAMPLES / "fashion_mnist.toml")
    assert len(experiment.methods) == 5
