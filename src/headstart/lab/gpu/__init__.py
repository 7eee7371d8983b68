"""Experiments on a GPU: all seeds and policies at once, a task's rounds in one fused kernel.

The rounds are a CUDA kernel (``rounds.cu``), compiled when first used; the transfers are the
library's own, compiled by JAX. How they learn is in :mod:`headstart.transfer`, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.lab.policies import AnyPolicy
from headstart.worlds import Synthetic
from headstart.worlds.base import World

__all__ = ["why_not"]

LARGEST_DIM = 63
SHARED_MEMORY = 48 * 1024  # bytes of shared memory that a block has by default


def why_not(world: World, policies: Sequence[AnyPolicy], probe: Any = None) -> str | None:
    """Why an experiment cannot run on a GPU here; ``None`` if it can.

    >>> from headstart.lab.policies import policy
    >>> why_not(Synthetic(), [policy("mixture")])
    'mixture learns by Mixture(), which is not compiled for it'
    """
    if probe is not None:
        return "the probe runs on the CPU"
    if type(world) is not Synthetic or not world.gaussian:
        return f"{world!r} draws its tasks on the CPU"
    if world.dim > LARGEST_DIM:
        return f"it has {world.dim} features, and {LARGEST_DIM} is the most"
    if 2 * world.arms * (world.dim + 9) * 4 > SHARED_MEMORY - 8192:
        return f"{world.arms} arms of {world.dim} features are too many to keep on the chip"
    for policy in (policy.for_populations([world.population(0)]) for policy in policies):
        if policy.reward != "number":
            return f"{policy.name} has a model of {policy.reward} rewards, which is not compiled"
        transfer = policy.transfer
        if world.logistic or (not policy.knows_noise and transfer.prior_is_known(None)):
            return f"{policy.name} must be given the noise"
        if not transfer.traceable:
            return f"{policy.name} learns by {transfer!r}, which is not compiled for it"
        if policy.rule.loop_form() is None:
            return f"{policy.name} chooses by {policy.rule!r}, which is not compiled for it"
    return missing()


def missing() -> str | None:
    """Why there is no usable GPU here; ``None`` if there is one."""
    try:
        import cupy
        import jax
    except ImportError as error:
        return f"{error.name or error} is not installed: pip install 'headstart[gpu]'"
    try:
        if not cupy.cuda.runtime.getDeviceCount():
            return "there is no GPU"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the GPU does not work ({error})"
    if jax.default_backend() != "gpu":
        return "JAX sees no GPU: install the jax[cuda12] or jax[cuda13] that fits the driver"
    return None
