"""Whose BatchNorm statistics a client uses, as ``local.bn`` says.

``average``
    those of the model it was sent; what training makes of them is averaged with the other clients'.
``local``
    its own. They are part of what it remembers and never travel; whatever model it trains, tries or is served
    by gets them. A client that never trained has those of a network that has seen nothing.
``fresh``
    those of a network that has seen nothing, at the start of every round; what is averaged is that round's.
"""

from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Clients, Memory, Recall
from fedcohort.core.roles import Objective
from fedcohort.core.task import Task
from fedcohort.models.flat import Flat, Weights


def blank(objective: Objective, profile: Profile) -> Memory:
    """What a client that never trained remembers: what its objective wants and, if it keeps them, its
    statistics."""
    mine = objective.init_client(profile)
    if not profile.local.keeps_statistics(profile.model):
        return mine
    return {"buffers": profile.model.unmeasured(profile.seed), **mine}


def travelling(weights: Weights, profile: Profile) -> Weights:
    """What of a model is sent: no statistics where clients keep their own."""
    stays = profile.local.keeps_statistics(profile.model)
    return weights._replace(buffers=weights.buffers[:0]) if stays else weights


def kept(at: Profile | Task, *memories: Clients) -> Recall | None:
    """How a client's own statistics are found, where it uses them with any model: in what it remembers, the
    newest first. None: models are used with theirs."""
    if not at.local.keeps_statistics(at.model):
        return None
    blank = {"buffers": at.model.unmeasured(at.seed)}
    return lambda client: next((known[client] for known in memories if client in known), blank)


def worn(weights: Weights, mine: Memory | None) -> Weights:
    """A model as used by a client that remembers ``mine``; None: as it is."""
    return weights if mine is None else weights._replace(buffers=mine["buffers"])


def begun(weights: Weights, mine: Memory, local: Local, model: Flat, seed: int) -> Weights:
    """Where a client that is sent these weights begins."""
    if local.bn == "fresh":
        return weights._replace(buffers=model.unmeasured(seed).to(weights.params.device))
    return worn(weights, mine if local.keeps_statistics(model) else None)
