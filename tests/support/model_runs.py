"""Runs whose models are exported: data of every kind in files, and what the run itself answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch

from fedcohort.cli.progress import Silent
from fedcohort.core.served import ServingModels
from fedcohort.data.columns import row_order
from fedcohort.data.locate import Places
from fedcohort.data.tables import read_table
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import run
from fedcohort.runs.stored import FinishedRun

WORDS = ["pain", "chest", "no", "fever", "cough", "well"]


def write_data(kind: str, folder: Path) -> dict[str, Any]:
    """A file of 96 rows of four clients, and the settings that read it."""
    draw = np.random.default_rng(0)
    y, site = draw.integers(0, 3, 96), np.arange(96) % 4
    path = folder / ("rows.csv" if kind in ("table", "dated", "texts") else "rows.npz")
    if kind == "table":
        dose = [f"{value:.3f}" if draw.random() > 0.1 else "" for value in draw.normal(y, 1)]
        columns = {"dose": dose, "age": draw.normal(60 + 5 * y, 9), "sex": draw.choice(["f", "m"], 96)}
        notes = [" ".join(draw.choice(WORDS, 4)) for _ in y]
        named = {"site": [f"s{k}" for k in site], "outcome": [f"c{label}" for label in y]}
        pl.DataFrame({**columns, "note": notes, **named}).write_csv(path)
        how = {"text": ["note"], "text_width": 8, "missing": "mean"}
        return {"source": "table", "path": str(path), "label": "outcome", "client": "site", **how}
    if kind == "dated":  # as a spreadsheet writes it where the comma is the decimal sign
        seen = [f"{1 + n % 28}.{1 + n % 12}.20{10 + n % 9}" if n % 10 else "" for n in range(96)]
        dose = [
            f"{value:.3f}".replace(".", ",") if n % 7 else "" for n, value in enumerate(draw.normal(y, 1))
        ]
        pay = [f"{value:.2f}".replace(".", ",") for value in draw.normal(100 * y, 20)]
        columns = {"row": range(96), "seen": seen, "dose": dose, "sex": draw.choice(["f", "m"], 96)}
        pl.DataFrame({**columns, "site": [f"s{k}" for k in site], "pay": pay}).write_csv(path, separator=";")
        how = {"exclude": ["row"], "date_order": "dmy", "bins": 3}
        return {"source": "table", "path": str(path), "label": "pay", "client": "site", **how}
    if kind == "texts":
        notes = [" ".join([WORDS[label], *draw.choice(WORDS, int(draw.integers(1, 7)))]) for label in y]
        pl.DataFrame({"note": notes, "site": site, "outcome": y}).write_csv(path)
        how = {"text": "note", "label": "outcome", "client": "site", "length": 5, "words": 7}
        return {"source": "text", "path": str(path), **how}
    if kind == "images":
        x = draw.integers(0, 256, (96, 3, 8, 8), dtype=np.uint8) // 4 + (60 * y[:, None, None, None]).astype(
            "u1"
        )
    else:
        x = draw.normal(y[:, None], 1, (96, 5))
    np.savez(path, x=x, y=y, client=site)
    return {"source": "npz", "path": str(path)}


def asked(kind: str, folder: Path, method: str | list[str], **changes: Any) -> Experiment:
    models = {"texts": {"name": "embedding_dense", "dimension": 4}, "images": "cifar_cnn"}
    table = {
        "rounds": 2,
        "cohort": 1.0,
        "data": {**write_data(kind, folder), **changes.pop("data", {})},
        "model": models.get(kind, {"name": "mlp", "widths": [6]}),
        "local": {"lr": 0.1, "batch": 8, **changes.pop("local", {})},
        "split": {"validation": 0.2},
        **changes,
    }
    return Experiment.of({**table, "partition": {"name": "natural"}, "method": method})


class Known(NamedTuple):
    """Some client's rows as they stand in the file, and what its run answers."""

    rows: Any
    answers: np.ndarray


def finished(experiment: Experiment, out: Path) -> FinishedRun:
    _, outcomes = compare(experiment, out, Silent())
    return FinishedRun.read(outcomes[0].directory)


def raw_rows(experiment: Experiment) -> Any:
    """All rows of the file in the order in which the source gives them."""
    data, dataset = experiment.data, experiment.dataset
    if data["source"] == "npz":
        return np.load(data["path"])["x"]
    if data["source"] not in ("table", "text"):
        return dataset.x.numpy()
    frame = read_table(data["path"], Places.of())
    columns = dataset.provenance["preparation"].reads
    if data.get("drop_incomplete"):
        frame = frame.drop_nulls([*columns, data["label"], data["client"]])
    return frame[row_order(frame, *columns, data["label"], data["client"])]


def answered_by_run(experiment: Experiment) -> list[Known]:
    """Of each client, its training rows and its run's answers to them; the run is made again for that."""
    (method,), (seed,) = experiment.methods, experiment.seeds
    result = run(method, experiment.task(seed), experiment.rounds, engine=ReferenceEngine)
    task = experiment.task(seed).for_method(method)
    if method.pooled:  # whose data were whose, all the same
        task = replace(task, federation=experiment.federation(seed))
    service = ServingModels.of(method, result.state, task, ReferenceEngine(task))
    raw, train = raw_rows(experiment), experiment.federation(seed).train
    known = []
    for client in range(train.num_clients):
        rows = train.rows(client)
        whose = torch.full((len(rows),), client)
        answers = service.probabilities(experiment.task(seed).model, train.x[rows], whose)
        known.append(Known(raw[rows.numpy()], answers.numpy()))
    return known
