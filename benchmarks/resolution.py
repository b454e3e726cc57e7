"""Error of the output against the tail of the trajectories' series: what the degrees of ``degree="auto"`` rest on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.contenders import SEED, Data, Shape, make_module
from benchmarks.machine import machine_facts
from contiformer import use_kernels
from contiformer.nn import ContinuousAttention

#: The output's error of a sequence that counts as resolved stays below this.
LIMIT = 1e-3
SHAPES = (Shape(2, 30), Shape(2, 100), Shape(2, 60, 16, 2), Shape(8, 100, 128, 8))
SEEDS, QUICK_SEEDS = 8, 1
SPANS, SCALES = (1.0, 1.5), (1.0, 3.0)
DEGREES = (7, 15)
AUTO, ORACLE = "auto", 31
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
HEADS = (
    "degree",
    "tail: 0, 50, 90, 99, 100 %",
    "error: 0, 50, 90, 99, 100 %",
    "tolerance",
    "resolved",
    "largest",
    "safe tail",
)

PROTOCOL = (
    "ContinuousAttention in float32 on sequences of 30 to 100 observations, widths 16, 32 and 128, times "
    "sorted uniform in [0, 1] or [0, 1.5], fields as they are drawn and with all matrices and the norm's gain times 3; "
    f"truth: float64 at degree {ORACLE}. error: largest difference of a sequence's output divided by its largest "
    "output; tail: last coefficients of its trajectories relative to their size; by the listing. auto: degree='auto', "
    "by the kernel, of sequences without a warning."
)


@dataclass(frozen=True)
class Resolution:
    """Quantiles of tail and error at a degree over all sequences, and those that its tolerance lets pass.

    Attributes:
        degree: of the series.
        tolerance: up to which tail a sequence counts as resolved.
        tails, errors: quantiles.
        resolved: share of the sequences.
        largest_error: of the resolved ones.
        safe_tail: the smallest tail of a sequence whose error is beyond the limit; None where there is none.
    """

    degree: int | str
    tolerance: float | None
    tails: tuple[float, ...] | None
    errors: tuple[float, ...]
    resolved: float
    largest_error: float
    safe_tail: float | None


def measure(seeds: int = SEEDS, notify: Callable[[str], None] = lambda _: None) -> list[Resolution]:
    """A line for each degree, and for degree="auto" as a whole."""
    # the policy that this measures is not public
    policy = import_module(ContinuousAttention.__module__)
    found: dict[int | str, list[NDArray[np.float64]]] = {degree: [] for degree in (*DEGREES, AUTO)}
    for shape in SHAPES:
        notify(f"resolution: {shape}")
        for module, x, times in _problems(shape, seeds):
            truth, _ = _outputs(policy, module.double(), x.double(), times, ORACLE)
            for degree, one in found.items():
                out, tail = _outputs(policy, module.float(), x, times, degree)
                error = (out - truth).abs().amax((1, 2)) / truth.abs().amax((1, 2))
                one.append(torch.stack([tail.double(), error.double()], 1).numpy())
    lines = []
    for degree, parts in found.items():
        tails, errors = np.concatenate(parts).T
        tolerance = None if degree == AUTO else policy.AUTO_DEGREES[degree]
        passed = tails <= (tolerance or 0.0)
        of_tails, of_errors = (tuple(map(float, np.quantile(values, QUANTILES))) for values in (tails, errors))
        largest, wrong = float(errors[passed].max(initial=0.0)), tails[errors >= LIMIT]
        safe = None if degree == AUTO or not len(wrong) else float(wrong.min())
        shown = None if degree == AUTO else of_tails
        lines.append(Resolution(degree, tolerance, shown, of_errors, float(passed.mean()), largest, safe))
    return lines


def _problems(shape: Shape, seeds: int) -> Iterator[tuple[ContinuousAttention, Tensor, Tensor]]:
    for seed, span, scale in product(range(SEED, SEED + seeds), SPANS, SCALES):
        module, data = make_module("ours", shape, seed), Data.of(shape, seed)
        assert isinstance(module, ContinuousAttention)
        for name, weight in module.named_parameters():
            if "field" in name and name.endswith(("inner.weight", "outer.weight", "norm.weight")):
                weight.data.mul_(scale)
        yield module, data.x.detach(), data.times * span


@torch.no_grad()
def _outputs(policy: Any, module: ContinuousAttention, x: Tensor, times: Tensor, degree: Any) -> tuple[Tensor, Tensor]:
    """Output, and the tail of each sequence; of "auto" 0, or 1 where there was a warning."""
    module.degree = degree
    tails: list[Tensor] = []
    listing = policy.attend

    def spy(*given: Any, **named: Any) -> Any:
        found = listing(*given, **named)
        tails.append(found[2])
        return found

    if degree == AUTO:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return module(x, times), torch.full((len(x),), float(bool(caught)))
    with warnings.catch_warnings(action="ignore"), use_kernels(False), patch.object(policy, "attend", spy):
        return module(x, times), tails[0]


def document(lines: list[Resolution]) -> dict[str, Any]:
    """The lines for JSON."""
    rows = [vars(line) for line in lines]
    return {"machine": machine_facts(), "protocol": PROTOCOL, "quantiles": QUANTILES, "limit": LIMIT, "rows": rows}


def table(lines: list[Resolution]) -> Iterator[tuple[str, ...]]:
    """The lines for readers."""
    for line in lines:
        quantiles = (" ".join(f"{value:.0e}" for value in values or ()) for values in (line.tails, line.errors))
        tolerance = "" if line.tolerance is None else f"{line.tolerance:g}"
        safe = "" if line.safe_tail is None else f"{line.safe_tail:.1e}"
        yield str(line.degree), *quantiles, tolerance, f"{line.resolved:.0%}", f"{line.largest_error:.1e}", safe
