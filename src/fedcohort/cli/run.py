"""The commands that train: ``run`` and ``demo``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcohort.cli.options import AsJson, OnRay, Out, Quiet, Track
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from fedcohort.data import Federation
    from fedcohort.runs.comparison import Plan
    from fedcohort.runs.experiment import Experiment
    from fedcohort.runs.standings import Outcome


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
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the file's: --seeds 0,1,2.")] = None,
    out: Out = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run, or all runs, of this directory to the same end.")
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="With --resume: execute the modules that the directory's files name."),
    ] = False,
    track: Track = None,
    ray: OnRay = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every method of an experiment file with every seed and print a leaderboard.

    [bold]Example[/bold]: fedcohort run experiment.toml --set rounds=20 --seeds 0,1,2
    """
    if resume is not None:
        if experiment or overrides or seeds is not None:
            raise UserError(
                "--resume continues a run exactly as it was: give no experiment, --set or --seeds"
            )
        from fedcohort.runs.comparison import reopen

        _carry_out(reopen(resume, trust).tracked(track or []).running_on(ray), as_json, quiet)
        return
    if trust:
        raise UserError("--trust goes with --resume: an experiment file that you name is trusted")
    if experiment is None:
        raise UserError(
            "name an experiment file, or a run directory with --resume; 'fedcohort demo' needs neither"
        )
    from fedcohort.runs.experiment import Experiment

    changes = [*(overrides or []), *([] if seeds is None else [f"seeds={_seeds(seeds)}"])]
    asked = Experiment.read(experiment, changes).tracked(track or []).running_on(ray)
    _compare(asked, out, as_json, quiet)


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text}: write whole numbers with commas, like --seeds 0,1,2") from None


def _compare(experiment: "Experiment", out: Path, as_json: bool, quiet: bool) -> None:
    from fedcohort.cli.tables import messages
    from fedcohort.runs.comparison import prepare

    plan = prepare(experiment, out)
    read = experiment.federation(experiment.seeds[0]).provenance["data"].get("read")
    for note in () if as_json or quiet else filter(None, (*experiment.notes, read)):
        messages.print(f"note: {note}", markup=False)
    _carry_out(plan, as_json, quiet)


def _carry_out(plan: "Plan", as_json: bool, quiet: bool) -> None:
    import torch

    from fedcohort.cli.tables import messages
    from fedcohort.runs.comparison import carry_out
    from fedcohort.util.user_code import resume_command

    torch.set_num_threads(1)  # results must not depend on how many cores there are
    news = plan.open  # a comparison that is complete already is shown, and nothing is written
    watcher = _watcher(news, quiet)
    try:
        outcomes = carry_out(plan, watcher)
    except KeyboardInterrupt:
        command = resume_command(plan.home, plan.experiment.table())
        if on := plan.experiment.running.ray:
            command += f" --ray {on}"
        print(f"Stopped; nothing is lost. Continue with: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        watcher.stop()
    _show_outcomes(outcomes, plan.experiment, as_json)
    if news:
        from fedcohort.report import REPORT, write_report

        page = write_report([plan.home], plan.home / REPORT, private=True)
    if not as_json:
        messages.print(f"Results: {plan.home}", markup=False, soft_wrap=True)
        if news:
            messages.print(f"Report: {page}", markup=False, soft_wrap=True)


def _show_outcomes(outcomes: "list[Outcome]", experiment: "Experiment", as_json: bool) -> None:
    from fedcohort.cli.tables import leaderboard, results, rounds_table
    from fedcohort.runs.standings import SCOPES, rank, uneven

    standings = rank(outcomes)
    if as_json:
        runs = [outcome.to_dict() for outcome in outcomes]
        print(json.dumps({"runs": runs, "leaderboard": [standing.to_dict() for standing in standings]}))
        return
    results.print(leaderboard(standings, experiment.rounds))
    if (summary := rounds_table(standings)) is not None:
        results.print(summary)
    results.print(SCOPES, style="dim")
    if caution := uneven(standings, [method.title for method in experiment.methods if method.pooled]):
        results.print(f"note: {caution}", markup=False)
    for outcome in outcomes:
        if outcome.useless:
            results.print(
                f"warning: {outcome.method}, seed {outcome.seed}: no client's answer could be used in the "
                "last round, because training ended in NaN or infinite numbers: try a lower local.lr",
                markup=False,
            )


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


def _watcher(runs: int, silent: bool) -> Any:
    from fedcohort.cli.progress import Lines, LiveBoard, Silent
    from fedcohort.cli.tables import messages

    if silent:
        return Silent()
    return LiveBoard(runs) if messages.is_terminal else Lines(runs)
