"""Networks by name. A model is a frozen dataclass whose fields are its settings; ``build`` makes the module.

Any ``torch.nn.Module`` will do: in Python pass a function that makes one, in TOML name it
``"package.module:function"``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from fedcohort.core.flat import Flat
from fedcohort.core.registry import Registry
from fedcohort.core.settings import build as build_settings
from fedcohort.errors import UserError
from fedcohort.own_code import import_own, in_words


@dataclass(frozen=True)
class Model:
    """A network for examples of one shape and a number of classes."""

    name: ClassVar[str]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        raise NotImplementedError


MODELS: Registry[Model] = Registry("model", "fedcohort.models", "fedcohort.models")


def flat_model(
    model: str | Model | Callable[..., nn.Module],
    shape: tuple[int, ...],
    classes: int,
    settings: Mapping[str, Any] | None = None,
) -> Flat:
    """A model by name, by ``package.module:function``, as a Model or as a function, ready for training."""
    if isinstance(model, str):
        if ":" in model:
            model = _import(model)
        else:
            model = build_settings(MODELS.get(model), settings or {}, "model")
            settings = None
    if isinstance(model, Model):
        named = model
        return Flat(lambda: named.build(shape, classes))
    return _try_out(_maker(model, shape, classes, dict(settings or {})), shape, classes)


def _import(path: str) -> Callable[..., nn.Module]:
    module, _, function = path.partition(":")
    found = getattr(import_own(module, "model"), function, None)
    if not callable(found):
        raise UserError(f"model: '{module}' has no function called '{function}'")
    return found


def _maker(
    function: Callable[..., nn.Module], shape: tuple[int, ...], classes: int, settings: dict[str, Any]
) -> Callable[[], nn.Module]:
    """Calls the user's function with whichever of ``shape`` and ``classes`` it takes."""
    takes = inspect.signature(function).parameters
    given = {key: value for key, value in {"shape": shape, "classes": classes}.items() if key in takes}
    return lambda: function(**given, **settings)


def _try_out(make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> Flat:
    """Finds out before the first round whether a user's network fits the data."""
    try:
        model = Flat(make)
        got = tuple(model.logits(model.init(0), torch.zeros(2, *shape)).shape)
    except UserError:
        raise
    except Exception as error:  # somebody else's code: anything may happen
        raise UserError(f"model: fails on examples of shape {shape} with {in_words(error)}") from error
    if got != (2, classes):
        raise UserError(f"model: answers two examples with shape {got}, but {(2, classes)} is needed")
    return model
