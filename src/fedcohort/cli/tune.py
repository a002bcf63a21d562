"""``tune``: the best settings of every method, with the same budget for each."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcohort.cli.options import AsJson, Out, Quiet, Trust, Yes, refuse_many, seconds_of
from fedcohort.util.budget import EACH, MOST
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from fedcohort.runs.tuning.halving import Trial
    from fedcohort.runs.tuning.tuning import Tuning


def tune(
    experiment: Annotated[Path | None, typer.Argument(help="The experiment file, in TOML.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set rounds=30 (repeatable).")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help=f"Trials in all, shared evenly; without it {EACH} for each method.")
    ] = None,
    per_method: Annotated[
        bool, typer.Option("--per-method", help="The budget is that of each method.")
    ] = False,
    limit: Annotated[
        str | None,
        typer.Option("--time", help="Instead of a budget: as many trials as end within 30m, 2h, ..."),
    ] = None,
    sampler: Annotated[
        Literal["random", "grid", "optuna"],
        typer.Option(help="How values are chosen; optuna needs 'fedcohort[tune]'."),
    ] = "random",
    out: Out = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the tuning of this directory, as it was begun.")
    ] = None,
    trust: Trust = False,
    yes: Yes = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the learning rates and settings with which each method does best, on data held out for that.

    Every method gets as many trials; the best third of them goes on after a third of the rounds. Each is run
    with every seed, and under every condition that the file sweeps. No test row is looked at. Writes an
    experiment file with the best values, for 'fedcohort run', and a page that shows what was tried.

    [bold]Example[/bold]: fedcohort tune experiment.toml --budget 27 --per-method
    """
    import torch

    from fedcohort.cli.progress import watcher_of
    from fedcohort.cli.tables import tell
    from fedcohort.python.comparison import notes
    from fedcohort.report.tuned import write_tuned
    from fedcohort.runs.tuning.files import begin, reopen, write_best
    from fedcohort.util.user_code import resume_command

    if resume is not None:
        if experiment or overrides or budget is not None or limit is not None:
            raise UserError("--resume goes on with tuning as it was begun: give no file, --set or budget")
        tuning = reopen(resume, trust)
    else:
        from fedcohort.runs.experiment import Experiment
        from fedcohort.runs.tuning.tuning import without_tuned

        if trust:
            raise UserError("--trust goes with --resume: an experiment file that you name is trusted")
        if experiment is None:
            raise UserError("name an experiment file, or a directory of tuning with --resume")
        asked = without_tuned(Experiment.read(experiment, overrides or []))
        trials = _trials(budget, per_method, limit, len(asked.methods))
        refuse_many(asked.count_runs() * (trials or 1), yes)
        tuning = begin(asked, out, sampler, trials, seconds_of(limit, "--time"))
        if not (as_json or quiet):
            tell(notes(asked))
    torch.set_num_threads(1)
    watcher = watcher_of(tuning.runs, quiet)
    try:
        done = tuning.run(watcher)
    except KeyboardInterrupt:
        command = resume_command(tuning.home, tuning.experiment.table(), "tune")
        print(f"Stopped; nothing is lost. Continue with: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        watcher.stop()
    best = write_best(tuning, done)
    page = write_tuned(tuning, done)
    if as_json:
        print(json.dumps({"best": str(best), "report": str(page), "methods": _methods(tuning, done)}))
        return
    _show(tuning, done)
    print(f"Best settings: {best}\nWhat was tried: {page}")


def _trials(budget: int | None, per_method: bool, limit: str | None, methods: int) -> int | None:
    """Of each method; None: as many as there is time for."""
    if budget is None:
        return None if limit is not None else EACH
    if limit is not None:
        raise UserError("--budget and --time exclude each other: give one of them")
    least = 1 if per_method else methods
    if budget < least:
        raise UserError(f"--budget {budget}: every method needs a trial, so give at least {least}")
    each = budget if per_method else budget // methods
    if each > MOST:
        raise UserError(f"--budget {budget}: that is {each:,} trials of a method, give at most {MOST:,}")
    return each


def _methods(tuning: "Tuning", done: "list[Trial]") -> list[dict[str, Any]]:
    found = []
    for trial in tuning.best(done):
        first = next(other for other in done if (other.method, other.number) == (trial.method, 0))
        found.append(
            {
                "method": tuning.experiment.methods[trial.method].title,
                "settings": trial.point,
                "accuracy": trial.score,
                "rounds": trial.rounds,
                "trials": sum(other.method == trial.method for other in done),
                "as_it_was": {"accuracy": first.score, "rounds": first.rounds},
            }
        )
    return found


def _show(tuning: "Tuning", done: "list[Trial]") -> None:
    from rich.text import Text

    from fedcohort.cli.console import table_of
    from fedcohort.cli.tables import results

    columns = "method", "accuracy", "rounds", "trials", "settings"
    board = table_of("Best on held-out data", *columns, pad_edge=True)
    for found in sorted(_methods(tuning, done), key=lambda each: -each["accuracy"]):
        values = ", ".join(f"{key}={value:g}" for key, value in found["settings"].items()) or "as in the file"
        numbers = f"{found['accuracy']:.1%}", str(found["rounds"]), str(found["trials"])
        board.add_row(Text(found["method"]), *numbers, values)
    results.print(board)
