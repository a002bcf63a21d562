"""The contract every method keeps, as checks anyone can run on theirs.

>>> from fedcohort.testing import check_method
>>> check_method("fedprox(mu=0.1)")

``CHECKS`` is the list; each takes a Method and raises AssertionError with a sentence when a law is broken.
The project runs all of them on every registered method, so a new file is tested before its author writes a
test.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedcohort.catalogue import remarks_on
from fedcohort.core.faults import Faults
from fedcohort.core.loop import Report, start, step
from fedcohort.core.merge import present
from fedcohort.core.method import Method
from fedcohort.core.parts import Objective
from fedcohort.core.profile import Local
from fedcohort.core.settings import build
from fedcohort.core.state import State, pack, unpack
from fedcohort.core.task import Task
from fedcohort.data import Federation, Split, SplitPlan, federate, load
from fedcohort.engines import Answer, Engine, Order
from fedcohort.engines.loop import LoopEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.evaluate import score, serving, settle
from fedcohort.partition import partitioner

ROUNDS = 4


def check_method(method: Method | str) -> None:
    """Runs the whole contract on one method."""
    method = Method.parse(method) if isinstance(method, str) else method
    for check in CHECKS:
        check(method)


def tiny_task(seed: int = 0, clients: int = 8, **conditions: Any) -> Task:
    """Twelve-dimensional blobs of four classes on a few skewed clients: a round takes milliseconds."""
    data = load("synthetic", samples=320, classes=4, features=12, spread=0.5)
    deal = partitioner("dirichlet", clients=clients, alpha=0.5, min_size=8)
    federation = federate(data, deal, SplitPlan(validation=0.2), seed)
    given = {"local": Local(lr=0.1, epochs=2, batch=8), "cohort": 4, "seed": seed, **conditions}
    return Task.of(federation, "mlp", {"widths": [8]}, **given)


def play(
    method: Method, task: Task, rounds: int = ROUNDS, state: State | None = None, engine: Engine | None = None
) -> tuple[State, list[Report]]:
    """``rounds`` rounds from ``state`` (or the start), with what happened in each."""
    task = task.for_method(method)
    profile = task.profile(method)
    state = start(method, task, profile) if state is None else state
    reports = []
    for _ in range(rounds):
        state, report = step(method, state, task, profile, engine or LoopEngine(task))
        reports.append(report)
    return state, reports


def accuracy(method: Method, task: Task, state: State) -> float:
    """Of all test samples, each answered by the model that serves its client."""
    task = task.for_method(method)
    task, engine = present(method, state, task, LoopEngine(task))
    scores = score(serving(method, settle(method, state, task, engine)), task, engine)
    return float(scores.correct.sum() / scores.total.sum())


def assert_same(ours: State, theirs: State, sentence: str) -> None:
    """Bit for bit."""
    a, b = pack(ours), pack(theirs)
    assert a.keys() == b.keys(), f"{sentence}: {sorted(a.keys() ^ b.keys())} are only in one of them"
    for key in a:
        same = a[key].dtype == b[key].dtype and torch.equal(a[key].nan_to_num(), b[key].nan_to_num())
        assert same, f"{sentence}: '{key}' differs"


def check_declaration(method: Method) -> None:
    """Every part is frozen, documented, and rebuilt by its own settings and its own spelling."""
    for part in method.parts:
        cls = type(part)
        assert cls.__dataclass_params__.frozen, f"{part.name} is not a frozen dataclass"  # type: ignore[attr-defined]
        module = inspect.getmodule(cls)
        assert cls.__doc__, f"{part.name} has no docstring"
        assert getattr(module, "__doc__", None), f"the file of {part.name} does not name its paper"
        settings = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}  # type: ignore[arg-type]
        silent = [name for name in settings if not remarks_on(cls).get(name)]
        assert not silent, f"{part.name}: no comment says what {silent} means"
        assert build(cls, settings, part.name) == part, f"{part.name} does not accept its own settings"
    assert Method.parse(str(method)) == method, f"{method} is not what its text parses to"


def check_repeats(method: Method) -> None:
    """The same seed gives the same bytes, another seed other bytes."""
    once, again = play(method, tiny_task())[0], play(method, tiny_task())[0]
    assert_same(once, again, f"{method} run twice")
    other = play(method, tiny_task(seed=1))[0]
    params = once.groups[0].weights.params, other.groups[0].weights.params
    assert not torch.equal(*params), f"{method} does not depend on the seed"


def check_resumes(method: Method) -> None:
    """A run restored from its packed state ends like one that was never interrupted."""
    task = tiny_task()
    whole = play(method, task)[0]
    half = play(method, task, ROUNDS // 2)[0]
    restored = unpack({key: value.clone() for key, value in pack(half).items()})
    assert_same(play(method, task, ROUNDS - ROUNDS // 2, restored)[0], whole, f"{method} resumed")


def check_is_pure(method: Method) -> None:
    """A step leaves the state it was given as it was."""
    task = tiny_task()
    before = play(method, task, 2)[0]
    copy = unpack({key: value.clone() for key, value in pack(before).items()})
    play(method, task, 1, before)
    assert_same(before, copy, f"{method}: a step changed its input")


def check_order_is_irrelevant(method: Method) -> None:
    """The order in which clients work and answer does not matter."""
    task = tiny_task()
    straight = play(method, task)[0]
    engine = _Backwards(task.for_method(method))
    assert_same(play(method, task, engine=engine)[0], straight, f"{method} with clients in reverse")


def check_engines_agree(method: Method) -> None:
    """Every engine gives what the reference loop gives, however many workers it has."""
    task = tiny_task()
    reference = play(method, task, 2)[0]
    fitted = task.for_method(method)
    runs = [play(method, task, 2, engine=PoolEngine(fitted, workers))[0] for workers in (1, 2, 4)]
    for ours, theirs in zip(runs[0].groups, reference.groups, strict=True):
        gap = float((ours.weights.params - theirs.weights.params).abs().max())
        assert gap < 1e-5, f"{method}: the pool engine is {gap:.1e} away from the reference"
    for other in runs[1:]:
        assert_same(other, runs[0], f"{method} with more workers")


def check_shapes_stay(method: Method) -> None:
    """Names and shapes of every memory are the same after each round; new groups look like old ones."""
    task, state = tiny_task(), None
    seen: dict[str, dict[str, Any]] = {}
    for _ in range(ROUNDS):
        state, _ = play(method, task, 1, state)
        for group in state.groups:
            for role in ("selector", "aggregator"):
                _compare_shapes(seen, f"{method}: {role}", getattr(group, role))
        _compare_shapes(seen, f"{method}: grouping", state.grouping)


def check_chooses_fairly(method: Method) -> None:
    """A cohort is made of distinct clients that have data, and is never empty."""
    task = _with_empty_client(tiny_task())
    sizes = task.for_method(method).federation.train.sizes
    for report in play(method, task)[1]:
        chosen = report.selected.tolist()
        assert chosen, f"{method} chose nobody"
        assert len(set(chosen)) == len(chosen), f"{method} chose a client twice: {chosen}"
        assert bool((sizes[chosen] > 0).all()), f"{method} chose a client without data: {chosen}"


def check_survives_faults(method: Method) -> None:
    """Clients that fail, come late or answer nonsense cost no more than their own update."""
    rough = Faults(dropout=0.5, stragglers=0.5)
    state, reports = play(method, tiny_task(faults=rough))
    assert _finite(state), f"{method} with dropout is not finite"
    if method.pooled:
        return
    assert any(len(report.lost) for report in reports)
    nobody = tiny_task(faults=Faults(dropout=1.0))
    before = play(method, nobody, 0)[0]
    after = play(method, nobody, 2)[0]
    assert after.round == 2
    same = torch.equal(after.groups[0].weights.params, before.groups[0].weights.params)
    assert same, f"{method} moved although nobody answered"
    task = tiny_task()
    state, reports = play(method, task, engine=_OneBreaks(task))
    assert _finite(state), f"{method} averaged a NaN"
    if not method.silent:
        assert any(len(report.rejected) for report in reports), f"{method} did not notice a NaN"


def check_edges(method: Method) -> None:
    """One client; a client with one example; one class; a cohort larger than the federation."""
    one = tiny_task(clients=1, cohort=1)
    assert _finite(play(method, one, 2)[0]), f"{method} fails with a single client"
    lonely = _with_sizes(tiny_task(), {0: 1})
    assert _finite(play(method, lonely, 2)[0]), f"{method} fails with a client of one example"
    assert _finite(play(method, _with_one_class(tiny_task()), 2)[0]), (
        f"{method} fails with a one-class client"
    )
    assert _finite(play(method, tiny_task(cohort=100), 2)[0]), f"{method} fails when everybody trains"


def check_learns(method: Method) -> None:
    """Easy data are learned: from chance to something useful in a few rounds."""
    task = tiny_task(local=Local(lr=0.2, epochs=4, batch=8))
    state = play(method, task, 12)[0]
    reached = accuracy(method, task, state)
    assert reached > 0.7, f"{method} reaches only {reached:.0%} on separable blobs"


CHECKS: tuple[Callable[[Method], None], ...] = (
    check_declaration,
    check_repeats,
    check_resumes,
    check_is_pure,
    check_order_is_irrelevant,
    check_engines_agree,
    check_shapes_stay,
    check_chooses_fairly,
    check_survives_faults,
    check_edges,
    check_learns,
)


class _Backwards(LoopEngine):
    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return super().train(objective, list(reversed(orders)), number)


class _OneBreaks(LoopEngine):
    """The first client of each cohort answers with NaN."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        answers = super().train(objective, orders, number)
        broken = {key: torch.full_like(value, torch.nan) for key, value in answers[0].up.items()}
        return [answers[0]._replace(up=broken), *answers[1:]]


def _finite(state: State) -> bool:
    return all(bool(group.weights.params.isfinite().all()) for group in state.groups)


def _compare_shapes(seen: dict[str, dict[str, Any]], who: str, memory: dict[str, Tensor]) -> None:
    shapes = {key: (tuple(value.shape), value.dtype) for key, value in memory.items()}
    first = seen.setdefault(who, shapes)
    assert first == shapes, f"{who} memory changed from {first} to {shapes}"


def _with_train(task: Task, rows: Callable[[int, Tensor], Tensor]) -> Task:
    federation: Federation = task.federation
    train = federation.train
    kept = [rows(client, train.rows(client)) for client in range(federation.num_clients)]
    return replace(task, federation=replace(federation, train=Split.of(train.x, train.y, kept)))


def _with_empty_client(task: Task) -> Task:
    return _with_sizes(task, {0: 0})


def _with_sizes(task: Task, sizes: dict[int, int]) -> Task:
    return _with_train(task, lambda client, rows: rows[: sizes.get(client, len(rows))])


def _with_one_class(task: Task) -> Task:
    y = task.federation.train.y
    return _with_train(task, lambda client, rows: rows if client else rows[y[rows] == y[rows[0]]])
