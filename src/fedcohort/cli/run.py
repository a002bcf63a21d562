"""The commands that train: ``run`` and ``demo``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.cli.options import AsJson, OnRay, Out, Quiet, Track, Trust, Yes, refuse_many
from fedcohort.util.errors import UserError
from fedcohort.util.words import counted

SHOWN = 20  # rankings, one for each condition; more are no overview

if TYPE_CHECKING:
    from fedcohort.data import Federation
    from fedcohort.runs.comparison import Plan
    from fedcohort.runs.experiment import Experiment
    from fedcohort.runs.outcomes.standings import Outcome


def demo(
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer or more rounds than it takes.")] = None,
    out: Out = Path("runs"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare FedAvg and the systems of five papers on real handwritten digits (a minute or two, no
    download).

    Four of them where clients hold different labels, Clust-PSI-PFL also where some hold the same, and FedGWC
    where they hold two kinds of pictures; with --json a line for each.
    """
    from importlib.resources import files

    from fedcohort.runs.experiment import Experiment

    changes = [] if rounds is None else [f"rounds={rounds}"]
    for name in ("demo.toml", "demo_groups.toml", "demo_kinds.toml"):
        experiment = Experiment.read(str(files("fedcohort.cli") / name), changes)
        if not (as_json or quiet):
            _introduce(experiment)
        _compare(experiment, out, as_json, quiet)


def run(
    experiment: Annotated[Path | None, typer.Argument(help="The experiment file, in TOML.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set local.lr=0.1 (repeatable).")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Try several values: --sweep local.lr=0.01,0.1 (repeatable, all combinations)."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the file's: --seeds 0,1,2.")] = None,
    out: Out = Path("runs"),
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue the run, or all runs, of this directory to the same end; with --seeds, --sweep, "
            "--set rounds=N or an edited file, to more than was asked at first."
        ),
    ] = None,
    trust: Trust = False,
    yes: Yes = False,
    track: Track = None,
    ray: OnRay = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every method of an experiment file with every seed and print a leaderboard.

    [bold]Example[/bold]: fedcohort run experiment.toml --set rounds=20 --seeds 0,1,2

    [bold]More of it[/bold]: fedcohort run --resume runs/experiment-001 --seeds 0,1,2,3,4
    """
    changes = [*(overrides or []), *([] if seeds is None else [f"seeds={_seeds(seeds)}"])]
    if resume is not None:
        from fedcohort.runs.comparison import extend, reopen
        from fedcohort.runs.experiment import Experiment
        from fedcohort.runs.stored import settings_file

        plan = reopen(resume, trust, agree=lambda runs: refuse_many(runs, yes))
        if experiment or changes or sweep:
            asked = Experiment.read(experiment or settings_file(resume), changes)
            asked = asked.swept(sweep or [], also_as_it_is=True)
            asked = asked if experiment else asked.running_on("")  # a directory does not say where
            refuse_many(asked.count_runs(), yes)
            plan = extend(plan, asked)
        _carry_out(plan.tracked(track or []).running_on(ray), as_json, quiet)
        return
    if trust:
        raise UserError("--trust goes with --resume: an experiment file that you name is trusted")
    if experiment is None:
        raise UserError(
            "name an experiment file, or a run directory with --resume; 'fedcohort demo' needs neither"
        )
    from fedcohort.runs.experiment import Experiment

    asked = Experiment.read(experiment, changes).swept(sweep or []).tracked(track or []).running_on(ray)
    refuse_many(asked.count_runs(), yes)
    _compare(asked, out, as_json, quiet)


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text}: write whole numbers with commas, like --seeds 0,1,2") from None


def _compare(experiment: "Experiment", out: Path, as_json: bool, quiet: bool) -> None:
    from fedcohort.cli.tables import tell
    from fedcohort.python.auto import decided
    from fedcohort.python.comparison import notes
    from fedcohort.runs.comparison import prepare

    try:
        experiment = decided(experiment, out, progress=not quiet)
    except KeyboardInterrupt as stopped:
        print(f"Stopped; nothing is lost: {stopped.__notes__[0]}", file=sys.stderr)
        raise typer.Exit(130) from None
    plan = prepare(experiment, out)
    if not (as_json or quiet):
        tell(notes(experiment))
    _carry_out(plan, as_json, quiet)


def _carry_out(plan: "Plan", as_json: bool, quiet: bool) -> None:
    from fedcohort.cli.tables import messages
    from fedcohort.python.comparison import complete
    from fedcohort.util.user_code import resume_command

    try:
        done = complete(plan, progress=not quiet)
    except KeyboardInterrupt:
        command = resume_command(plan.home, plan.experiment.table())
        if on := plan.experiment.means.ray:
            command += f" --ray {on}"
        print(f"Stopped; nothing is lost. Continue with: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
    _show_outcomes(done.outcomes, plan.experiment, as_json)
    if not as_json:
        messages.print(f"Results: {plan.home}", markup=False, soft_wrap=True)
        if done.report:
            messages.print(f"Report: {done.report}", markup=False, soft_wrap=True)


def _show_outcomes(outcomes: "list[Outcome]", experiment: "Experiment", as_json: bool) -> None:
    from fedcohort.cli.tables import results, show_ranking
    from fedcohort.runs.outcomes.standings import SCOPES, rankings, verdict

    references = [method.title for method in experiment.methods if method.pooled]
    ranked = rankings(outcomes, references)
    if as_json:
        runs = [outcome.to_dict() for outcome in outcomes]
        leaderboard = [standing.to_dict() for standings in ranked for standing in standings]
        verdicts = [{"settings": each[0].settings, "sentence": verdict(each)} for each in ranked]
        print(json.dumps({"verdicts": verdicts, "runs": runs, "leaderboard": leaderboard}))
        return
    for standings in ranked[:SHOWN]:
        show_ranking(standings, experiment.rounds, references)
    if len(ranked) > SHOWN:
        results.print(
            f"... and {counted(len(ranked) - SHOWN, 'condition')} more: 'fedcohort table' shows them all"
        )
    results.print(SCOPES, style="dim")


def _introduce(experiment: "Experiment") -> None:
    from fedcohort.cli.tables import results
    from fedcohort.diagnosis import diagnose as diagnose_counts

    federation = experiment.federation(experiment.seeds[0])
    diagnosis = diagnose_counts(federation.counts.numpy(), federation.clients, federation.classes)
    digits = f"{int(federation.counts.sum())} handwritten digits{_looks(federation)}"
    results.print(f"{federation.num_clients} clients share {digits}.")
    for sentence in diagnosis.verdict.sentences:
        results.print(f"  {sentence}", markup=False)


def _looks(federation: "Federation") -> str:
    """Which kinds of pictures there are, if several."""
    kinds = federation.provenance["partition"].get("domains", {})
    return f" ({', '.join(f'{number} {kind}' for kind, number in kinds.items())})" if kinds else ""
