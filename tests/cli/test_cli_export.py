"""``export`` and ``predict``: from a finished run to answers in a file, and every mistake in one sentence."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch

from fedcohort.cli.app import main
from fedcohort.cli.progress import Silent
from fedcohort.runs.comparison import compare
from fedcohort.runs.export.served import Whose, served_model
from fedcohort.runs.recorder import read_table
from fedcohort.runs.stored import FinishedRun
from fedcohort.serving.model import load_model
from support import REPOSITORY
from support.cli_calls import Answer, Cli
from support.model_runs import answered_by_run, asked, finished

TRAINING = ("core", "engines", "methods", "presets", "runs", "flower", "report", "diagnosis")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run on a table of four sites, once for all tests."""
    folder = tmp_path_factory.mktemp("trained")
    return finished(asked("table", folder, "fedavg"), folder / "runs")


@pytest.fixture(scope="module")
def written(trained: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``export`` makes of it, once for all tests that begin there."""
    folder = tmp_path_factory.mktemp("written") / "model"
    with pytest.raises(SystemExit, match="None"):
        main(["export", str(trained.directory), "--out", str(folder)])
    return folder


@pytest.fixture
def table(trained: FinishedRun, here: Path) -> Path:
    """The directory of a copy of the run; its rows are here, too."""
    before = trained.directory.parents[1]
    shutil.copy(before.with_name("rows.csv"), here)
    return shutil.copytree(before, here / "runs") / trained.directory.relative_to(before)


@pytest.fixture
def exported(table: Path, written: Path, here: Path) -> Path:
    """What ``export --out model`` made of the run."""
    return shutil.copytree(written, here / "model")


def refused(answer: Answer, words: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err


def test_from_a_run_to_answers(table: Path, here: Path, cli: Cli) -> None:
    exported = cli("export", str(table), "--out", "model")
    assert exported.code == 0
    assert exported.out == "model: the model for all 4 clients\n"
    wrong = exported.err.splitlines()  # one round is too few
    assert wrong[0].startswith(
        "warning: fedavg answers 25.0% right, and always giving the most common answer"
    )
    card = (here / "model" / "README.md").read_text()
    assert all(f"**{sentence.removeprefix('warning: ')}**" in card for sentence in wrong)
    files = {"README.md", "model.json", "model.pt2", "model.safetensors"}
    assert {path.name for path in (here / "model").iterdir()} == files
    card = (here / "model/README.md").read_text()
    fingerprint = json.loads((table / "env.json").read_text())["fingerprint"]
    accuracy = json.loads((table / "result.json").read_text())["global.accuracy"]
    recall = json.loads((table / "result.json").read_text())["global.accuracy[c0]"]
    for words in (
        "`fedavg`, seed 0",
        fingerprint,
        f"{accuracy:.1%} (95 %",
        f"| c0 | {recall:.1%} |",
        "must not",
    ):
        assert words in card

    rows = pl.read_csv("rows.csv").with_row_index("row").select("row", "sex", "note", "dose", "age")
    rows.with_columns(sex=pl.Series(["x", *rows["sex"][1:]])).write_csv("new.csv")
    assert cli("predict", "model", "new.csv", "--out", "sure.csv").code == 0
    highest = pl.read_csv("sure.csv").select(pl.max_horizontal("p_c0", "p_c1", "p_c2")).to_series()
    least = f"{highest.median():.3f}"
    answered = cli("predict", "model", "new.csv", "--out", "answers.csv", "--id", "row", "--threshold", least)
    assert answered.code == 0
    assert "column 'sex' has a category that training never saw in 1 of 96 rows ('x')" in answered.err
    answers = pl.read_csv("answers.csv")
    assert answers.columns == ["row", "prediction", "p_c0", "p_c1", "p_c2"]
    assert answers["row"].to_list() == list(range(96))
    chances = answers.select("p_c0", "p_c1", "p_c2").to_numpy()
    best = [f"c{place}" for place in chances.argmax(1)]
    assert pl.read_csv("sure.csv")["prediction"].to_list() == best
    sure = [name if chance >= float(least) else None for name, chance in zip(best, highest, strict=True)]
    assert answers["prediction"].to_list() == sure
    assert 0 < sure.count(None) < 96
    assert f"96 rows answered by the model for all 4 clients, {sure.count(None)} without" in answered.out


def test_the_program_for_others_gives_the_same(exported: Path, here: Path, cli: Cli) -> None:
    model, program = load_model("model"), torch.export.load("model/model.pt2").module()
    for rows in (1, 7):
        x = torch.randn(rows, *model.architecture.shape)
        x[0, 0] = float("nan")  # a gap
        torch.testing.assert_close(program(x), model(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "method", "model"),
    [("npz", "fedconcat(groups=2, rounds=1)", "mlp"), ("texts", "fedavg", "embedding_lstm")],
)
def test_so_it_does_for_merged_and_recurrent_networks(
    kind: str, method: str, model: str, here: Path, cli: Cli
) -> None:
    experiment = asked(kind, here, method, model=model)
    _, outcomes = compare(experiment, here / "runs", Silent())
    assert cli("export", str(outcomes[0].directory), "--out", "model").code == 0
    served, program = load_model("model"), torch.export.load("model/model.pt2").module()
    for known in answered_by_run(experiment):
        np.testing.assert_allclose(served.predict_proba(known.rows), known.answers, rtol=0, atol=1e-6)
        (x,) = served._examples(known.rows)
        np.testing.assert_allclose(program(x).softmax(1).detach(), known.answers, rtol=0, atol=1e-6)


def test_the_best_of_a_comparison(here: Path, cli: Cli) -> None:
    methods, seeds = ["fedavg", "fedprox(mu=100)", "centralised"], (0, 1, 2)
    experiment = asked("npz", here, methods, seeds=list(seeds), rounds=6)
    home, outcomes = compare(experiment, here / "runs", Silent())
    right = {(each.method, each.seed): each.metrics["global.accuracy"] for each in outcomes}
    means = {name: sum(right[name, seed] for seed in seeds) for name, _ in right if name != "centralised"}
    best = max(means, key=lambda name: means[name])
    seed = max(seeds, key=lambda number: right[best, number])
    assert min(means.values()) < means[best] < sum(right["centralised", number] for number in seeds)
    assert min(right[best, number] for number in seeds) < right[best, seed]
    told = cli("export", str(home), "--out", "model").out
    assert f"Chosen: {best}, the best of 2 methods, with seed {seed}, its best of 3, by" in told
    assert "flatters" in told
    assert f"`{best}`, seed {seed}" in (here / "model/README.md").read_text()


def test_groups_and_newcomers(here: Path, cli: Cli) -> None:
    experiment = asked("npz", here, "clust_psi_pfl(max_groups=2)")
    _, outcomes = compare(experiment, here / "runs", Silent())
    run = str(outcomes[0].directory)
    refused(cli("export", run, "--out", "m"), "--client, --group 0 to 1 or --newcomer")
    refused(cli("export", run, "--out", "m", "--client", "0", "--group", "1"), "one of --client")
    refused(cli("export", run, "--out", "m", "--client", "nobody"), "no client 'nobody'")
    refused(cli("export", run, "--out", "m", "--group", "2"), "no group 2")
    counts = dict(zip("012", experiment.federation(0).counts[3].tolist(), strict=True))
    pl.DataFrame({"client": "new", **counts}).write_csv("counts.csv")
    joined = json.loads(cli("assign", run, "--counts", "counts.csv", "--json").out)["clients"][0]["group"]
    near = cli("export", run, "--out", "m", "--newcomer", "counts.csv")
    assert f"the model for group {joined} " in near.out
    assert "may serve this newcomer badly" not in near.err
    assert f"the model for group {joined} " in cli("export", run, "--out", "n", "--group", str(joined)).out
    assert (here / "m/model.safetensors").read_bytes() == (here / "n/model.safetensors").read_bytes()
    pl.DataFrame([{"client": "new", **counts}, {"client": "newer", **counts}]).write_csv("counts.csv")
    refused(cli("export", run, "--out", "o", "--newcomer", "counts.csv"), "tells of 2 newcomers")


def test_who_is_unlike_all_clients_is_told_so(here: Path, cli: Cli) -> None:
    """Also where there is one model, which serves it in any case."""
    _, outcomes = compare(asked("npz", here, "fedavg"), here / "runs", Silent())
    pl.DataFrame({"client": ["new"], "0": [0], "1": [0], "2": [400]}).write_csv("counts.csv")
    answer = cli("export", str(outcomes[0].directory), "--out", "m", "--newcomer", "counts.csv")
    assert answer.code == 0
    assert (
        "the labels of counts.csv are farther from every group's than those of all its members" in answer.err
    )


def test_one_model_is_every_newcomers_whoever_told_labels(here: Path, cli: Cli) -> None:
    experiment = asked("npz", here, "fedavg", privacy={"counts": "withheld"}, data={"scale": "none"})
    _, outcomes = compare(experiment, here / "runs", Silent())
    pl.DataFrame({"client": ["new"], "0": [3], "1": [4], "2": [0]}).write_csv("counts.csv")
    answer = cli("export", str(outcomes[0].directory), "--out", "m", "--newcomer", "counts.csv")
    assert answer.code == 0, answer.err
    assert (here / "m/model.safetensors").exists()


def test_a_card_tells_of_those_whom_it_serves(table: Path, here: Path, cli: Cli) -> None:
    """The accuracy of one client, by its own test samples."""
    own = [row for row in read_table(table / "table.csv") if row.scope == "personal" and row.client == "s1"]
    numbers = {row.metric: row.value for row in own}
    told = cli("export", str(table), "--out", "model", "--client", "s1").out
    assert told == "model: the model for client s1\n"
    card = (here / "model/README.md").read_text()
    assert "- clients it serves: `s1`\n" in card
    size, right = int(numbers["test_size"]), numbers["accuracy"]
    assert f"on the {size} test samples of the client that it serves: {right:.1%} (95 % interval" in card


def test_mistakes_are_one_sentence(table: Path, exported: Path, here: Path, cli: Cli) -> None:
    refused(cli("export", str(table), "--out", "model"), "nothing is overwritten")
    refused(cli("export", str(here), "--out", "m"), "is not the directory of a run")
    refused(cli("predict", str(here), "rows.csv", "--out", "a.csv"), "no model folder")
    refused(cli("predict", "model", "gone.csv", "--out", "a.csv"), "gone.csv")
    refused(cli("predict", "model", "rows.csv", "--out", "a.csv", "--id", "patient"), "no column 'patient'")
    refused(cli("predict", "model", "rows.csv", "--out", "gone/a.csv"), "choose another --out")
    for taken in ("rows.csv", "model/model.json"):
        refused(cli("predict", "model", "rows.csv", "--out", taken), "is there already: choose another --out")
    pl.read_csv("rows.csv").drop("age", "note").write_csv("short.csv")
    refused(cli("predict", "model", "short.csv", "--out", "a.csv"), "no column 'age', 'note'")
    Path("empty.csv").write_text("age,sex,note,dose\n")
    refused(cli("predict", "model", "empty.csv", "--out", "a.csv"), "holds no rows")
    facts = json.loads(Path("model/model.json").read_text())
    Path("model/model.json").write_text(json.dumps({**facts, "format": 9}))
    refused(cli("predict", "model", "rows.csv", "--out", "a.csv"), "format 9")
    Path("model/model.json").write_text("{")
    refused(cli("predict", "model", "rows.csv", "--out", "a.csv"), "damaged")
    assert not Path("a.csv").exists()
    (table / "result.json").unlink()
    refused(cli("export", str(table), "--out", "m"), "not finished")
    refused(cli("export", str(table.parent), "--out", "m"), "no model yet")


def test_a_run_s_own_code_needs_trust(here: Path, cli: Cli) -> None:
    experiment = asked("npz", here, "fedavg", model="support.networks:normed")
    _, outcomes = compare(experiment, here / "runs", Silent())
    run = str(outcomes[0].directory)
    refused(cli("export", run, "--out", "model"), "--trust")
    assert cli("export", run, "--out", "model", "--trust").code == 0
    refused(cli("predict", "model", "rows.npz", "--out", "a.csv"), "--allow")
    allowed = cli("predict", "model", "rows.npz", "--out", "a.csv", "--allow", "support.networks:normed")
    assert allowed.code == 0
    assert pl.read_csv("a.csv").height == 96


def test_what_a_client_of_a_deployment_keeps(exported: Path, here: Path, cli: Cli) -> None:
    load_model("model").save(here / "flower-north/fedcohort/aa/north/served")
    assert "the model that served" in cli("export", "flower-north", "--out", "mine").out
    refused(cli("export", "flower-north", "--out", "m", "--group", "0"), "leave the options out")
    answers = [cli("predict", name, "rows.csv", "--out", f"{name}.csv").code for name in ("model", "mine")]
    assert answers == [0, 0]
    assert Path("model.csv").read_bytes() == Path("mine.csv").read_bytes()


class Fresh(NamedTuple):
    """A process that predicted and then exported: the rooms it was in before it exported, and its folders."""

    rooms: set[str]
    here: Path
    shared: set[str]


def caches() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("torchinductor_*")}


@pytest.fixture(scope="module")
def fresh(trained: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    here = tmp_path_factory.mktemp("fresh")
    shutil.copy(trained.directory.parents[2] / "rows.csv", here)
    served_model(trained, Whose()).model.save(here / "model")
    (here / "theirs").mkdir()
    code = (
        "import sys, tempfile; tempfile.tempdir = 'theirs'\nfrom fedcohort.cli.app import main\n"
        "try: main(['predict', 'model', 'rows.csv', '--out', 'a.csv'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*(name for name in sys.modules if name.startswith('fedcohort.')), flush=True)\n"
        "main(['export', sys.argv[1], '--out', 'again'])"
    )
    own = {"PYTHONPATH": str(REPOSITORY / "src"), "TORCHINDUCTOR_CACHE_DIR": str(here / "cache")}
    before, words = caches(), [sys.executable, "-c", code, str(trained.directory)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, cwd=here, env={**os.environ, **own}
    )
    modules = done.stdout.splitlines()[-2].split()
    return Fresh({name.split(".")[1] for name in modules}, here, caches() - before)


@pytest.mark.deploy
def test_predictions_need_no_part_of_training(fresh: Fresh) -> None:
    assert "serving" in fresh.rooms
    assert fresh.rooms.isdisjoint(TRAINING)


@pytest.mark.deploy
def test_no_folder_that_others_can_make_is_read(fresh: Fresh) -> None:
    """PyTorch's cache is below /tmp, under a name that can be guessed."""
    assert (fresh.here / "again/model.pt2").exists()
    assert not any((fresh.here / "theirs").iterdir())
    assert not (fresh.here / "cache").exists()
    assert not fresh.shared


FORMULA, ORDER = '=HYPERLINK("http://x","y")', "a\x1b]0;b\x07"
TAG = "a`<img src=http://x>|[b](http://x)"


def forge(folder: Path, **changes: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**facts, **changes}))


def test_answers_are_no_formulas_and_no_orders(exported: Path, here: Path, cli: Cli) -> None:
    """Classes of somebody else's model, in a spreadsheet and on a terminal."""
    forge(here / "model", classes=[FORMULA, ORDER, "a\\x1b]0;b\\x07"], serves=ORDER)
    answer = cli("predict", "model", "rows.csv", "--out", "answers.csv")
    assert answer.code == 0
    assert answer.out == "answers.csv: 96 rows answered by the model for a\\x1b]0;b\\x07\n"
    head, *lines = csv.reader((here / "answers.csv").read_text().splitlines())
    mark = sha256(ORDER.encode()).hexdigest()[:8]
    assert head == ["prediction", f"p_'{FORMULA}", rf"p_a\x1b]0;b\x07 #{mark}", r"p_a\x1b]0;b\x07"]
    assert {line[0] for line in lines} <= {name.removeprefix("p_") for name in head[1:]}
    long = ["x" * 300, "y" * 300, "z"]
    forge(here / "model", classes=long)
    cli("predict", "model", "rows.csv", "--out", "long.csv")
    assert {*pl.read_csv("long.csv")["prediction"]} <= {*long}  # nobody's name is cut


def test_a_card_holds_no_tags_and_no_links(table: Path, here: Path, cli: Cli) -> None:
    """What a run directory says of itself was perhaps written by somebody else."""
    facts = json.loads((table / "env.json").read_text())
    facts |= {"started": f"now\n\n{TAG}", "fingerprint": TAG}
    (table / "env.json").write_text(json.dumps(facts))
    result = json.loads((table / "result.json").read_text())
    (table / "result.json").write_text(json.dumps({**result, f"global.accuracy[{TAG}]": 0.5}))
    assert cli("export", str(table), "--out", "model").code == 0
    card = (here / "model/README.md").read_text()
    assert card.count("img") == 3
    inert = r"a\`\<img src=http://x>\|\[b\](http://x)"
    assert f"started now\\\\x0a\\\\x0a{inert}\n" in card
    assert f"| {inert} | 50.0% |" in card
    assert "`a'<img src=http://x>|[b](http://x)`" in card


def test_what_a_client_kept_may_be_anybodys(exported: Path, here: Path, cli: Cli) -> None:
    kept = here / "home/fedcohort/0123abcd/a/served"
    shutil.copytree(here / "model", kept)
    forge(kept, serves=ORDER)
    assert cli("export", "home", "--out", "a").out == "a: the model that served a\\x1b]0;b\\x07 last\n"
    for architecture in ([], {}, "x"):
        forge(kept, architecture=architecture)
        for trust in ((), ("--trust",)):
            refused(cli("export", "home", "--out", "b", *trust), "model.json is damaged")
