"""The laws every method keeps: each takes a Method and raises AssertionError with a sentence when it is
broken."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from fedcohort.core.evaluate import in_use
from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.roles.optional import Asks, Polls
from fedcohort.core.round.cohort import choose_all
from fedcohort.core.round.loop import Report
from fedcohort.core.round.misfit import misfit
from fedcohort.core.round.questions import answered
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.method_catalogue import remarks_on
from fedcohort.stats.clustering.remembered import forget
from fedcohort.testing.faulty import Backwards, NobodyTells, OneBreaks, OneTells, with_one_class, with_sizes
from fedcohort.testing.tiny import ROUNDS, accuracy, assert_same, copied, history, play, tiny_task, untouched
from fedcohort.util.settings import build


def check_method(method: Method | str) -> None:
    """Runs the whole contract on one method."""
    method = Method.parse(method) if isinstance(method, str) else method
    for check in CHECKS:
        check(method)


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
    """The same seed gives the same bytes; a selector that draws by lot draws others with another seed."""
    half = ROUNDS // 2  # the other half is played again by the next law
    first = history(method)[half]
    forget()
    assert_same(first, play(method, tiny_task(), half)[0], f"{method} run twice")
    assert not _draws_alike(method), f"{method} chooses the same clients whatever the seed"


def check_resumes(method: Method) -> None:
    """A run restored from its packed state ends like one that was never interrupted."""
    whole, half = history(method)[-1], history(method)[ROUNDS // 2]
    resumed = play(method, tiny_task(), ROUNDS - ROUNDS // 2, copied(half))[0]
    assert_same(resumed, whole, f"{method} resumed")


def check_is_pure(method: Method) -> None:
    """A step leaves the state it was given as it was."""
    for state, copy in zip(history(method), untouched(method), strict=True):
        assert_same(state, copy, f"{method}: a step changed its input")


def check_order_is_irrelevant(method: Method) -> None:
    """The order in which clients work and answer does not matter."""
    task, states = tiny_task(), history(method)
    for number in (0, ROUNDS - 1):  # where nobody remembers anything, and where there is most to remember
        after = play(method, task, 1, states[number], Backwards(task.for_method(method)))[0]
        assert_same(after, states[number + 1], f"{method} with clients in reverse")


def check_engines_agree(method: Method) -> None:
    """Every engine gives what the reference loop gives, however many workers it has."""
    task = tiny_task()
    reference = history(method)[2]
    fitted = task.for_method(method)
    alone = PoolEngine(fitted, workers=1)
    halfway = play(method, task, 1, engine=alone)[0]
    pool = play(method, task, 1, halfway, alone)[0]
    batched = play(method, task, 2, engine=BatchedEngine(fitted, "cpu"))[0]
    for name, state in (("pool", pool), ("batched", batched)):
        for ours, theirs in zip(state.groups, reference.groups, strict=True):
            gap = float((ours.weights.params - theirs.weights.params).abs().max())
            assert gap < 1e-5, f"{method}: the {name} engine is {gap:.1e} away from the reference"
    several = play(method, task, 1, halfway, PoolEngine(fitted, workers=3))[0]  # now all parts remember
    assert_same(several, pool, f"{method} with more workers")


def check_serves(method: Method) -> None:
    """Every client is served by one model that is made of numbers, the same on every engine, also where a
    client that trains for itself arrives at none."""
    task, state = tiny_task().for_method(method), history(method)[-1]
    engines = (ReferenceEngine, Backwards, PoolEngine, BatchedEngine, OneBreaks)
    served = {kind.__name__: _served(method, state, task, kind(task)) for kind in engines}
    for name, models in served.items():
        assert models.isfinite().all(), f"{method}: a client is served by what is no number ({name})"
        if name != OneBreaks.__name__:
            gap = float((models - served[ReferenceEngine.__name__]).abs().max())
            assert gap < 1e-5, f"{method}: clients are served by other models, {gap:.1e} away, by {name}"


def check_shapes_stay(method: Method) -> None:
    """Every memory looks as it did before the first round; new groups look like old ones, and what a client
    remembers like what one remembers that never trained."""
    task = tiny_task().for_method(method)
    for state in history(method):
        wrong = misfit(state, method, task)
        assert not wrong, f"{method}: {wrong} looks different after {state.round} rounds"


def check_chooses_fairly(method: Method) -> None:
    """A cohort is made of distinct clients that have data, as many as wanted at most, and is never empty."""
    for cohort in (4, 100):
        task = _one_has_nothing(cohort)
        state, reports = play(method, task, 1)
        assert all(len(report.selected) for report in reports), f"{method} chose nobody"
        _check_cohorts(method, task, state, ReferenceEngine(task.for_method(method)))


def check_survives_dropout(method: Method) -> None:
    """Clients that fail cost no more than their own update; when all do, nothing moves."""
    state, reports = play(method, tiny_task(faults=Faults(dropout=0.5)), 2, history(method)[1])
    assert _finite(state, reports), f"{method} with dropout is not finite"
    if method.pooled:
        return  # there is nobody to lose
    assert any(len(report.lost) for report in reports)
    _check_stays(method, tiny_task(faults=Faults(dropout=1.0)))


def check_survives_stragglers(method: Method) -> None:
    """Slow clients count with the steps they took, or are lost when what is late is dropped."""
    slow = tiny_task(faults=Faults(stragglers=1.0, straggler_draw="redraw"))
    state, reports = play(method, slow, 2)
    assert _finite(state, reports), f"{method} with stragglers is not finite"
    assert all(len(report.answered) for report in reports), f"{method} lost clients that were only slow"
    if not method.pooled:
        _check_stays(method, tiny_task(faults=Faults(stragglers=1.0, straggler_result="drop")))


def check_survives_nonsense(method: Method) -> None:
    """An update or a loss that is not a number costs no more than the client it came from."""
    task = tiny_task()
    if not method.pooled:
        state, reports = play(method, task, 2, history(method)[1], OneBreaks(task))
        assert _finite(state, reports), f"{method} averaged a NaN"
        noticed = method.silent or any(len(report.rejected) for report in reports)
        assert noticed, f"{method} did not notice a NaN"
    for mute in (OneTells, NobodyTells) if _asks(method) else ():  # fewer candidates than the cohort
        engine = mute(task.for_method(method))
        state, reports = play(method, task, 1, engine=engine)
        _check_cohorts(method, task, state, engine)
        later, more = play(method, task, 1, state, engine)
        assert _finite(later, [*reports, *more]), f"{method} is not finite when losses are not"


def check_edges(method: Method) -> None:
    """One client; data at one client alone; clients with one class, or one example; everybody trains."""
    for what, task in _edges().items():
        state, reports = play(method, task, 2)
        assert _finite(state, reports), f"{method} fails with {what}"
        assert all(len(report.answered) for report in reports), f"{method} trains nobody with {what}"


def check_learns(method: Method) -> None:
    """Easy data are learned: from chance to something useful in a few rounds."""
    task = tiny_task(local=Local(lr=0.4, epochs=4, batch=16))
    state = play(method, task, 8, engine=PoolEngine(task.for_method(method), workers=1))[0]
    reached = accuracy(method, task, state)
    assert reached > 0.7, f"{method} reaches only {reached:.0%} on separable blobs"


CHECKS: tuple[Callable[[Method], None], ...] = (
    check_declaration,
    check_repeats,
    check_resumes,
    check_is_pure,
    check_order_is_irrelevant,
    check_engines_agree,
    check_serves,
    check_shapes_stay,
    check_chooses_fairly,
    check_survives_dropout,
    check_survives_stragglers,
    check_survives_nonsense,
    check_edges,
    check_learns,
)


@cache
def _one_has_nothing(cohort: int) -> Task:
    return with_sizes(tiny_task(cohort=cohort), {0: 0})


@cache
def _edges() -> dict[str, Task]:
    """Federations at the edge of what there may be."""
    brief = Local(lr=0.2, epochs=1, batch=24)
    everybody = tiny_task(cohort=100, local=brief)
    return {
        "a single client": tiny_task(clients=1, cohort=1, local=brief),
        "data at a single client": with_sizes(tiny_task(local=brief), dict.fromkeys(range(7), 0)),
        "a client of one example and one of one class": with_sizes(with_one_class(everybody, 2), {0: 1}),
        "nothing but one-class clients": with_one_class(tiny_task(local=brief), 8),
    }


def _served(method: Method, state: State, task: Task, engine: ReferenceEngine) -> Tensor:
    """``[N, P]``: the model of each client."""
    models, _ = in_use(method, state, task, engine)
    clients = torch.cat([members for _, members in models])
    assert clients.sort().values.equal(torch.arange(task.federation.num_clients)), (
        f"{method}: {clients.tolist()} are served by a model, and not each client by one"
    )
    rows = [model["params"] for model, members in models for _ in members]
    return torch.stack(rows)[clients.argsort()]


def _asks(method: Method) -> bool:
    """Whether clients are asked how well models fit them."""
    return isinstance(method.selector, Polls) or isinstance(method.grouping, Asks)


def _finite(state: State, reports: Sequence[Report]) -> bool:
    """Whether the method made numbers only: what is none, the loop takes back and reports."""
    kept = not any(len(report.spoilt) for report in reports)
    return kept and all(bool(group.weights.params.isfinite().all()) for group in state.groups)


def _draws_alike(method: Method) -> bool:
    """Whether a selector chooses others in another round, but the same ones with another seed."""
    ours = list(_cohorts_drawn(method, 0))
    if all(cohorts == ours[0] for cohorts in ours):
        return False  # nothing is drawn
    return all(mine == other for mine, other in zip(ours, _cohorts_drawn(method, 1), strict=True))


def _cohorts_drawn(method: Method, seed: int) -> Iterator[list[list[int]]]:
    """Whom a selector of this seed chooses in eight rounds, where nothing changes but the round."""
    task = tiny_task().for_method(method)
    state, own = history(method)[0], dataclasses.replace(task.profile(method), seed=seed)
    memory = method.selector.init_selector(own)
    groups = tuple(dataclasses.replace(group, selector=memory) for group in state.groups)
    for number in range(8):
        now = dataclasses.replace(state, round=number, groups=groups)
        choices = answered(choose_all(method, now, task, own), ReferenceEngine(task))[1]
        yield [choice.now.selected.tolist() for choice in choices]


def _check_cohorts(method: Method, task: Task, state: State, engine: ReferenceEngine) -> None:
    """What the selector itself chooses in the next round, group by group."""
    task = task.for_method(method)
    for choice in answered(choose_all(method, state, task, task.profile(method)), engine)[1]:
        chosen, members = choice.now.selected.tolist(), set(choice.now.members.tolist())
        assert len(set(chosen)) == len(chosen), f"{method} chose a client twice: {chosen}"
        assert set(chosen) <= members, f"{method} chose {chosen}, not all of them members with data"
        assert len(chosen) <= choice.now.cohort, f"{method} chose {chosen}, more than {choice.now.cohort}"


def _check_stays(method: Method, task: Task) -> None:
    """Where nobody answers, rounds pass and nothing else."""
    before, (after, _) = play(method, task, 0)[0], play(method, task, 2)
    assert after.round == 2
    same = torch.equal(after.groups[0].weights.params, before.groups[0].weights.params)
    assert same, f"{method} moved although nobody answered"
    assert not after.clients, f"{method}: clients that never answered remember something"
