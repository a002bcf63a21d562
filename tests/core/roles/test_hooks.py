"""A hook of a role has at least two methods that use it: what one needs is in a class of its own."""

from fedcohort.core.adapting import Alone
from fedcohort.core.method import METHODS
from fedcohort.core.roles import ROLES, Part
from fedcohort.core.roles.optional import OPTIONS, Freezes

# Hooks with fewer, and why they are in their roles all the same.
FEW = {
    "Averaging.combine": "how weights become a move is what an averaging is; the median has no other hook",
    "Grouping.regroup": "after aggregation what `assign` is before it",
    "Adaptation.budget": "fine-tuning is the only adaptation",
    "Adaptation.frozen": "fine-tuning is the only adaptation",
    "Transform.init_client": "what `upload` needs to remember anything",
    "Transform.encode": "undone by `decode`",
    "Transform.decode": "undoes `encode`",
    "Transform.init_server": "what `receive` needs to remember anything",
    "Transform.receive": "at the server what `upload` is at the client",
}


def users(role: type[Part], hook: str) -> list[str]:
    """The methods of this role that do something of their own at a hook."""
    found = []
    for name in METHODS.names():
        cls = METHODS.get(name)
        owner = next((each for each in cls.__mro__ if hook in vars(each)), Part)
        if issubclass(cls, role) and owner.__module__.startswith("fedcohort.methods."):
            found.append(name)
    return found


def hooks(role: type[Part]) -> list[str]:
    return [name for name, value in vars(role).items() if callable(value) and not name.startswith("_")]


def test_few_hooks_have_one_user():
    places = [(role, hook) for role in (Part, *ROLES.values()) for hook in hooks(role) if hook != "has_own"]
    lonely = {f"{role.__name__}.{hook}" for role, hook in places if len(users(role, hook)) < 2}
    assert lonely == set(FEW)


def test_every_optional_class_has_a_user():
    parts = [METHODS.get(name) for name in METHODS.names()]
    assert [cls for cls in OPTIONS if not any(issubclass(part, cls) for part in parts)] == []
    assert issubclass(Alone, Freezes)  # what clients train when a method adapts to them
