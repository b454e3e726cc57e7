"""The approximation theorem: continuous attention equals any attention matrix, checked on random ones."""

from __future__ import annotations

import torch

from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Outcome
from contiformer.theory import (
    continuous_attention_matrix,
    gsm_attention,
    gsm_kernel,
    key_curves,
    query_curve,
    vanilla_attention,
)

SEEDS = (0, 1, 2)
POINTS, WIDTH, MIXTURES = 8, 4, 3


def grid(protocol: Protocol) -> list[Cell]:
    """The two kinds of attention that the paper names."""
    return [
        Cell("theorem", "generated", f"{POINTS}points", kind, seed, protocol)
        for seed in SEEDS
        for kind in ("vanilla", "kernelised")
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Build the curves of the proof and compare the attention they give with its target."""
    generator = torch.Generator().manual_seed(cell.seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    times = random(POINTS).sort().values
    # components that keep their sign: the proof needs a path without zeros
    Q, K = 0.5 + random(POINTS, WIDTH), 2 * random(POINTS, WIDTH) - 1
    if cell.model == "vanilla":
        target = vanilla_attention(Q, K)
    else:
        kernel = gsm_kernel(times, random(POINTS, MIXTURES), random(POINTS, MIXTURES), 0.5 + random(POINTS, MIXTURES))
        target = gsm_attention(Q, K, kernel / kernel.diagonal().sqrt().outer(kernel.diagonal().sqrt()))
    query = query_curve(times, Q)
    found = continuous_attention_matrix(query, key_curves(query, times, K, target), times)
    return Outcome({"largest_error": float((found - target).abs().max()), "scale": float(target.abs().max())})


EXPERIMENT = Experiment(
    name="theorem",
    title="Universal attention approximation: the curves of the proof, built",
    metrics=(Metric("largest_error", "largest error", "min", ".1e"),),
    grid=grid,
    run=run,
    ours="",
    note="The largest difference between the matrix that was asked for and the one that the curves give.",
)
