"""What the operator of a client allows, whatever a server asks: known to the client alone, and checked first.

A server cannot be believed: it could ask for exact label counts in place of noised ones, have the client
train on a single sample, or name code to be run. So the policy comes from the command line of the client,
never with a message, and where nothing is said of it, it protects.
"""

import importlib.util
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedcohort.core.profile import STRICTNESS, Local
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.flower import messages
from fedcohort.flower.ledger import Ledger
from fedcohort.util.names import safe_name
from fedcohort.util.settings import above, at_least, between, build
from fedcohort.util.user_code import own_code_in

LOSS_CAP = 10.0  # of one sample, where losses are told in steps: a model that only guesses loses log(classes)


class Refusal(Exception):  # noqa: N818  # an answer, not a mistake
    """The client does not do what it was asked. The server is told ``code``, the client's own log ``why``."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(why or code)
        self.code, self.why = code, why


def refuse(why: str) -> Refusal:
    """A refusal because of the policy."""
    return Refusal(messages.REFUSED, why)


@dataclass(frozen=True)
class Policy:
    """What a client reveals, and on how many samples whatever it tells must rest."""

    privacy: Literal["exact", "noised", "withheld"] = "withheld"
    epsilon: Annotated[float, between(1e-6, 1e6)] | None = 0.5  # of a table told with noise; None: the run's
    budget: Annotated[float, above(0)] | None = None  # of all such tables together, in all runs; None: of one
    min_samples: Annotated[int, at_least(1)] = 5
    allow: tuple[str, ...] = ()  # modules that a run may use although they did not come with its app

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Policy":
        """From the node's own settings. A client that has a part of the experiment's own data, and nothing
        of its own, has no reason to hide them from that experiment."""
        own = bool({"data", "load"} & node.keys())
        said: dict[str, Any] = {} if own else {"privacy": "exact", "epsilon": None, "min_samples": 1}
        said |= {key: node[key] for key in ("privacy", "epsilon", "budget") if key in node}
        if "min-samples" in node:
            said["min_samples"] = node["min-samples"]
        said["allow"] = [name for name in str(node.get("allow", "")).split(",") if name]
        return build(cls, said, "policy")

    @property
    def in_words(self) -> str:
        """For the operator, when the client starts."""
        code = f", code also of {', '.join(self.allow)}" if self.allow else ""
        few = f"nothing told of fewer than {self.min_samples} samples"
        return f"policy: label counts are {self.counts_in_words(self.privacy)}, {few}{code}"

    def counts_in_words(self, level: str) -> str:
        """How label counts are told, in words."""
        if level == "noised" and self.epsilon is not None:
            return f"noised (epsilon {self.epsilon:g}, of {self.budget or self.epsilon:g} in all)"
        return "withheld (--privacy exact or noised would tell them)" if level == "withheld" else level

    def level(self, asked: str) -> str:
        """How label counts are told where a run asks for them like this: the stricter of the two."""
        return max(self.privacy, asked, key=STRICTNESS.index)

    @property
    def exact(self) -> bool:
        return self.privacy == "exact"

    def ledger(self, folder: Path, asked: float) -> Ledger:
        """Of what is told with noise; ``asked`` is the run's epsilon, which counts for its own data only."""
        if self.epsilon is None:
            return Ledger(folder, asked, math.inf)
        return Ledger(folder, self.epsilon, self.budget or self.epsilon)

    def check_code(self, run: Mapping[str, Any], load: str = "") -> None:
        """Refuses a run whose modules neither came with its app nor are on the list of those allowed."""
        for reference in (*own_code_in(run), *([load] if load else [])):
            module = reference.partition(":")[0]
            if not self._is_allowed(module):
                raise refuse(
                    f"to run '{safe_name(reference)}': it did not come with the app; "
                    f"--allow {safe_name(module)} allows it"
                )

    def _is_allowed(self, module: str) -> bool:
        if any(module == name or module.startswith(f"{name}.") for name in self.allow):
            return True
        top = module.partition(".")[0]
        try:
            spec = importlib.util.find_spec(top) if top.isidentifier() else None
        except (ImportError, ValueError):
            spec = None
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        if spec is not None and spec.has_location and spec.origin:  # Python's own may have none
            places.append(spec.origin)
        return bool(places) and all(map(_is_of_app, places))

    def check_samples(self, count: int, what: str) -> None:
        """Refuses what would rest on few samples."""
        if count < self.min_samples:
            raise refuse(f"{what} of {count} samples: --min-samples is {self.min_samples}")

    def count(self, value: float, of: int) -> float:
        """How many of ``of`` samples: as it is, or in steps of the fewest samples that are spoken of."""
        if self.exact:
            return value
        return float(min(of, self.min_samples * round(value / self.min_samples)))

    def loss(self, mean: float, of: int) -> float:
        """A mean over ``of`` samples: as it is, or in steps as large as those few could make it differ."""
        if self.exact or not math.isfinite(mean):
            return mean
        step = LOSS_CAP * self.min_samples / of
        return step * round(mean / step)

    def answer(self, rule: Callable[[Tensor], Tensor], losses: Tensor) -> Tensor:
        """The answer to a survey, which a method's ``rule`` makes of the losses ``[models, n]``: how many
        samples each model fits, in steps, or what follows from their mean losses, in steps."""
        told, of = rule(losses), losses.shape[1]
        if self.exact:
            return told
        if told.dim() and not told.is_floating_point():
            counts = [self.count(float(each), of) for each in told.flatten()]
            return torch.tensor(counts).view_as(told).to(told.dtype)
        return rule(torch.tensor([[self.loss(float(mean), of)] for mean in losses.mean(1)]))

    def steps(self, trace: Tensor, size: int, local: Local) -> Tensor:
        """The loss of each step; where a batch had few samples, the mean of all steps instead."""
        few = torch.zeros(len(trace), dtype=torch.bool)
        if min(size, local.batch) < self.min_samples:
            few[:] = True
        elif not local.drop_last and 0 < size % local.batch < self.min_samples:  # an epoch's last one
            batches = local.batches_per_epoch(size)
            few[batches - 1 :: batches] = True
        return torch.where(few, trace.mean(), trace)


class CarefulEngine(ReferenceEngine):
    """Caps the loss of every sample: else one model could be made to tell how many samples a class has."""

    cap = LOSS_CAP


def whole(facts: Mapping[str, Any], key: str, low: int, high: int) -> int:
    """A whole number that a server sent; it may become part of a file's name."""
    value = facts.get(key)
    if type(value) is not int or not low <= value <= high:
        raise refuse(f"a message whose '{key}' is no whole number from {low} to {high}")
    return value


def _is_of_app(place: str) -> bool:
    """Whether a file came with the app of a run, which Flower unpacks below its home."""
    home = os.environ.get("FLWR_HOME") or "~/.flwr"
    return Path(place).resolve().is_relative_to(Path(home).expanduser().resolve() / "apps")
