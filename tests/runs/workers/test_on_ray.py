"""A comparison on a real Ray cluster: a private one of one machine, and one of three on loopback."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
import torch

from fedcohort.cli.progress import Silent
from fedcohort.core.method import Method
from fedcohort.engines import cluster as clusters
from fedcohort.engines.cluster import Cluster, Machine, connected, heard
from fedcohort.engines.host import VECTORS
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.ray import SMALL, RayEngine, _shared
from fedcohort.runs.comparison import carry_out, compare, prepare, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Callback
from fedcohort.runs.workers import on_ray, ray_pool
from fedcohort.runs.workers.schedule import Schedule, Timed
from fedcohort.runs.workers.telling import Listener
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.testing.tiny import history
from fedcohort.util.errors import UserError
from support.methods import EVERYTHING
from support.processes import descendants, is_alive

ASKED = {
    "name": "far",
    "rounds": 4,
    "seeds": [0],
    "cohort": 4,
    "method": ["fedavg"],
    "data": {"source": "synthetic", "samples": 300, "classes": 3, "features": 6},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.5},
    "model": {"name": "logistic"},
}


def asked(ray: str, **changes: Any) -> Experiment:
    return Experiment.of({**ASKED, **changes, "run": {"ray": ray}})


def tables(home: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in home.glob("*/table.csv")}


def listening(pids: set[int]) -> set[str]:
    """Addresses, in hexadecimal, on which these processes listen."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state, inode = (line.split()[column] for column in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in sockets:
                found.add(local.partition(":")[0])
    return found


def pages(pids: set[int]) -> list[str]:
    """Command lines of dashboards among these processes; Ray starts one without pages all the same."""
    lines = [Path(f"/proc/{pid}/cmdline") for pid in pids if is_alive(pid)]
    return [line for path in lines if "dashboard.py" in (line := path.read_text())]


def left_of(pids: set[int]) -> set[int]:
    """Those that have not ended after a while."""
    deadline = time.monotonic() + 20
    while (left := {pid for pid in pids if is_alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture
def rays_makers(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where Ray would report its use, after a second; that it would not by itself does not count."""
    monkeypatch.setattr("ray._common.usage.usage_lib.set_usage_stats_enabled_via_env_var", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        monkeypatch.setenv("RAY_USAGE_STATS_REPORT_URL", f"http://127.0.0.1:{door.getsockname()[1]}")
        monkeypatch.setenv("RAY_USAGE_STATS_REPORT_INTERVAL_S", "1")
        yield door


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_private_cluster_gives_the_same_results_and_leaves_nothing_behind(
    tmp_path, monkeypatch, rays_makers
):
    """One run, whose clients it holds. Meanwhile it listens to this machine only, shows no pages and tells
    nobody of itself."""
    before, started, seen, folders = descendants(), set[int](), set[str](), list[str]()
    shown: list[str] = []
    make = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **how: folders.append(make(**how)) or folders[-1])
    staff = Cluster.staff

    def looked_at(self: Cluster) -> Any:
        machines = staff(self)
        started.update(descendants() - before)
        seen.update(listening(started))
        shown.extend(pages(started))
        return machines

    monkeypatch.setattr(Cluster, "staff", looked_at)
    _, (far,) = compare(asked("local"), tmp_path / "far", Silent())
    _, (near,) = compare(asked(""), tmp_path / "near", Silent())
    assert far.metrics == pytest.approx(near.metrics, abs=1e-5)
    assert seen
    assert seen <= LOOPBACK
    assert shown
    assert all("--disable-frontend" in line for line in shown)
    assert len(started) > 3
    assert left_of(started) == set()
    with pytest.raises(BlockingIOError):  # nobody has come
        rays_makers.accept()
    assert folders
    assert not any(Path(folder).exists() for folder in folders)


def test_no_directory_says_where_it_runs(tmp_path):
    """Or a stranger's would say to which cluster its reader's data go."""
    plan = prepare(asked("10.9.8.7:6379"), tmp_path)
    assert "10.9.8.7" not in (plan.home / "experiment.toml").read_text()
    assert reopen(plan.home).experiment.means.ray == ""
    assert reopen(plan.home).running_on("auto").experiment.means.ray == "auto"
    (plan.home / "experiment.toml").write_text(
        (plan.home / "experiment.toml").read_text() + '\n[run]\nray = "10.9.8.7:6379"\n'
    )
    assert reopen(plan.home).experiment.means.ray == ""


@pytest.mark.deploy
def test_nobody_else_is_let_into_a_private_cluster():
    join = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR')"
    outside = {**os.environ, **clusters.QUIET, clusters.SEVERAL: "0"}
    with connected("local") as cluster:
        import ray

        assert len(cluster.staff()) == 1
        words = [sys.executable, "-c", join, ray.get_runtime_context().gcs_address]
        done = subprocess.run(words, env=outside, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "token" in done.stderr


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1"),
        ("ray://head:10001", "is no address: write local, auto or host:port"),
        ("head", "is no address"),
    ],
)
def test_an_address_without_a_cluster_is_one_sentence(address, said):
    with pytest.raises(UserError, match=said), connected(address):
        pass


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'fedcohort\[ray\]'"), connected("local"):
        pass


def test_a_ray_that_cannot_be_set_up_again_is_one_sentence(monkeypatch):
    """In a process that has imported it before: that way is not public, and may go with any version."""
    import ray  # noqa: F401

    monkeypatch.setitem(sys.modules, "ray._raylet", None)
    with pytest.raises(UserError, match="cannot be set up again: start another process"), connected("auto"):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "Version mismatch: The cluster was started with:\n    Ray: 2.9",
            "other versions .* install the same",
        ),
        ("Can't find a raylet here", "not part of the Ray cluster at h:1: run 'ray start --address=h:1'"),
        ("Authentication failed: no token", "wants a token"),
        ("whatever else", "there is no Ray cluster at h:1"),
    ],
)
def test_what_ray_says_is_put_in_a_sentence(words, said):
    with pytest.raises(UserError, match=said):
        raise clusters._refused("h:1", words)


@pytest.mark.parametrize(("what", "theirs"), [("fedcohort", "0.0.1"), ("llvmlite", "missing")])
def test_other_versions_are_refused(what, theirs):
    with pytest.raises(UserError, match=rf"{what} is .* here and {theirs} on 10\.0\.0\.7: install the same"):
        clusters.refuse_other_versions("10.0.0.7", {**clusters.versions(), what: theirs})


def test_other_processors_are_told_of():
    theirs = {**clusters.versions(), VECTORS: "abacus"}
    with pytest.warns(RuntimeWarning, match=r"here and abacus on 10\.0\.0\.7: results depend"):
        clusters.refuse_other_versions("10.0.0.7", theirs)


def test_without_the_compiler_that_is_said(monkeypatch):
    monkeypatch.setattr("fedcohort.engines.host.version", _without_llvmlite)
    assert clusters.versions()["llvmlite"] == "missing"


def _without_llvmlite(package: str) -> str:
    if package == "llvmlite":
        raise PackageNotFoundError(package)
    return version(package)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("OutOfMemoryError", "too little memory: no room for 7 bytes"),
        ("ObjectStoreFullError", "too little memory: no room for 7 bytes"),
        ("OutOfDiskError", "a full disk: no room for 7 bytes"),
    ],
)
def test_a_machine_without_room_is_one_sentence(kind, said, tmp_path, monkeypatch):
    """Whoever notices: who listens, who sends a model to several machines, and who sends data to runs."""
    import ray

    def full(*about: Any) -> None:
        raise getattr(ray.exceptions, kind)("no room for 7 bytes")

    for name in ("get", "put"):
        monkeypatch.setattr(ray, name, full)
    plan, runners = prepare(asked("local"), tmp_path), object.__new__(ray_pool.RayPool)
    runners.members = [
        ray_pool.RayMember({"NodeID": "a", "Resources": {"CPU": 1}}, 1, None, Listener(Silent()))
    ]
    for sends in (
        lambda: heard([]),
        lambda: _shared([[torch.zeros(SMALL)]], {0: 2}),
        lambda: runners.carry_out(Timed(Silent(), Schedule(plan.jobs)), plan.home, sent=True),
    ):
        with pytest.raises(UserError, match=said):
            sends()


@pytest.mark.parametrize(("setting", "value"), [("engine", "reference"), ("device", "cuda")])
def test_spread_clients_have_no_other_engine(setting, value, tmp_path, monkeypatch):
    """Nobody is trained by another than was asked for."""
    monkeypatch.setattr(on_ray, "connected", lambda _: nullcontext(SimpleNamespace(nodes=lambda: "abc")))
    plan = prepare(asked("local"), tmp_path)
    means = replace(plan.experiment.means, **{setting: value})
    plan = replace(plan, experiment=replace(plan.experiment, means=means))
    with pytest.raises(UserError, match=f"run.{setting} = '{value}': with so few runs"):
        carry_out(plan, Silent())


def test_files_are_brought_back_once_and_checkpoints_last(tmp_path):
    there, here, seen, written = tmp_path / "there", tmp_path / "here", {}, []
    (there / "clients").mkdir(parents=True)
    for name in ("state.safetensors", "table.csv", "clients/3-1.safetensors", "result.json"):
        (there / name).write_text(name)
    (there / "state.safetensors").chmod(0o600)
    first = ray_pool._files(there, seen)
    ray_pool._write(here, first)
    assert {path.relative_to(here).as_posix() for path in here.rglob("*.*")} == set(first)
    assert (here / "state.safetensors").stat().st_mode & 0o777 == 0o600
    assert (here / "table.csv").stat().st_mode & 0o777 == (there / "table.csv").stat().st_mode & 0o777
    (there / "table.csv").write_text("more")
    assert ray_pool._files(there, seen) == {"table.csv": (b"more", False)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_pool, "write_atomically", lambda path, *_, **__: written.append(path.name))
        ray_pool._write(here, first)
    assert written == ["3-1.safetensors", "table.csv", "state.safetensors", "result.json"]
    with pytest.raises(UserError, match="would write to"):
        ray_pool._write(here, {"../../outside": ray_pool.Brought(b"")})


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    """Three raylets of one core each; a fourth machine may come. They leave nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        nowhere = {"RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:1"}  # or Ray tells that it tells nothing
        for name, value in {**clusters.QUIET, **nowhere, clusters.SEVERAL: "0"}.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster as Raylets

        clusters._look_again(True)
        before, store = descendants(), {"object_store_memory": 100_000_000, "num_cpus": 1}
        raylets = Raylets(initialize_head=True, head_node_args={**store, "include_dashboard": False})
        for _ in range(2):
            raylets.add_node(**store)
        raylets.store = store
        yield raylets
        started = descendants() - before
        raylets.shutdown()
        assert left_of(started) == set()
    clusters._look_again(False)


def without(raylets: Any, node: str) -> None:
    """Kills a machine, as a power cut does, and puts a new one in its place later."""
    (raylet,) = [each for each in raylets.list_all_nodes() if each.node_id == node]
    raylets.remove_node(raylet, allow_graceful=False)


@pytest.fixture
def whole(three: Any) -> Iterator[Any]:
    """All three of them, whatever a test does."""
    yield three
    while len(three.list_all_nodes()) < 3:
        three.add_node(**three.store)
    three.wait_for_nodes()


@pytest.mark.deploy
def test_three_machines_listen_to_each_other_only(three):
    """As a private cluster does, so that no test opens a door."""
    with connected(three.address) as cluster:
        assert len(cluster.staff()) == 3
        assert listening(descendants()) <= LOOPBACK
        (head,) = pages(descendants())
        assert "--disable-frontend" in head


@pytest.mark.deploy
def test_every_method_agrees_on_three_machines(three, monkeypatch):
    """All hold clients, and get models through Ray's store."""
    monkeypatch.setattr("fedcohort.engines.shards.TOGETHER", 1)
    monkeypatch.setattr("fedcohort.engines.ray.SMALL", 0)
    with connected(three.address) as cluster:
        for text in EVERYTHING:
            method, task = Method.parse(text), tiny_task()
            engine = RayEngine(task.for_method(method), cluster)
            assert len({*engine.holder.values()}) == (1 if method.pooled else 3), text
            state = play(method, task, 2, engine=engine)[0]
            for ours, theirs in zip(state.groups, history(method)[2].groups, strict=True):
                gap = float((ours.weights.params - theirs.weights.params).abs().max())
                assert gap < 1e-5, text
        assert len(cluster.machines) == 3


@pytest.mark.deploy
@pytest.mark.parametrize("text", ["fedavg", "median"])
def test_a_machine_killed_in_the_middle_of_a_round_costs_nothing(text, whole, monkeypatch):
    """It is frozen with an order in its hands, then killed."""
    monkeypatch.setattr("fedcohort.engines.shards.TOGETHER", 1)
    method, task = Method.parse(text), tiny_task(cohort=8)
    with connected(whole.address) as cluster:
        state = play(method, task, 1, engine=RayEngine(task, cluster))[0]
        undisturbed = play(method, task, 2, state, engine=RayEngine(task, cluster))[0]
        engine = RayEngine(task, cluster)
        victim = next(m for m in cluster.machines if m.node != _here() and m in engine.holder.values())
        (pid,) = heard([victim.actor.__ray_call__.remote(lambda self: os.getpid())])
        os.kill(pid, signal.SIGSTOP)
        killer = threading.Timer(2.0, lambda: (without(whole, victim.node), _kill(pid)))
        killer.start()
        after = play(method, task, 2, state, engine=engine)[0]
        killer.join()
        assert_same(after, undisturbed, "a machine was killed")
        assert len(cluster.machines) == 2


def _here() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.deploy
@pytest.mark.parametrize("shared", [True, False])
def test_runs_are_spread_and_come_back_as_the_same_bytes(shared, three, tmp_path, monkeypatch):
    if not shared:
        monkeypatch.setattr(ray_pool.Sign, "is_seen", property(lambda self: False))
        monkeypatch.setattr(ray_pool, "_sign", _elsewhere)
    methods = {"method": ["fedavg", "scaffold"], "seeds": [0, 1]}
    home, outcomes = compare(asked(three.address, **methods), tmp_path / "far", Silent())
    alone, others = compare(asked("", **methods), tmp_path / "near", Silent())
    assert tables(home) == tables(alone)
    assert [outcome.metrics for outcome in outcomes] == [outcome.metrics for outcome in others]
    assert not list(home.glob(".shared-*"))


class _elsewhere:  # noqa: N801  # stands in for a context manager
    """A sign that nobody on another machine finds."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __enter__(self) -> ray_pool.Sign:
        return ray_pool.Sign(self.home / "nowhere", "")

    def __exit__(self, *about: object) -> None: ...


@pytest.mark.deploy
def test_a_machine_killed_under_its_run_leaves_it_to_another(whole, tmp_path):
    many = asked(whole.address, method=["fedavg", "scaffold", "fedprox"], rounds=400)
    victims: list[str] = []

    class Kills(Silent, Callback):
        """After some rounds."""

        def begin(self, *about: Any) -> Any:
            return self

        def after_round(self, state: Any, *about: Any) -> bool:
            if state.round == 50 and not victims:
                victims.append(next(n["NodeID"] for n in Cluster().nodes() if n["NodeID"] != _here()))
                without(whole, victims[0])
            return False

        def close(self, state: Any) -> None: ...

    home, _ = compare(many, tmp_path / "far", Kills())
    near = asked("", method=["fedavg", "scaffold", "fedprox"], rounds=400)
    alone, _ = compare(near, tmp_path, Silent())
    assert victims
    assert tables(home) == tables(alone)


@pytest.mark.deploy
def test_a_machine_killed_while_processes_start_there_is_left_out(whole, tmp_path, monkeypatch):
    victims: list[str] = []

    def too_late(kind: type, node: str, *about: Any) -> Any:
        if not victims and node != _here():
            victims.append(node)
            without(whole, node)
        return clusters.placed(kind, node, *about)

    monkeypatch.setattr(ray_pool, "placed", too_late)
    methods = {"method": ["fedavg", "scaffold", "fedprox"]}
    home, _ = compare(asked(whole.address, **methods), tmp_path / "far", Silent())
    alone, _ = compare(asked("", **methods), tmp_path / "near", Silent())
    assert victims
    assert tables(home) == tables(alone)


def test_who_is_left_on_a_machine_gets_the_cores_of_those_who_are_done(monkeypatch):
    """Of three on a machine of four cores, and one on another; who gets a run again gets its share back."""
    told: list[tuple[str, int]] = []

    def member(name: str, cores: int) -> ray_pool.RayMember:
        actor = SimpleNamespace(use=SimpleNamespace(remote=lambda cores: told.append((name, cores))))
        about = {"NodeID": name[0], "Resources": {"CPU": 4.0 if name[0] == "a" else 1.0}}
        job: Any = "a run"
        return ray_pool.RayMember(about, cores, actor, Listener(Silent()), job)

    def after(*done: bool) -> list[tuple[str, int]]:
        told.clear()
        for each, is_done in zip(pool.members, done, strict=True):
            each.job = None if is_done else "a run"
        pool._spread()
        return list(told)

    pool = object.__new__(ray_pool.RayPool)
    pool.members = [member("a1", 2), member("a2", 1), member("a3", 1), member("b1", 1)]
    assert after(False, False, False, False) == []
    assert after(True, False, False, False) == [("a2", 2), ("a3", 2)]
    assert after(True, False, True, True) == [("a2", 4)]
    assert after(True, True, True, True) == []
    assert after(False, False, False, True) == [("a2", 1), ("a3", 1)]
    monkeypatch.setattr("fedcohort.engines.pool.CORES", 1)
    object.__new__(ray_pool.Runner).use(3)
    assert PoolEngine(tiny_task()).pool._max_workers == 3


@pytest.mark.deploy
def test_a_machine_that_is_not_there_any_more_is_lost(three):
    with connected(three.address), pytest.raises(clusters.LostError, match="doesn't exist any more"):
        heard([clusters.placed(clusters.RayHost, "ab" * 28, 1).about.remote()])


def test_processes_that_never_began_are_left_out(tmp_path, monkeypatch):
    """Of four on two machines one answers, and then none does: that is said."""
    numbers, about = itertools.count(), {"NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}}

    def placed(*about: Any) -> Any:
        number = next(numbers)
        return SimpleNamespace(about=SimpleNamespace(remote=lambda: number))

    def heard(calls: list[int]) -> list[Any]:
        if calls == [2]:
            return [clusters.versions()]
        raise clusters.LostError

    monkeypatch.setattr(ray_pool, "placed", placed)
    monkeypatch.setattr(ray_pool, "heard", heard)
    cluster: Any = SimpleNamespace(nodes=lambda: [{**about, "NodeID": "a"}, {**about, "NodeID": "b"}])
    one, none = (ray_pool.RayPool(cluster, 4, Silent()) for _ in range(2))
    assert [member.actor.about.remote() for member in one.members] == [2]
    plan = prepare(asked("local"), tmp_path)
    with pytest.raises(UserError, match="no machine of the Ray cluster is left"):
        none.carry_out(Timed(Silent(), Schedule(plan.jobs)), plan.home, sent=True)


@pytest.mark.deploy
@pytest.mark.parametrize("methods", [["fedavg"], ["fedavg", "scaffold", "fedprox"]])
def test_a_killed_driver_resumes_to_the_same_bytes(methods, three, tmp_path, monkeypatch):
    """Of one run with its clients on all machines, and of runs on all machines."""
    many = {
        "cohort": 24,
        "data": {**ASKED["data"], "samples": 900},
        "partition": {**ASKED["partition"], "clients": 30},
    }
    table = {**ASKED, **many, "method": methods, "rounds": 300, "evaluate": {"on": "test"}}
    holders, hold = set[str](), RayEngine._hold

    def noted(self: RayEngine, wanted: dict[int, Machine]) -> None:
        holders.update(machine.node for machine in wanted.values())
        hold(self, wanted)

    monkeypatch.setattr(RayEngine, "_hold", noted)
    whole, _ = compare(Experiment.of({**table, "run": {"ray": three.address}}), tmp_path / "whole", Silent())
    assert len(holders) == (3 if len(methods) == 1 else 0)
    (tmp_path / "far.toml").write_text(tomli_w.dumps(table))
    words = [
        sys.executable,
        "-m",
        "fedcohort",
        "run",
        "far.toml",
        "--ray",
        three.address,
        "--out",
        "cut",
        "--json",
    ]
    driver = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(b"\n40," in path.read_bytes() for path in tmp_path.glob("cut/*/*/table.csv")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    (home,) = (tmp_path / "cut").iterdir()
    words = [
        sys.executable,
        "-m",
        "fedcohort",
        "run",
        "--resume",
        str(home),
        "--ray",
        three.address,
        "--json",
    ]
    deadline = time.monotonic() + 60
    while True:  # its processes end when Ray has noticed
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0 or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["runs"]) == len(methods)
    assert tables(home) == tables(whole)


def a_table(folder: Path) -> dict[str, str]:
    """Data that can be read again."""
    (folder / "data.csv").write_text("a,b,label\n" + "\n".join(f"{n},{n % 3},{n % 2}" for n in range(80)))
    return {"source": "table", "path": str(folder / "data.csv"), "label": "label"}


@pytest.mark.deploy
@pytest.mark.parametrize("methods", [["fedavg"], ["fedavg", "scaffold", "fedprox"]])
def test_data_that_machines_read_themselves_are_the_same(methods, three, tmp_path, monkeypatch):
    """For clients of one run on all machines, and for runs, whose tables are the same bytes."""
    monkeypatch.setattr("fedcohort.engines.shards.TOGETHER", 1)
    table = {**ASKED, "method": methods, "data": a_table(tmp_path)}
    means = {"ray": three.address, "data": "read"}
    home, far = compare(Experiment.of({**table, "run": means}), tmp_path / "far", Silent())
    alone, near = compare(Experiment.of(table), tmp_path / "near", Silent())
    for ours, theirs in zip(far, near, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, abs=1e-5)
    assert len(methods) == 1 or tables(home) == tables(alone)


@pytest.mark.deploy
def test_data_that_a_machine_cannot_read_are_named_with_it(three, tmp_path):
    """It is asked to read them itself, from where they were when the comparison was asked for. That is no
    fault of a run: it ends them all."""
    data = a_table(tmp_path)
    experiment = Experiment.of({**ASKED, "data": data, "run": {"ray": three.address, "data": "read"}})
    plan = prepare(experiment, tmp_path)
    (tmp_path / "data.csv").rename(tmp_path / "gone.csv")
    with pytest.raises(UserError, match=r"^on .*data\.csv.*: put the data at the same path on all machines"):
        carry_out(plan, Silent())
    (tmp_path / "gone.csv").rename(tmp_path / "data.csv")
    carry_out(plan, Silent())


@pytest.mark.deploy
def test_a_machine_with_other_versions_is_refused(three, monkeypatch):
    monkeypatch.setattr(clusters, "versions", lambda: {"fedcohort": "9.9"})
    with pytest.raises(UserError, match=r"fedcohort is 9\.9 here and"), connected(three.address) as cluster:
        cluster.staff()
