"""``advise``: which method to train with, by what others did on federations like this one."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.cli.options import AsJson, Client, Label, Partition, Source
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from fedcohort.runs.advice import Advice

COHORT = 0.1  # as in experiment files


def advise(
    source: Source,
    client: Client = None,
    label: Label = None,
    partition: Partition = None,
    one_model: Annotated[
        bool, typer.Option("--one-model", help="Only methods that give all clients the same model.")
    ] = False,
    cohort: Annotated[
        str | None,
        typer.Option(
            help=f"Clients a round: a number like 5, or a share like 0.2; else the file's, or {COHORT}."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Clients add Laplace noise of this privacy to the label counts that they reveal."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For partitions and noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Which method to train with, how much it should gain over FedAvg, and why: from our own runs.

    The federations most like yours are looked up in a table of measured ones, by what label counts tell.
    Nothing is trained and no example is read; docs/advice.md says how often the advice was right.

    [bold]Counts[/bold], one row per client: fedcohort advise counts.csv --client site --cohort 5

    [bold]Samples[/bold], one row each: fedcohort advise patients.csv --client hospital --label outcome

    [bold]One model for all[/bold], and noised counts: fedcohort advise counts.csv --one-model --epsilon 1

    [bold]Then[/bold]: name the method in the experiment file; method = "auto" does both in one step.
    """
    share = None if cohort is None else _number(cohort)
    if partition is None and source.endswith(".toml"):
        found = _of_experiment(source, share, epsilon, one_model, seed)
    else:
        found = _of_counts(_counts(source, client, label, partition, seed), share, epsilon, one_model, seed)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    from fedcohort.cli.advice_panel import show
    from fedcohort.cli.tables import results

    show(found, results)


def _of_experiment(
    path: str, cohort: int | float | None, epsilon: float | None, one_model: bool, seed: int
) -> "Advice":
    """As ``method = "auto"`` would choose in it, unless told otherwise."""
    from fedcohort.runs.advice.auto import Wish, advice_for
    from fedcohort.runs.experiment import Experiment

    changes = [] if cohort is None else [f"cohort={cohort}"]
    changes += [] if epsilon is None else ["privacy.counts=noised", f"privacy.epsilon={epsilon}"]
    return advice_for(Experiment.read(path, [*changes, "method=fedavg"]).task(seed), Wish(one_model))


def _of_counts(
    counts: "Tensor", cohort: int | float | None, epsilon: float | None, one_model: bool, seed: int
) -> "Advice":
    from fedcohort.core.disclosure import noised
    from fedcohort.core.profile import Privacy
    from fedcohort.core.task import cohort_size
    from fedcohort.runs.advice import advise as advise_counts
    from fedcohort.util.settings import build

    size = cohort_size(COHORT if cohort is None else cohort, len(counts), int(counts.any(dim=1).sum()))
    if epsilon is not None:
        epsilon = build(Privacy, {"counts": "noised", "epsilon": epsilon}, "privacy").epsilon
        counts = noised(counts, counts.sum(dim=1).tolist(), "counts", epsilon, seed, "advise")
    return advise_counts(counts, size, one_model=one_model, epsilon=epsilon)


def _counts(source: str, client: str | None, label: str | None, partition: str | None, seed: int) -> "Tensor":
    import torch

    from fedcohort.cli.diagnose import dealt
    from fedcohort.diagnosis import read_counts

    federation = dealt(source, partition, seed)
    if federation is not None:
        return federation.counts
    return torch.from_numpy(read_counts(source, client, label).matrix)


def _number(text: str) -> int | float:
    """As in an experiment file: 1 is a client, 1.0 is everybody."""
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise UserError(f"--cohort {text}: write a number of clients like 5, or a share like 0.2") from None
