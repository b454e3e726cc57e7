"""Contenders of the attention benchmark: passes of a module over a batch as calls without arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from contiformer import use_kernels
from contiformer.nn import ContinuousAttention

#: Of the first module and batch; the others follow.
SEED = 20230921
D_MODEL, N_HEADS = 32, 4
#: The oracle judges at most so many sequences at so many of their observations.
ORACLE_DEGREE, ORACLE_BATCH, ORACLE_ROWS = 24, 4, 100

#: ContinuousAttention at its defaults, with a field for each head, in PyTorch without the kernel, and that under
#: torch.compile; the paper's algorithm with the same weights, and that with compiled fields; torch's layer.
Contender = Literal["ours", "headwise", "listing", "compiled", "pairwise", "compiled pairwise", "layer"]


@dataclass(frozen=True)
class Shape:
    """Batch size, length, width and heads of a problem."""

    batch: int
    length: int
    d_model: int = D_MODEL
    n_heads: int = N_HEADS

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read "4x100", or "32x200x128x8" with width and heads."""
        match = re.fullmatch(r"\s*([1-9]\d*)x([1-9]\d*)(?:x([1-9]\d*)x([1-9]\d*))?\s*", text.lower())
        if match is None:
            raise ValueError(f"expected BATCHxLENGTH such as 4x100, or BATCHxLENGTHxWIDTHxHEADS, got {text!r}")
        shape = cls(*(int(number) for number in match.groups() if number))
        if shape.d_model % shape.n_heads:
            raise ValueError(f"the heads must divide the width, in BATCHxLENGTHxWIDTHxHEADS, got {text!r}")
        return shape

    @property
    def pairs(self) -> int:
        """Number of (query, key) pairs: of ODEs in the paper's algorithm."""
        return self.batch * self.length**2

    def __str__(self) -> str:
        """For example "4 x 100", or "32 x 200, width 128"."""
        width = "" if self.d_model == D_MODEL else f", width {self.d_model}"
        return f"{self.batch} x {self.length}{width}"


@dataclass(frozen=True)
class Data:
    """A batch of irregular sequences in [0, 1], and the gradient that comes back from what follows."""

    x: Tensor
    times: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, shape: Shape, seed: int = SEED) -> Data:
        """The same numbers for every contender."""
        generator = torch.Generator().manual_seed(seed)
        size = (shape.batch, shape.length, shape.d_model)
        x = torch.randn(size, generator=generator, requires_grad=True)
        times = torch.rand(size[:2], generator=generator).sort(dim=1).values
        return cls(x, times, torch.randn(size, generator=generator))


def make_module(contender: Contender, shape: Shape, seed: int = SEED) -> nn.Module:
    """A module in training mode; all but "headwise" and "layer" have the same weights."""
    width, heads = shape.d_model, shape.n_heads
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if contender == "layer":
            return nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        if contender == "headwise":
            return ContinuousAttention(width, heads, field="headwise")
        if contender.endswith("pairwise"):
            module = ContinuousAttention(width, heads, method="pairwise", rule="linear", step_size=0.1)
        else:
            module = ContinuousAttention(width, heads)
    if contender == "compiled":
        module.compile(fullgraph=True, dynamic=False)
    if contender == "compiled pairwise":
        # not the module as one graph: it unrolls all evaluations of the solver, and compiling that takes many minutes
        module.key_field.compile(fullgraph=True, dynamic=False)
        module.value_field.compile(fullgraph=True, dynamic=False)
    return module


def make_call(
    contender: Contender, shape: Shape, *, seed: int = SEED, training: bool = True, at_once: int | None = None
) -> Callable[[], None]:
    """One pass forward and one back to the input and all parameters; or inference.

    Args:
        contender: the module to run.
        shape: of the batch.
        seed: of weights and data.
        training: forward and backward. False: only forward, in evaluation mode, without a record for gradients.
        at_once: work on this many sequences at a time, where the whole batch does not fit in memory.
    """
    module, data = make_module(contender, shape, seed).train(training), Data.of(shape, seed)
    parameters = list(module.parameters())

    def one_pass(x: Tensor, times: Tensor, gradient: Tensor) -> None:
        out = module(x) if contender == "layer" else module(x, times)
        if training:
            torch.autograd.grad(out, [x, *parameters], gradient)

    def call() -> None:
        with torch.set_grad_enabled(training):
            for portion in _portions(data, at_once or shape.batch):
                one_pass(*portion)

    return use_kernels(False)(call) if contender == "listing" else call


def _portions(data: Data, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    if size >= data.x.shape[0]:
        return [(data.x, data.times, data.gradient)]
    parts = [part.detach().requires_grad_() for part in data.x.split(size)]
    return list(zip(parts, data.times.split(size), data.gradient.split(size), strict=True))


@torch.no_grad()
def output_error(contender: Contender, shape: Shape, seed: int = SEED) -> float:
    """Largest difference of the output in float32 from float64 at degree 24, divided by the largest output."""
    module, data = make_module(contender, shape, seed), Data.of(shape, seed)
    oracle = make_module(contender, shape, seed).double()
    oracle.degree = ORACLE_DEGREE  # type: ignore[assignment]
    rows = torch.linspace(0, shape.length - 1, min(shape.length, ORACLE_ROWS)).round().long()
    x, times = data.x[:ORACLE_BATCH], data.times[:ORACLE_BATCH]
    # times in the precision they come in, which decides on ties
    truth = oracle(x.double(), times, times[:, rows])
    run = use_kernels(False)(module) if contender == "listing" else module
    return float((run(x, times)[:, rows] - truth).abs().max() / truth.abs().max())
