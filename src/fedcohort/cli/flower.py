"""``fedcohort flower``: a federation across machines, from its keys to its clients."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer

from fedcohort.util.errors import UserError
from fedcohort.util.user_code import own_function

app = typer.Typer(
    help="Deploy a federation on several machines through Flower.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Level = Literal["exact", "noised", "withheld"]
Home = Annotated[Path, typer.Option(help="Where Flower keeps its files; created.")]


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(help="Where they go; nothing there is overwritten.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or IP address under which clients reach the server (repeatable)."),
    ] = None,
    clients: Annotated[
        int, typer.Option(min=0, help="Also make key pairs of this many clients, to try things out.")
    ] = 0,
) -> None:
    """Make the server's certificate and the authority that signs it.

    fedcohort flower certs certs --host fl.example.org

    Clients need [bold]ca.crt[/bold]. Keep [bold]ca.key[/bold] off the server: it signs the next certificate.
    """
    from fedcohort.flower.certs import write_certificates

    _list(write_certificates(folder, host or [], clients))


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Of the client, for instance hospital-a.")],
    folder: Annotated[Path, typer.Option("--dir", help="Where the two files go.")] = Path(),
) -> None:
    """Make a client's key pair, at the client: NAME.key stays there, the server's operator gets NAME.pub."""
    from fedcohort.flower.certs import write_key

    if not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"'{name}' cannot be a client's name: use letters, digits, - and _")
    _list(write_key(folder / f"{name}.key"))


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The app's folder; it must not exist.")],
    experiment: Annotated[Path, typer.Option(help="The experiment file that the app carries.")],
    clients: Annotated[
        int, typer.Option(min=0, help="To wait for before the first round; 0: as many as the partition has.")
    ] = 0,
    load: Annotated[
        str, typer.Option(help="module:function that loads a client's data, if it should go with the app.")
    ] = "",
) -> None:
    """Write a Flower app that runs an experiment file, for 'flwr run'.

    fedcohort flower init app --experiment experiment.toml --clients 4

    Your own modules that the experiment names (model, imports) go with it.
    """
    from fedcohort.flower.template import write_app

    _list(write_app(folder, experiment, clients, load))
    print(f"Read {folder / 'README.md'} for the commands that run it.")


@app.command()
def server(
    certs: Annotated[Path, typer.Option(help="The folder that 'fedcohort flower certs' made.")] = Path(
        "certs"
    ),
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port that clients reach.")] = 8443,
    local_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The port of 'flwr', on this machine only.")
    ] = 8444,
    home: Home = Path("flower-server"),
    per_address: Annotated[
        int, typer.Option(min=4, help="Connections at a time from one address, which neighbours may share.")
    ] = 64,
) -> None:
    """Serve a federation, until Ctrl-C: TLS, and only clients whose public key is in CERTS/clients.

    A key that is put there later is admitted within seconds; one that is removed is shut out, for good.
    Start a run from another terminal: FLWR_HOME=flower-server flwr run app
    """
    from fedcohort.flower.superlink import ServerPlaces

    with _until_stopped():
        ServerPlaces(certs, home, host, port, local_port, per_address).serve(_say)


@app.command()
def client(
    superlink: Annotated[str, typer.Option(help="The server's host:port.")],
    key: Annotated[Path, typer.Option(help="This client's private key.")],
    ca: Annotated[Path, typer.Option(help="The certificate of the server's authority, ca.crt.")],
    data: Annotated[Path | None, typer.Option(help="This client's table (CSV, Parquet).")] = None,
    label: Annotated[str | None, typer.Option(help="The table's label column.")] = None,
    empty: Annotated[
        list[str] | None, typer.Option(help="A word of the table for an empty cell, as -9 (repeatable).")
    ] = None,
    drop_incomplete: Annotated[
        bool,
        typer.Option("--drop-incomplete", help="Leave rows of the table out that lack what nothing fills."),
    ] = False,
    load: Annotated[str | None, typer.Option(help="Instead of a table: module:function that loads.")] = None,
    part: Annotated[
        int | None,
        typer.Option(min=0, help="Instead of both: which part of the experiment's own data, from 0."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where Flower keeps its files; unless said, flower-NAME of the key.")
    ] = None,
    privacy: Annotated[
        Level | None,
        typer.Option(help="How label counts are told to a run that asks; unless said, withheld."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Of each table that is told with noise; unless said, 0.5.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Epsilon of all noised tables of all runs; unless said, that of one.")
    ] = None,
    min_samples: Annotated[
        int | None, typer.Option(min=1, help="Tell nothing that rests on fewer samples; unless said, 5.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A module of this machine that a run may name: model, imports (repeatable)."),
    ] = None,
) -> None:
    """Take part with the data of this machine, until Ctrl-C. The data stay here.

    fedcohort flower client --data patients.csv --label outcome --superlink fl.example.org:8443 --key
    hospital-a.key --ca ca.crt

    Whatever the server asks for, the policy of this client holds, and what is refused is printed here.

    [bold]Label counts[/bold]: a run that chooses or groups clients by their labels needs --privacy exact, or
    --privacy noised.
    """
    from fedcohort.flower.client_data import EMPTY_WORDS
    from fedcohort.flower.supernode import Client

    home = home or Path(f"flower-{key.stem}")
    settings = {
        **_node_settings(data, label, load, part, drop_incomplete),
        "keep": str(home.resolve() / "fedcohort"),
    }
    if empty:
        settings["empty"] = EMPTY_WORDS.join(empty)
    if drop_incomplete:
        settings["drop-incomplete"] = 1
    if part is None:
        settings["name"] = key.stem
    settings |= _policy_settings(
        settings, privacy=privacy, epsilon=epsilon, budget=budget, min_samples=min_samples, allow=allow
    )
    with _until_stopped():
        Client(superlink, ca, key, home, settings).join(_say)


def _node_settings(
    data: Path | None, label: str | None, load: str | None, part: int | None, drop_incomplete: bool
) -> dict[str, str | int]:
    """What the ClientApp is told, after a look at what would otherwise fail in the first round."""
    if sum(given is not None for given in (data, load, part)) != 1:
        raise UserError("say where this client's data are, once: --data with --label, or --load, or --part")
    if load is not None:
        own_function(load, "--load")
        return {"load": load}
    if data is None:
        return {"partition-id": part or 0}
    if label is None:
        raise UserError(f"name the label column of {data} with --label")
    from fedcohort.data.columns import label_column
    from fedcohort.data.locate import Places
    from fedcohort.data.tables import read_table, require

    frame = read_table(str(data), Places.of())
    require(frame, label, "--label")
    frame = frame.filter(frame[label].is_not_null()) if drop_incomplete else frame
    rows = label_column(frame, label, "add --drop-incomplete, or remove those rows")
    _say(f"{data}: {len(rows)} rows, {len(set(rows.tolist()))} classes in '{label}'")
    return {"data": str(data.resolve()), "label": label}


def _policy_settings(settings: Mapping[str, Any], **policy: Any) -> dict[str, Any]:
    """What the ClientApp is told of this client's policy; said aloud once it is known to be proper."""
    from fedcohort.flower.policy import Policy

    given = {name.replace("_", "-"): value for name, value in policy.items() if value is not None}
    given |= {"allow": ",".join(given["allow"])} if "allow" in given else {}
    if given.keys() & {"epsilon", "budget"} and given.get("privacy", "withheld") == "withheld":
        raise UserError("--epsilon and --budget are of noise: add --privacy noised")
    _say(Policy.of({**settings, **given}).in_words)
    return given


def _list(paths: list[Path]) -> None:
    for path in paths:
        print(path)


def _say(line: str) -> None:
    print(line, flush=True)


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """Ctrl-C, or the signal of a service manager, ends the command and all it started."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        _say("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)
