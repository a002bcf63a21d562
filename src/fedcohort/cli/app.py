"""The command line. Each command imports what it needs when it runs, so that ``--help`` is instant."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer

from fedcohort.cli.clients import assign, drift
from fedcohort.cli.flower import app as flower_app
from fedcohort.cli.live import serve, watch
from fedcohort.cli.options import AsJson, Client, Label, Out, Quiet, Track
from fedcohort.util.errors import UserError
from fedcohort.util.warnings import told_by

if TYPE_CHECKING:
    from fedcohort.data import Federation
    from fedcohort.runs.comparison import Outcome, Plan
    from fedcohort.runs.experiment import Experiment

ASKED_NOTHING = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before click 8.2 that was no error

app = typer.Typer(
    help="Federated learning when clients' data differ: diagnose, compare methods, add your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
new_app = typer.Typer(help="Write the file of a new method.", no_args_is_help=True)
app.add_typer(new_app, name="new")
app.add_typer(flower_app, name="flower")


def main(argv: list[str] | None = None) -> None:
    """The console script: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        with told_by(_warn):
            raise SystemExit(app(args=argv, standalone_mode=False))
    except ASKED_NOTHING as help_:
        print(help_.format_message())
        raise SystemExit(2) from None
    except UserError as mistake:
        _refuse(str(mistake))
    except click.ClickException as mistake:  # an unknown option, a missing argument
        _refuse(mistake.format_message())


def _warn(text: str) -> None:
    print(f"warning: {_one_line(text)}", file=sys.stderr)


def _refuse(mistake: str) -> NoReturn:
    print(f"error: {_one_line(mistake)}", file=sys.stderr)
    raise SystemExit(2) from None


def _one_line(text: str) -> str:
    """What may quote somebody's file, without anything that a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


@app.command()
def demo(out: Out = Path("runs"), as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Compare FedAvg and the systems of five papers on real handwritten digits (a minute or two, no
    download).

    Four of them where clients hold different labels, the fifth, FedGWC, where they hold two kinds of
    pictures; with --json a line for each.
    """
    from importlib.resources import files

    from fedcohort.runs.experiment import Experiment

    for name in ("demo.toml", "demo_kinds.toml"):
        experiment = Experiment.read(str(files("fedcohort") / name))
        if not (as_json or quiet):
            _introduce(experiment)
        _compare(experiment, out, as_json, quiet)


@app.command()
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

        _carry_out(reopen(resume, trust).tracked(track or []), as_json, quiet)
        return
    if trust:
        raise UserError("--trust goes with --resume: an experiment file that you name is trusted")
    if experiment is None:
        raise UserError(
            "name an experiment file, or a run directory with --resume; 'fedcohort demo' needs neither"
        )
    from fedcohort.runs.experiment import Experiment

    changes = [*(overrides or []), *([] if seeds is None else [f"seeds={_seeds(seeds)}"])]
    _compare(Experiment.read(experiment, changes).tracked(track or []), out, as_json, quiet)


@app.command()
def diagnose(
    source: Annotated[
        str,
        typer.Argument(help="A table (CSV, Parquet), an experiment file (TOML) or a data source by name."),
    ],
    client: Client = None,
    label: Label = None,
    partition: Annotated[
        str | None, typer.Option(help="How to deal a data source: 'dirichlet(clients=30, alpha=0.1)'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For partitions and clustering.")] = 0,
    max_groups: Annotated[
        int, typer.Option(min=2, help="Most groups that are tried; the papers try one less than clients.")
    ] = 20,
    features: Annotated[
        bool,
        typer.Option("--features", help="Compare the clients' attributes and sizes too (reads the samples)."),
    ] = False,
    bins: Annotated[int, typer.Option(min=2, help="Quantile bins of an attribute, for --features.")] = 4,
    all_clients: Annotated[
        bool, typer.Option("--all", help="List every client, not only the most unusual.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write it to this file, with charts, as one HTML page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How skewed is this federation, who belongs with whom, and what to do about it.

    [bold]Counts[/bold], one row per client, every other column a class:
    fedcohort diagnose counts.csv --client site

    [bold]Samples[/bold], one row each: fedcohort diagnose patients.csv --client hospital --label outcome,
    or one file per client: fedcohort diagnose 'hospitals/*.csv' --client @file --label outcome

    [bold]A partition[/bold]: fedcohort diagnose experiment.toml, or
    fedcohort diagnose digits --partition "dirichlet(clients=30, alpha=0.1)"

    [bold]Attributes and sizes[/bold] too, where samples are at hand:
    fedcohort diagnose patients.csv --client hospital --label outcome --features
    """
    from fedcohort.diagnosis import diagnose as diagnose_counts
    from fedcohort.diagnosis import read_counts

    federation = None
    if partition is not None or source.endswith(".toml"):
        federation = _dealt(source, partition, seed)
    elif not Path(source).exists() and "." not in source:
        raise UserError(
            f"there is no file {source}: if it is a data source, say how to deal it by --partition"
        )
    elif features:
        federation = _table_federation(source, client, label)
    if federation is not None:
        names = federation.clients, federation.classes
        iid = None if federation.iid is None else federation.iid.numpy()
        counted = federation.counts.numpy()
        diagnosis = diagnose_counts(counted, *names, seed=seed, max_groups=max_groups, iid=iid)
    else:
        counts = read_counts(source, client, label)
        names = tuple(counts.client_names), tuple(counts.class_names)
        diagnosis = diagnose_counts(counts.matrix, *names, seed=seed, max_groups=max_groups)
    skew = None
    if features and federation is not None:
        from fedcohort.stats.attribute_psi import diagnose_features

        skew = diagnose_features(federation, bins)
    if html is not None:
        from fedcohort.report import write_diagnosis

        write_diagnosis(diagnosis, html, skew)
    if as_json:
        print(json.dumps({**diagnosis.to_dict(), **({"features": skew.to_dict()} if skew else {})}))
        return
    from fedcohort.cli.diagnosis_tables import show, show_features
    from fedcohort.cli.tables import results

    show(diagnosis, results, all_clients)
    if skew is not None:
        show_features(skew, results, all_clients)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs, or of whole comparisons.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Who is badly served and why, method against method, client by client: one HTML file that opens offline.

    [bold]Example[/bold]: fedcohort report runs/demo-001 --out demo.html

    [bold]Comparisons side by side[/bold]: fedcohort report runs/e-001 runs/e-002

    Unfinished runs are shown as far as they have got.
    """
    from fedcohort.report import write_report

    print(write_report(runs, out))


app.command()(assign)
app.command()(drift)
app.command()(watch)
app.command()(serve)


@app.command()
def bench(
    jobs: Annotated[str, typer.Option(help="Of A, B, C, scale, startup.")] = "A,B,C,scale,startup",
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds of each job, after one to warm up.")] = 7,
    as_json: AsJson = False,
) -> None:
    """How fast this machine trains: the engine beside the reference, a bare PyTorch loop and the GEMM limit.

    A: 100 clients, MLP. B: 100 clients, LeNet-5. C: 1,000 small clients, MLP. scale: diagnosis, grouping and
    selection of 100,000 clients. startup: seconds until the command line answers.
    """
    from fedcohort.bench.measure import bench as measure
    from fedcohort.cli.tables import bench_tables, messages, results

    asked = [job.strip() for job in jobs.split(",") if job.strip()]
    out = measure(asked, repeats, lambda text: None if as_json else messages.print(text, markup=False))
    if as_json:
        print(json.dumps(out))
    else:
        results.print(bench_tables(out))


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method in full; or a preset, or a paper.")] = None,
    presets: Annotated[
        bool, typer.Option("--presets", help="Methods as papers compare them, with the papers' values.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the methods: what each is for, its parameters, what it needs to know and what it sends.

    [bold]As papers compare them[/bold]: fedcohort methods --presets, of one paper:
    fedcohort methods --presets fedlecc

    [bold]In an experiment file[/bold]: method = ["fedlecc/haccs", "clust-psi-pfl/fedyogi"]
    """
    if presets or (name and "/" in name):
        _list_presets(name, as_json)
        return
    from fedcohort.runs.method_catalogue import catalogue, describe

    if as_json:
        print(json.dumps(describe(name) if name else catalogue()))
        return
    from fedcohort.cli.tables import method_page, method_table, results

    results.print(method_page(describe(name)) if name else method_table(catalogue()))
    if not name:
        results.print(
            "Combine one of each role: fedlecc+fedprox(mu=0.01)+fedavgm+clust_psi_pfl", markup=False
        )
        results.print("One in full: fedcohort methods scaffold", markup=False)
        results.print("With the values of papers' comparisons: fedcohort methods --presets", markup=False)


@new_app.command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="Its name, which is also the name of its file.")],
    role: Annotated[str, typer.Option(help="selector, objective, aggregator or grouping.")] = "objective",
    directory: Annotated[Path, typer.Option("--dir", help="Where to write the file.")] = Path(),
) -> None:
    """Write a method's file and the start of its equation test, ready to run and to change."""
    from fedcohort.cli.new_method import write_method

    for path in write_method(name, role, directory):
        print(path)
    print(f'Try it: put imports = ["{name}"] and [[method]] name = "{name}" into an experiment file.')


def _list_presets(of: str | None, as_json: bool) -> None:
    from fedcohort.presets import listing

    listed = listing(of)
    if as_json:
        print(json.dumps(listed))
        return
    from fedcohort.cli.preset_tables import preset_tables
    from fedcohort.cli.tables import results

    results.print(preset_tables(listed))


def _dealt(source: str, partition: str | None, seed: int) -> "Federation":
    """The federation of an experiment file, or of a source and a partition given as text."""
    from fedcohort.runs.experiment import Experiment

    if partition is None:
        return Experiment.read(source).federation(seed, "federated")  # nothing leaves this machine
    if Path(source).is_file():
        raise UserError(f"--partition deals a data source, but {source} is a file: leave --partition out")
    from fedcohort.data import federate, load
    from fedcohort.data.partition import partitioner
    from fedcohort.util.expression import parse

    (data, options), *more_data = parse(source)
    (protocol, parameters), *more_protocols = parse(partition)
    if more_data or more_protocols:
        raise UserError("give one data source and one --partition: they cannot be added")
    return federate(load(data, **options), partitioner(protocol, **parameters), seed=seed)


def _table_federation(path: str, client: str | None, label: str | None) -> "Federation":
    """A table of samples with all its columns, dealt to the clients it names."""
    if client is None or label is None:
        raise UserError(
            "--features needs samples, not counts: name their columns with --client and --label, "
            "or give an experiment file"
        )
    from fedcohort.data import SplitPlan, federate, load
    from fedcohort.data.partition import partitioner

    data = load("table", path=path, client=client, label=label, missing="mean")
    return federate(data, partitioner("natural"), SplitPlan(test=0))


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
    watcher = _watcher(news, as_json or quiet)
    try:
        outcomes = carry_out(plan, watcher)
    except KeyboardInterrupt:
        command = resume_command(plan.home, plan.experiment.table())
        print(f"Stopped; nothing is lost. Continue with: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        watcher.stop()
    _show_outcomes(outcomes, plan.experiment, as_json)
    if news:
        from fedcohort.report import REPORT, write_report

        page = write_report([plan.home], plan.home / REPORT)
    if not as_json:
        messages.print(f"Results: {plan.home}", markup=False, soft_wrap=True)
        if news:
            messages.print(f"Report: {page}", markup=False, soft_wrap=True)


def _show_outcomes(outcomes: "list[Outcome]", experiment: "Experiment", as_json: bool) -> None:
    from fedcohort.cli.tables import SCOPES, leaderboard, results, rounds_table
    from fedcohort.runs.comparison import rank, uneven

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
