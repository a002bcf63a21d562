"""A method is one part for each role and any number of transforms; this is how parts are named, found and
put together.

``fedlecc+fedprox(mu=0.01)+fedavgm+clip(1.0)`` on the command line, a list of tables in TOML and
``Method.of(...)`` in Python are the same thing. A role that no part claims gets its default.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from fedcohort.core.profile import Privacy, Profile
from fedcohort.core.roles import (
    ROLES,
    Adaptation,
    Averaging,
    Grouping,
    Objective,
    Part,
    Selector,
    ServerOptimiser,
    Transform,
)
from fedcohort.core.roles.optional import Hides, Merges, Summarises, adopt_hooks
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.registry import Registry
from fedcohort.util.settings import build, checked

METHODS: Registry[Part] = Registry("method", "fedcohort.methods", "fedcohort.methods")
MOST = 16  # transforms of one method
SPARE = 16  # groups that a federation may have however few its clients are
DEFAULTS = {
    "selector": "uniform",
    "objective": "plain",
    "averaging": "fedavg",
    "server_optimiser": "server_sgd",
    "grouping": "one",
    "adaptation": "unchanged",
}
P = TypeVar("P", bound=type[Part])


def register(cls: P) -> P:
    """Class decorator: the part is found by the name of its file."""
    if issubclass(cls, Transform) and len(roles_of(cls)) > 1:
        raise UserError(f"{cls.__name__}: a transform has no other role, make it a part of its own")
    adopt_hooks(cls)
    return METHODS.register(cls)


def roles_of(part: type[Part]) -> list[str]:
    return [role for role, cls in ROLES.items() if issubclass(part, cls)]


def spoken(role: str) -> str:
    """``an averaging``, ``a server optimiser``."""
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role.replace('_', ' ')}"


@dataclass(frozen=True)
class Method:
    """One part per role; a part that holds several roles appears in each."""

    selector: Selector
    objective: Objective
    averaging: Averaging
    server_optimiser: ServerOptimiser
    grouping: Grouping
    adaptation: Adaptation
    transforms: tuple[Transform, ...] = ()  # in the order in which they change an update
    label: str = field(default="", compare=False)  # what results call it, if not by its text

    @classmethod
    def of(cls, *parts: Part) -> "Method":
        claimed: dict[str, Part] = {}
        transforms = tuple(part for part in parts if isinstance(part, Transform))
        if len(transforms) > MOST:
            raise UserError(f"{len(transforms)} transforms are too many for one method: {MOST} at most")
        for part in parts:
            for role in (role for role in roles_of(type(part)) if role in DEFAULTS):
                if role in claimed:
                    raise UserError(
                        f"{claimed[role].name} and {part.name} cannot be combined: each is {spoken(role)}, "
                        f"and a method has one"
                    )
                claimed[role] = part
        for role, name in DEFAULTS.items():
            if role not in claimed:
                claimed[role] = METHODS.get(name)()
        method = cls(**cast(dict[str, Any], claimed), transforms=transforms)
        method._refuse_nonsense()
        return method

    @classmethod
    def parse(cls, text: str) -> "Method":
        """``"fedlecc+fedprox(mu=0.01)"`` as a method."""
        return cls.of(*(part for name, values in parse(text) for part in make(name, values)))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The distinct parts, in the order of the roles, and all transforms."""
        held: list[Part] = [getattr(self, role) for role in DEFAULTS]
        distinct = [part for i, part in enumerate(held) if not any(part is other for other in held[:i])]
        return (*distinct, *self.transforms)

    @property
    def transform_places(self) -> list[str]:
        """Where each transform remembers what it does, at clients and at the server."""
        return [f"transform{number}" for number in range(len(self.transforms))]

    @property
    def at_server(self) -> dict[str, Averaging | ServerOptimiser | Transform]:
        """The parts that remember something of each group at the server, by the place where they do."""
        alone = {} if self.averaging is self.server_optimiser else {"averaging": self.averaging}
        chain = dict(zip(self.transform_places, self.transforms, strict=True))
        return {**alone, "optimiser": self.server_optimiser, **chain}

    @property
    def summarising(self) -> list[Summarises]:
        """The parts that ask for a summary of each client's examples."""
        return [part for part in self.parts if isinstance(part, Summarises) and "summary" in part.uses()]

    @cached_property
    def uses(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.uses() for part in self.parts))

    @property
    def pooled(self) -> bool:
        """Whether all data are moved to one place before training: the centralised reference."""
        return any(part.pooled for part in self.parts)

    @property
    def everything(self) -> bool:
        """Whether clients train on what is held out for validation, too."""
        return any(getattr(part, "everything", False) for part in self.parts)

    @property
    def silent(self) -> bool:
        """Whether nothing is ever sent."""
        return any(part.silent for part in self.parts)

    @property
    def one_model(self) -> bool:
        """Whether the same model answers for every client once all rounds are done."""
        together = self.grouping.name == DEFAULTS["grouping"] or isinstance(self.grouping, Merges)
        return together and not self.objective.personal and not self.adapts

    @property
    def adapts(self) -> bool:
        """Whether a client may make something else of the model that serves it before it uses it."""
        return self.adaptation.has_own("budget")

    def privacy(self, given: Privacy) -> Privacy:
        for part in self.parts:
            given = part.privacy(given) if isinstance(part, Hides) else given
        return given

    def check(self, profile: Profile) -> None:
        if isinstance(self.grouping, Merges) and profile.local.keeps_statistics(profile.model):
            name = self.grouping.name
            raise UserError(
                f"{name} and local.bn = 'local' cannot be combined: {name} merges the groups' networks into "
                "one, and their BatchNorm statistics would stay with the clients; use 'average' or 'fresh'"
            )
        for part in self.parts:
            part.check(profile)
            _refuse_what_cannot_scale(part, profile)
            _refuse_empty_groups(part, profile)

    def _refuse_nonsense(self) -> None:
        """Raises UserError for parts that would run together, but not do what either of them is for."""
        for part in self.parts:
            silent = next((other for other in self.parts if other.silent and other is not part), None)
            if silent is not None and (asked := sorted(part.uses())):
                raise UserError(
                    f"{part.name} and {silent.name} cannot be combined: {part.name} asks clients for "
                    f"{' and '.join(asked)}, and with {silent.name} nothing is sent; try uniform"
                )
        why = "with it nothing is sent" if self.silent else self.objective.sent_as_it_is
        for part in self.transforms if why else ():
            raise UserError(
                f"{part.name} and {self.objective.name} cannot be combined: {part.name} changes an update on "
                f"its way; {self.objective.name} wants it as it is: {why}"
            )
        if self.grouping.shared and not self.selector.heeds_odds:
            selector, grouping = self.selector.name, self.grouping.name
            raise UserError(
                f"{selector} and {grouping} cannot be combined: {grouping} wants clients drawn for each "
                f"model by how well it fits them, and {selector} chooses by a rule of its own; try uniform"
            )

    @cached_property
    def title(self) -> str:
        """What results call it: its label, else its text."""
        return self.label or str(self)

    def __str__(self) -> str:
        """The shortest text that :meth:`parse` turns into this method and that names how it is trained."""
        defaults = set(DEFAULTS.values())
        shown = [part for part in self.parts if spell(part) not in defaults]
        trained = any(part is not self.adaptation or part is self.averaging for part in shown)
        return "+".join([*([] if trained else ["fedavg"]), *map(spell, shown)])


def _refuse_what_cannot_scale(part: Part, profile: Profile) -> None:
    """Whose matrices would not fit in this machine's memory."""
    if needed := part.server_bytes(profile):
        where = f"at the server for {profile.num_clients:,} clients"
        refuse_beyond(needed, part.name, "choose a method that scales, or fewer clients", where)


def _refuse_empty_groups(part: Part, profile: Profile) -> None:
    """Any method's defaults fit any federation; far more groups than clients would only take memory."""
    groups, most = getattr(part, "groups", 0), max(profile.num_clients, SPARE)
    if groups > most:
        raise UserError(
            f"{part.name}: {groups} groups are too many for {profile.num_clients} clients: "
            f"lower 'groups' to {most} at most"
        )


# Options of 0.1.0 that are parts of their own now: what they were by default, and the part that they became.
BECAME: dict[tuple[str, str], tuple[Any, str, str | None]] = {
    ("fedadagrad", "weighted"): (True, "fairavg", None),
    ("fedadam", "weighted"): (True, "fairavg", None),
    ("fedyogi", "weighted"): (True, "fairavg", None),
    ("fedavg", "server_lr"): (1.0, "server_sgd", "lr"),
    ("fednova", "momentum"): (0.0, "fedavgm", "beta"),
}


def options_of(name: str) -> list[str]:
    """What may be set at the named part: its hyper-parameters, and options that have become parts."""
    fields = dataclasses.fields(cast(Any, METHODS.get(name)))
    return [field.name for field in fields] + [option for owner, option in BECAME if owner == name]


def make(name: str, values: Mapping[str, Any], path: str | None = None) -> list[Part]:
    """The named part with these hyper-parameters, and the parts that some of them have become."""
    path, values, parts = path or name, dict(values), []
    for (owner, option), (default, part, setting) in BECAME.items():
        if owner == name and option in values:
            value = checked(values.pop(option), type(default), f"{path}.{option}")
            if value != default:
                given, now = {setting: value} if setting else {}, f"{path}.{option} is {part} now"
                parts.append(build(METHODS.get(part), given, now))
    return [build(METHODS.get(name), values, path), *parts]


def spell(part: Part) -> str:
    """The shortest text that makes it."""
    changed = [
        f"{field.name}={getattr(part, field.name)!r}"
        for field in dataclasses.fields(cast(Any, part))
        if getattr(part, field.name) != field.default
    ]
    return f"{part.name}({', '.join(changed)})" if changed else part.name
