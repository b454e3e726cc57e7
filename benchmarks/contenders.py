"""Contenders of the attention benchmark: forward and backward passes as calls without arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from contiformer.nn import ContiFormerLayer, ContinuousAttention

SEED = 20230921
D_MODEL, N_HEADS = 32, 4
ORACLE_DEGREE = 24

Contender = Literal["ours", "ours_layer", "layer", "pairwise"]


@dataclass(frozen=True)
class Shape:
    """Batch size, length, width and heads of a problem."""

    batch: int
    length: int
    d_model: int = D_MODEL
    n_heads: int = N_HEADS

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read "4x100"."""
        match = re.fullmatch(r"\s*([1-9]\d*)\s*[xX]\s*([1-9]\d*)\s*", text)
        if match is None:
            raise ValueError(f"expected BATCHxLENGTH such as 4x100, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    @property
    def pairs(self) -> int:
        """Number of (query, key) pairs: of ODEs in the paper's algorithm."""
        return self.batch * self.length**2

    def __str__(self) -> str:
        """For example "4 x 100"."""
        return f"{self.batch} x {self.length}"


@dataclass(frozen=True)
class Data:
    """A batch of irregular sequences in [0, 1], and the gradient that comes back from what follows."""

    x: Tensor
    times: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, shape: Shape) -> Data:
        """The same numbers for every contender."""
        generator = torch.Generator().manual_seed(SEED)
        size = (shape.batch, shape.length, shape.d_model)
        x = torch.randn(size, generator=generator, requires_grad=True)
        times = torch.rand(size[:2], generator=generator).sort(dim=1).values
        return cls(x, times, torch.randn(size, generator=generator))


def make_module(contender: Contender, shape: Shape) -> nn.Module:
    """A module in training mode; "ours" and "pairwise" have the same weights."""
    width, heads = shape.d_model, shape.n_heads
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if contender == "ours":
            return ContinuousAttention(width, heads)
        if contender == "pairwise":
            made = ContinuousAttention(width, heads, method="pairwise", rule="linear", step_size=0.1)
            made.load_state_dict(make_module("ours", shape).state_dict())
            return made
        if contender == "ours_layer":
            return ContiFormerLayer(width, heads, 4 * width, dropout=0.0)
        return nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)


def make_call(
    contender: Contender, shape: Shape, *, backward: bool = True, at_once: int | None = None
) -> Callable[[], None]:
    """One pass forward, and one back to the input and all parameters.

    Args:
        contender: the module to run.
        shape: of the batch.
        backward: without it only the forward pass, which still records what a backward pass would need.
        at_once: work on this many sequences at a time, where the whole batch does not fit in memory.
    """
    module, data = make_module(contender, shape), Data.of(shape)
    parameters = list(module.parameters())

    def one_pass(x: Tensor, times: Tensor, gradient: Tensor) -> None:
        out = module(x) if contender == "layer" else module(x, times)
        if backward:
            torch.autograd.grad(out, [x, *parameters], gradient)

    def call() -> None:
        for portion in _portions(data, at_once or shape.batch):
            one_pass(*portion)

    return call


def _portions(data: Data, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    if size >= data.x.shape[0]:
        return [(data.x, data.times, data.gradient)]
    parts = [part.detach().requires_grad_() for part in data.x.split(size)]
    return list(zip(parts, data.times.split(size), data.gradient.split(size), strict=True))


@torch.no_grad()
def output_error(shape: Shape) -> float:
    """Largest difference of the output in float32 at default options from float64 at degree 24, beside its size."""
    module, data = make_module("ours", shape), Data.of(shape)
    oracle = ContinuousAttention(shape.d_model, shape.n_heads, degree=ORACLE_DEGREE).double()
    oracle.load_state_dict(module.state_dict())
    truth = oracle(data.x.double(), data.times.double())
    return float((module(data.x, data.times) - truth).abs().max() / truth.abs().max())
