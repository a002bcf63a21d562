"""A method is one part for each of the four roles; this is how parts are named, found and put together.

``fedlecc+fedprox(mu=0.01)+fedavgm`` on the command line, a list of tables in TOML and ``Method.of(...)`` in
Python are the same thing. A role that no part claims gets its default.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from fedcohort.core.profile import Privacy, Profile
from fedcohort.core.roles import ROLES, Aggregator, Grouping, Objective, Part, Selector
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.registry import Registry
from fedcohort.util.settings import build

METHODS: Registry[Part] = Registry("method", "fedcohort.methods", "fedcohort.methods")
register = METHODS.register
SPARE = 16  # groups that a federation may have however few its clients are
DEFAULTS = {"selector": "uniform", "objective": "plain", "aggregator": "fedavg", "grouping": "one"}


def roles_of(part: type[Part]) -> list[str]:
    return [role for role, cls in ROLES.items() if issubclass(part, cls)]


@dataclass(frozen=True)
class Method:
    """One part per role; a part that holds several roles appears in each."""

    selector: Selector
    objective: Objective
    aggregator: Aggregator
    grouping: Grouping
    label: str = field(default="", compare=False)  # what results call it, if not by its text

    @classmethod
    def of(cls, *parts: Part) -> "Method":
        claimed: dict[str, Part] = {}
        for part in parts:
            for role in roles_of(type(part)):
                if role in claimed:
                    article = "an" if role[0] in "aeiou" else "a"
                    raise UserError(
                        f"{claimed[role].name} and {part.name} cannot be combined: each is {article} {role}, "
                        f"and a method has one"
                    )
                claimed[role] = part
        for role, name in DEFAULTS.items():
            if role not in claimed:
                claimed[role] = METHODS.get(name)()
        method = cls(**cast(dict[str, Any], claimed))
        method._refuse_nonsense()
        return method

    @classmethod
    def parse(cls, text: str) -> "Method":
        """``"fedlecc+fedprox(mu=0.01)"`` as a method."""
        return cls.of(*(make(name, values) for name, values in parse(text)))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The distinct parts, in the order of the roles."""
        held = (self.selector, self.objective, self.aggregator, self.grouping)
        return tuple(part for i, part in enumerate(held) if not any(part is other for other in held[:i]))

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

    def privacy(self, given: Privacy) -> Privacy:
        for part in self.parts:
            given = part.privacy(given)
        return given

    def check(self, profile: Profile) -> None:
        merges = self.grouping.has_own("merges")
        if merges and profile.local.keeps_statistics(profile.model):
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
        if self.grouping.shared and not self.selector.heeds_odds:
            selector, grouping = self.selector.name, self.grouping.name
            raise UserError(
                f"{selector} and {grouping} cannot be combined: {grouping} wants clients drawn for each "
                f"model by how well it fits them, and {selector} chooses by a rule of its own; try uniform"
            )

    @property
    def title(self) -> str:
        """What results call it: its label, else its text."""
        return self.label or str(self)

    def __str__(self) -> str:
        """The shortest text that :meth:`parse` turns into this method."""
        defaults = set(DEFAULTS.values())
        shown = [text for part in self.parts if (text := _spell(part)) not in defaults]
        return "+".join(shown) or "fedavg"


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


def make(name: str, values: Mapping[str, Any], path: str | None = None) -> Part:
    """The named part with these hyper-parameters."""
    return build(METHODS.get(name), values, path or name)


def _spell(part: Part) -> str:
    changed = [
        f"{field.name}={getattr(part, field.name)!r}"
        for field in dataclasses.fields(cast(Any, part))
        if getattr(part, field.name) != field.default
    ]
    return f"{part.name}({', '.join(changed)})" if changed else part.name
