"""One experiment file, simulated and deployed: the same numbers, from moments that clients tell once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message

from fedcohort.data.revealed import Revealed
from fedcohort.flower import messages
from fedcohort.flower.messages import Payload
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Result, run
from support.flower_tiny import through_flower
from support.hospitals import SITES, asked, clients, write_tables
from support.inprocess import FIRST, InProcess


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return write_tables(tmp_path)


def deployed(tables: Path, out: Path, experiment: Experiment, **privacy: str) -> tuple[Result, InProcess]:
    return through_flower(experiment, out, clients(tables, out, privacy))


def simulated(experiment: Experiment) -> Result:
    return run(experiment.methods[0], experiment.task(0), experiment.rounds, experiment.evaluation)


def same(ours: Result, theirs: Result) -> None:
    keys = theirs.metrics.keys() - {"messages"}
    assert {key: ours.metrics[key] for key in keys} == pytest.approx(
        {key: theirs.metrics[key] for key in keys}
    )
    weights = [result.state.groups[0].weights.params for result in (ours, theirs)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-6)


def log_of(out: Path) -> str:
    return next(out.glob("experiment-*/*/flower.log")).read_text()


@pytest.mark.parametrize("scale", ["federated", "client", "none"])
def test_the_same_table_gives_the_same_numbers(tables: Path, scale: str) -> None:
    local = {"lr": 1e-4 if scale == "none" else 0.1, "batch": 8}
    experiment = asked(tables, data={"scale": scale}, local=local)
    result, grid = deployed(tables, tables, experiment, site10="exact", site2="exact")
    same(simulated(experiment), result)
    told = [
        messages.read(reply.content).tensors.get("moments")
        for kind, _, _, reply in grid.seen
        if kind == messages.PROFILE
    ]
    assert [bool(each) for each in told] == [scale == "federated"] * 2
    path = next(tables.glob("experiment-*/*/roster.safetensors"))
    assert Revealed.read(path).clients == tuple(SITES)
    assert (Revealed.read(path).scale is not None) == (scale == "federated")


def test_what_nobody_tells_each_does_for_itself_and_it_is_said(tables: Path) -> None:
    """A client that says nothing withholds. Then scores are rounded too, but the model is the same."""
    result, grid = deployed(tables, tables, asked(tables), site10="", site2="")
    ours = simulated(asked(tables, data={"scale": "client"})).state.groups[0].weights.params
    torch.testing.assert_close(ours, result.state.groups[0].weights.params, rtol=0, atol=1e-6)
    assert "a simulation gives the same numbers with data.scale = 'client'" in log_of(tables)
    assert not any(messages.read(reply.content).tensors.get("moments") for *_, reply in grid.seen)


def test_who_tells_nothing_is_scaled_by_the_others(tables: Path) -> None:
    deployed(tables, tables, asked(tables), site10="noised", site2="exact")
    met = Revealed.read(next(tables.glob("experiment-*/*/roster.safetensors")))
    alone = asked(tables, data={"path": str(tables / "site2.csv")}).federation(0).scale
    assert met.clients == tuple(SITES)
    assert all(map(torch.equal, met.scale, alone))
    assert "the means of the columns of site10 are not told" in log_of(tables)


def test_a_run_that_may_not_know_them_says_so(tables: Path) -> None:
    experiment = asked(tables, privacy={"counts": "withheld"})
    assert (
        "so each client scales its numbers by its own rows"
        in experiment.federation(0).provenance["data"]["read"]
    )
    own = asked(tables, data={"scale": "client"})
    assert torch.equal(experiment.federation(0).train.x, own.federation(0).train.x)
    result, _ = deployed(tables, tables, experiment, site10="exact", site2="exact")
    assert result.metrics["global.accuracy"] == pytest.approx(
        simulated(experiment).metrics["global.accuracy"]
    )


def test_a_continued_run_is_scaled_as_it_was(tables: Path, tmp_path: Path) -> None:
    whole, _ = deployed(tables, tmp_path / "whole", asked(tables), site10="exact", site2="exact")
    out = tmp_path / "cut"
    grid = clients(tables, out, {"site10": "exact", "site2": "exact"})

    def leave(kind: str, node: int, reply: Message) -> Message | None:
        if len(grid.seen) == 9:  # after the first round
            raise KeyboardInterrupt
        return reply

    grid.spoil = leave
    with pytest.raises(KeyboardInterrupt):
        through_flower(asked(tables), out, grid)
    path = next(out.glob("experiment-*/*/roster.safetensors"))
    before = path.read_bytes()
    again, _ = deployed(tables, out, asked(tables), site10="exact", site2="exact")
    assert path.read_bytes() == before
    same(again, whole)


def liar(change: dict[str, torch.Tensor]) -> object:
    def spoil(kind: str, node: int, reply: Message) -> Message:
        payload = messages.read(reply.content)
        if kind != messages.PROFILE or node != FIRST:
            return reply
        told = {**payload.tensors, "moments": {**payload.tensors["moments"], **change}}
        reply.content = messages.write(Payload(payload.facts, told))
        return reply

    return spoil


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mean": torch.full((4,), torch.nan, dtype=torch.float64)}, "number is not between"),
        ({"spread": torch.full((4,), -1.0, dtype=torch.float64)}, "number is not between 0 and"),
        ({"mean": torch.full((4,), 1e200, dtype=torch.float64)}, "-1e+30 and 1e+30: their mean"),
        ({"number": torch.full((4,), 1e6, dtype=torch.float64)}, "how many numbers each column has"),
        ({"mean": torch.zeros(3, dtype=torch.float64)}, "the wrong shape"),
        ({"mean": torch.zeros(4)}, "the wrong shape"),
        ({"mean": torch.full((4,), 1e9, dtype=torch.float64)}, "times as large as those of most"),
    ],
)
def test_who_tells_nonsense_is_left_out_alone(tables: Path, change: dict, why: str) -> None:
    for name, copy in (("site10", "site11"), ("site2", "site3")):
        (tables / f"{copy}.csv").write_text((tables / f"{name}.csv").read_text())
    grid = clients(tables, tables, dict.fromkeys(("site2", "site3", "site10", "site11"), "exact"))
    grid.spoil = liar(change)  # type: ignore[assignment]
    through_flower(asked(tables), tables, grid)
    met = Revealed.read(next(tables.glob("experiment-*/*/roster.safetensors")))
    assert met.clients == ("site3", "site10", "site11")
    assert why in log_of(tables)
    assert bool((met.scale.mean.abs() < 1000).all())


def test_nothing_is_told_of_few_samples(tables: Path) -> None:
    """A client that wants twenty for any answer has sixteen in training; of a column with three, no mean."""
    for least, told in ((20, [0, 0, 0, 0]), (5, [0, 16, 0, 0])):
        site = tables / "few.csv"
        rows = [
            f"{90 + n if n % 9 == 0 else ''},{120 + n},{'ill' if n % 2 else 'well'},yes" for n in range(28)
        ]
        site.write_text("\n".join(["age,pressure,outcome,smoker", *rows]))
        grid = clients(tables, tables, {"few": "exact"})
        grid.contexts[FIRST].node_config["min-samples"] = least
        run_table = asked(tables).table(asked(tables).methods[0], 0)
        facts = {"run": run_table, "token": f"{least:08x}", "client": None, "classes": [], "merge": None}
        (name,) = grid.push_messages(
            [Message(messages.write(Payload(facts, {})), FIRST, messages.PROFILE, ttl=60)]
        )
        (reply,) = grid.pull_messages([name])
        count = messages.read(reply.content).tensors["moments"]["number"]
        assert [float(each) for each in count] == told[: len(count)]


def test_a_server_s_scale_that_is_none_is_refused(tables: Path) -> None:
    grid = clients(tables, tables, {"site2": "exact"})
    run_table = asked(tables).table(asked(tables).methods[0], 0)
    for scale in ({"mean": [0.0], "std": [1.0]}, {"mean": [0.0] * 4, "std": [0.0] * 4}, [1], "x"):
        facts = {"run": run_table, "token": "0a", "client": 0, "classes": [], "merge": None, "scale": scale}
        (name,) = grid.push_messages(
            [Message(messages.write(Payload(facts, {})), FIRST, messages.PROFILE, ttl=60)]
        )
        (reply,) = grid.pull_messages([name])
        assert messages.read(reply.content).facts == {"code": messages.REFUSED}


def test_moments_are_counted(tables: Path) -> None:
    """Two clients tell three numbers for each of four columns, and are told two: of eight bytes each."""
    from fedcohort.runs.client_messages import leaving

    bytes_of = {}
    for scale in ("federated", "client"):
        experiment = asked(tables, data={"scale": scale}, rounds=1)
        task, (method,) = experiment.task(0), experiment.methods
        metrics = simulated(experiment).metrics
        listed = leaving(method, task.profile(method), task.privacy, 1, 2)[0]
        bytes_of[scale] = metrics["bytes_up"], metrics["bytes_down"], listed.bytes
    up, down, one = np.subtract(bytes_of["federated"], bytes_of["client"])
    assert (up, down) == (2 * 3 * 4 * 8, 2 * 2 * 4 * 8)
    _, grid = deployed(tables, tables, asked(tables), site10="exact", site2="exact")
    told = next(messages.read(reply.content) for kind, *_, reply in grid.seen if kind == messages.PROFILE)
    assert sum(each.numel() * 8 for each in told.tensors["moments"].values()) == one
