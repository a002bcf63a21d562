"""Networks by name. A model is a frozen dataclass whose fields are its settings; ``build`` makes the module.

Any ``torch.nn.Module`` will do: in Python pass one, its class or a function that makes it, in TOML name it
``"package.module:function"``.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fedcohort.models.flat import Flat, Weights
from fedcohort.util.errors import UserError
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.registry import Registry
from fedcohort.util.settings import build as build_settings
from fedcohort.util.user_code import in_words, own_function

COPIES = 4  # of a network's weights, that training it takes at least


@dataclass(frozen=True)
class Model:
    """A network for examples of one shape and a number of classes."""

    name: ClassVar[str]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        raise NotImplementedError

    def network(self, shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
        """The module for such data, or a sentence why there is none."""
        if vocabulary:
            raise UserError(
                f"{self.name} reads numbers, but these examples are token ids: "
                "use embedding_dense or embedding_lstm"
            )
        return self.build(shape, classes)


@dataclass(frozen=True)
class ImageModel(Model):
    """One that reads images with at least ``smallest`` pixels on each side."""

    smallest: ClassVar[int]

    def network(self, shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
        if not vocabulary and (len(shape) != 3 or min(shape[1:]) < self.smallest):
            raise UserError(
                f"{self.name} takes images of at least {self.smallest}x{self.smallest} pixels, "
                f"not examples of shape {shape}: use another model, such as mlp"
            )
        return super().network(shape, classes, vocabulary)


@dataclass(frozen=True)
class TextModel(Model):
    """One that reads rows of token ids; ``build_text`` makes the module."""

    def build_text(self, length: int, classes: int, vocabulary: int) -> nn.Module:
        """For texts of ``length`` tokens, each one of ``vocabulary`` kinds."""
        raise NotImplementedError

    def network(self, shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
        if not vocabulary:
            raise UserError(
                f"{self.name} reads texts as token ids, not examples of shape {shape}: "
                "use another model, such as mlp, or a source of texts"
            )
        return self.build_text(shape[0], classes, vocabulary)


MODELS: Registry[Model] = Registry("model", "fedcohort.models.networks", "fedcohort.models")


def flat_model(
    model: str | Model | nn.Module | Callable[..., nn.Module],
    shape: tuple[int, ...],
    classes: int,
    settings: Mapping[str, Any] | None = None,
    vocabulary: int = 0,
) -> Flat:
    """A model by name, by ``package.module:function``, as a Model, a module or a function, ready to train.

    A module is copied and never changed; its weights are where training begins, whatever the seed.
    ``vocabulary`` is how many kinds of tokens there are where examples are rows of token ids.
    """
    if isinstance(model, str) and ":" in model:
        model = own_function(model, "model")
    elif isinstance(model, str):
        model = build_settings(MODELS.get(model), settings or {}, "model")
    known: dict[str, Any] = {"shape": shape, "classes": classes, "vocabulary": vocabulary}
    if isinstance(model, Model):
        fitting = _fitting_once if _is_hashable(model) else _fitting
        return fitting(model, **known).again()
    if isinstance(model, nn.Module):
        if settings:
            raise UserError(
                f"model: a module that is made already takes no settings: leave {', '.join(settings)} out"
            )
        flat = _try_out(partial(copy.deepcopy, _copied(model)), **known)
        flat.begins_alike = True
        return flat
    if not callable(model):
        raise UserError(
            f"model: {model!r:.80} is no name of a model, no module and no function that makes one"
        )
    return _try_out(_maker(model, known, dict(settings or {})), **known)


def _fitting(model: Model, shape: tuple[int, ...], classes: int, vocabulary: int) -> Flat:
    """One of our own networks, if it fits the data and this machine."""
    known: dict[str, Any] = {"shape": shape, "classes": classes, "vocabulary": vocabulary}
    _refuse_giant(model, **known)
    return _try_out(partial(model.network, **known), **known)


_fitting_once = lru_cache(maxsize=2)(_fitting)  # a process that plays many clients asks for each of them


def _is_hashable(model: Model) -> bool:
    """Not one whose settings were given as lists, in Python."""
    try:
        hash(model)
    except TypeError:
        return False
    return True


def _refuse_giant(model: Model, shape: tuple[int, ...], classes: int, vocabulary: int) -> None:
    """Counts the weights of one of our own networks before any memory is taken for them."""
    try:
        with torch.device("meta"):
            network = model.network(shape, classes, vocabulary)
        weights = sum(tensor.numel() for tensor in network.parameters())
    except (RuntimeError, OverflowError, TypeError):  # a size that not even a number can hold
        raise UserError(f"model: no {model.name} can be made as large as that: lower its settings") from None
    refuse_beyond(COPIES * 4 * weights, f"model: {model.name}", "make it smaller")


def _copied(module: nn.Module) -> nn.Module:
    """One that the caller cannot change any more."""
    try:
        return copy.deepcopy(module).cpu()
    except Exception as error:  # somebody else's code: anything may happen
        raise UserError(
            f"model: the module cannot be copied ({in_words(error)}): give a function that makes it"
        ) from error


def _maker(
    function: Callable[..., nn.Module], known: dict[str, Any], settings: dict[str, Any]
) -> Callable[[], nn.Module]:
    """Calls the user's function with whichever of ``shape``, ``classes`` and ``vocabulary`` it takes."""
    takes = inspect.signature(function).parameters
    given = {key: value for key, value in known.items() if key in takes}
    return lambda: function(**given, **settings)


def _try_out(make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, vocabulary: int) -> Flat:
    """Finds out before the first round whether a network fits the data."""
    examples = torch.zeros(2, *shape, dtype=torch.int64 if vocabulary else torch.float32)
    try:
        model = Flat(partial(_network, make))
        with torch.no_grad():
            weights = model.init(0)
            answer = model.logits(weights, examples)
            _watch(model, weights, examples)
    except UserError:
        raise
    except Exception as error:  # somebody else's code: anything may happen
        raise UserError(f"model: fails on examples of shape {shape} with {in_words(error)}") from error
    if not isinstance(answer, torch.Tensor):
        raise UserError(f"model: answers two examples with a {type(answer).__name__}, but a tensor is needed")
    if (got := tuple(answer.shape)) != (2, classes):
        raise UserError(f"model: answers two examples with shape {got}, but {(2, classes)} is needed")
    return model


def _watch(model: Flat, weights: Weights, examples: torch.Tensor) -> None:
    """What only a training step shows: which layer comes last, and whether anything draws random numbers by
    itself (``F.dropout`` in a network's ``forward``, say)."""
    told: list[tuple[str, Any]] = []
    leaves = [(name, part) for name, part in model.module.named_modules() if not list(part.children())]
    hooks = [
        part.register_forward_hook(lambda _, __, out, name=name: told.append((name, out)))
        for name, part in leaves
    ]
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        answer = model.logits(weights, examples, training=True)
        if not torch.equal(before, torch.get_rng_state()):
            model.draws_globally = model.is_random = True
    for hook in hooks:
        hook.remove()
    model.ends_with = next((name for name, out in told if out is answer), None)


def _network(make: Callable[[], nn.Module]) -> nn.Module:
    """What the user's function returns, if it can be trained."""
    network = make()
    if not isinstance(network, nn.Module):
        raise UserError(f"model: the function returns {network!r:.80}, but a torch.nn.Module is needed")
    lazy = (name for name, tensor in network.named_parameters() if is_lazy(tensor))
    if (name := next(lazy, None)) is not None:
        raise UserError(
            f"model: the size of {name} is not known yet: "
            "give lazy layers their sizes, or let the network answer an example before it is returned"
        )
    return network
