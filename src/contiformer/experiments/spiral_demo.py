"""Noisy spirals, observed at irregular times of their first half, continued by one ContiFormer layer.

The model sees 30 noisy points of the first half of a curve and is asked for the curve at any time of both halves. It is
trained on the true curves of other spirals, as in the authors' code. It gets a budget of time, not of steps.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from contiformer import ContiFormer
from contiformer.data.synthetic import Spirals, generate_spirals
from contiformer.data.synthetic.spirals import LAST_ANGLE

POINTS, ALPHA, NOISE = 30, 0.02, 0.1
#: With the authors' 6π + 1 the clockwise curves end at radius 15 and their observed half is a dot in the middle of the
#: picture; here they end where the others do, at radius 6π b.
END = LAST_ANGLE + 50 / LAST_ANGLE

# Many small steps learn more in a given time than few large ones.
BATCH, QUERIES = 16, 32
LEARNING_RATE, WARMUP_STEPS = 0.02, 50
#: Share of the learning rate. Fields that learn as fast as the rest become stiff: trajectories need polynomials of a
#: higher degree, and a step takes up to ten times as long.
FIELD_RATE = 0.1
#: Of the running mean of the weights, which is what is validated and kept: in mid-training its error is half that of
#: the weights themselves, so that stopping early costs little.
DECAY = 0.98
VALIDATIONS = 30


@dataclass(frozen=True)
class Data:
    """Spirals to learn from, to choose the best state by, and to judge it on."""

    train: Spirals
    validation: Spirals
    test: Spirals


def make_data(seed: int, n_train: int = 2000, n_validation: int = 64, n_test: int = 100) -> Data:
    """Three sets with nothing in common."""
    spirals = generate_spirals(
        n_train + n_validation + n_test, points=POINTS, alpha=ALPHA, noise=NOISE, end=END, seed=seed
    )
    held_out = spirals[n_train:]
    return Data(spirals[:n_train], held_out[:n_validation], held_out[n_validation:])


class SpiralModel(nn.Module):
    """One ContiFormer layer and a linear map to the two coordinates.

    Shapes: values [B, N, 2], times [B, N], query_times [B, Q] -> positions [B, Q, 2].
    """

    scale: Tensor

    def __init__(self, scale: float, d_model: int = 32) -> None:
        super().__init__()
        self.backbone = ContiFormer(input_size=2, d_model=d_model, n_heads=4, n_layers=1, dropout=0.0, time_unit=2.0)
        self.head = nn.Linear(d_model, 2)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(
        self,
        values: Float[Tensor, "batch obs 2"],
        times: Float[Tensor, "batch obs"],
        query_times: Float[Tensor, "batch query"],
    ) -> Float[Tensor, "batch query 2"]:
        """Positions at the query times."""
        return self.scale * self.head(self.backbone(values / self.scale, times, query_times=query_times))

    @torch.no_grad()
    def curves(self, spirals: Spirals, times: Float[Tensor, "n query"] | None = None) -> Float[Tensor, "n query 2"]:
        """The whole curves from the observations, at the spirals' own times or at others."""
        return self(spirals.observed_values, spirals.observed_times, spirals.times if times is None else times)


def make_model(train: Spirals, seed: int) -> SpiralModel:
    """An untrained model that knows the size of the training curves."""
    torch.manual_seed(seed)
    return SpiralModel(scale=float(train.clean.square().mean().sqrt()))


@dataclass(frozen=True)
class Report:
    """Where the training is."""

    step: int
    elapsed: float
    loss: float
    validation_error: float


@dataclass(frozen=True)
class Outcome:
    """What the training did; the model is left in its best state on the validation set."""

    steps: int
    seconds: float
    error_before: float
    error_after: float
    interrupted: bool


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps this small gain little from a second thread, and lose a lot when another program is using it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rms(difference: Tensor) -> float:
    """Root of the mean square over everything."""
    return float(difference.square().mean().sqrt())


def fit(
    model: SpiralModel, data: Data, seconds: float, seed: int, notify: Callable[[Report], None] = lambda _: None
) -> Outcome:
    """Train for ``seconds``; Ctrl-C ends it early, and the best state so far is kept all the same.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """
    optimizer = make_optimizer(model)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    generator = torch.Generator().manual_seed(seed)
    best = _Best(model, data.validation)
    before, step, interrupted = best.error, 0, False
    start = time.perf_counter()
    checked = elapsed = 0.0
    try:
        while elapsed < seconds:
            for group in optimizer.param_groups:
                group["lr"] = group["share"] * learning_rate(step, elapsed / seconds)
            loss = _step(model, data.train, optimizer, generator)
            averaged.update_parameters(model)
            step += 1
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} after {step} steps")
            elapsed = time.perf_counter() - start
            if elapsed - checked >= max(1.0, seconds / VALIDATIONS):
                checked = elapsed
                best.look(cast(SpiralModel, averaged.module))
            notify(Report(step, elapsed, loss, best.error))
        best.look(cast(SpiralModel, averaged.module))
    except KeyboardInterrupt:
        interrupted = True
    model.load_state_dict(best.state)
    return Outcome(step, time.perf_counter() - start, before, best.error, interrupted)


def make_optimizer(model: SpiralModel) -> torch.optim.Optimizer:
    """Adam with a smaller share of the learning rate for the vector fields."""
    fields = [p for name, p in model.named_parameters() if "_field." in name]
    others = [p for name, p in model.named_parameters() if "_field." not in name]
    groups = [{"params": others, "share": 1.0}, {"params": fields, "share": FIELD_RATE}]
    return torch.optim.Adam(groups, betas=(0.9, 0.95))


def learning_rate(step: int, fraction: float) -> float:
    """Linear warm-up in steps, times a cosine that ends with the time: ``fraction`` of it is gone."""
    return LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2


def _step(model: SpiralModel, train: Spirals, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> float:
    batch = train[torch.randint(len(train), (BATCH,), generator=generator)]
    # some of the times, for every spiral in the batch: they are cheaper than all, and teach nearly as much
    asked = torch.randperm(batch.times.shape[1], generator=generator)[:QUERIES]
    predicted = model(batch.observed_values, batch.observed_times, batch.times[:, asked])
    loss = nn.functional.mse_loss(predicted / model.scale, batch.clean[:, asked] / model.scale)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


class _Best:
    """The state with the lowest validation error so far."""

    def __init__(self, model: SpiralModel, validation: Spirals) -> None:
        self.validation, self.error = validation, math.inf
        self.state = copy.deepcopy(model.state_dict())
        self.look(model)

    def look(self, model: SpiralModel) -> None:
        error = rms(model.curves(self.validation) - self.validation.clean)
        if error < self.error:
            self.error, self.state = error, copy.deepcopy(model.state_dict())


@dataclass(frozen=True)
class Errors:
    """Errors of each coordinate against the true curve, in the units of the curve."""

    interpolation_rmse: float
    interpolation_mae: float
    extrapolation_rmse: float
    extrapolation_mae: float

    @classmethod
    def of(cls, predicted: Float[Tensor, "n times 2"], truth: Float[Tensor, "n times 2"]) -> Errors:
        """Interpolation is the first half of the times, in which the observations are; extrapolation the second."""
        halves = (predicted - truth).tensor_split(2, dim=1)
        return cls(*(error for half in halves for error in (rms(half), float(half.abs().mean()))))
