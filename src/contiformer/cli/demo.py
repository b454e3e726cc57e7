"""``contiformer demo``: spirals, observed at irregular times of their first half, continued by a ContiFormer layer.

The model sees 30 noisy points of the first half of a curve and is asked for the curve at any time of both halves. It is
trained on the true curves of other spirals, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from torch import Tensor

from contiformer.cli.commands import INTERRUPTED
from contiformer.cli.run_folder import Start
from contiformer.cli.source import SeriesSource
from contiformer.data import Series, SeriesSet, write_csv
from contiformer.data.synthetic import Spirals, generate_spirals, spiral_set
from contiformer.data.synthetic.spirals import LAST_ANGLE, archimedean, hyperbolic
from contiformer.estimators import Regressor
from contiformer.estimators.tables import without_answers
from contiformer.paths.interpolation import Interpolation, interpolate
from contiformer.plots.figures import BLUE, INK, ORANGE, new_figure, require_matplotlib, save

POINTS, ALPHA, NOISE = 30, 0.02, 0.1
#: With the authors' 6π + 1 the clockwise curves end at radius 15 and their observed half is a dot in the middle of the
#: picture; here they end where the others do, at radius 6π b.
END = LAST_ANGLE + 50 / LAST_ANGLE
#: Query times of a training curve: they are cheaper than all 150, and teach nearly as much.
QUERIES = 32
VALIDATION, TEST = 64, 100
#: Parameters of the estimator. Many small steps learn more in a given time than few large ones.
PARAMETERS: dict[str, Any] = {
    "d_model": 32,
    "dropout": 0.0,
    "window": 0,
    "backbone_options": {"n_heads": 4, "time_unit": 4.0},
    # the angle of a spiral is a matter of the time itself, not of the time since the first observation
    "time_origin": "global",
    "keep_points": 1.0,
    "batch_size": 16,
    "learning_rate": 0.02,
    "warmup": 0.03,
    "weight_decay": 0.0,
    "patience": 1.0,
}
#: Spirals of each direction in the picture.
EXAMPLES = 2


def demo(epochs: int, seed: int, output: Path, quiet: bool) -> None:
    """Train, evaluate, predict and draw."""
    # whatever can fail, before the training
    require_matplotlib()
    console = Console(quiet=quiet, highlight=False)
    with one_thread():
        data = make_data(seed)
        folder = output / f"run-seed{seed}-epochs{epochs}"
        options: dict[str, Any] = {"max_epochs": epochs, "seed": seed, "run_dir": folder, "verbose": 0 if quiet else 1}
        model = Regressor.from_options(**PARAMETERS, **options)
        # for the other commands
        source = SeriesSource("spirals", test=repr(len(data.testing) / data.options["n"]), options=data.options)
        Start("regression", model.to_options(), source).write(folder)
        points = f"{POINTS} noisy points of the first half of each"
        console.print(f"[bold]1. train[/bold]: {len(data.train)} spirals to learn from, {points}")
        try:
            model.fit(data.training, validation_data=data.validation)
        except KeyboardInterrupt:
            typer.echo(f"stopped: what was learned is in {folder}; go on with the same command", err=True)
            raise typer.Exit(INTERRUPTED) from None
        console.print("[bold]2. evaluate[/bold]")
        _show_errors(model, data, console)
        picture = _predict(model, data, output, folder, console)
    typer.echo(str(picture))


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps this small gain little from a second thread, and lose a lot when another program is using it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Data:
    """Spirals by the ``options`` of their generator: with the true parameters, and as series with the true curves."""

    options: dict[str, Any]
    train: Spirals
    test: Spirals
    training: SeriesSet
    validation: SeriesSet
    testing: SeriesSet


def make_data(seed: int, n_train: int = 2000) -> Data:
    """Three sets with nothing in common."""
    options: dict[str, Any] = {"points": POINTS, "alpha": ALPHA, "noise": NOISE, "end": END, "seed": seed}
    n = n_train + VALIDATION + TEST
    spirals, series = generate_spirals(n, **options), spiral_set(n, **options)
    draw = np.random.default_rng(seed)

    def some_targets(one: Series) -> Series:
        assert one.target_times is not None
        assert one.target_values is not None
        some = np.sort(draw.permutation(len(one.target_times))[:QUERIES])
        return replace(one, target_times=one.target_times[some], target_values=one.target_values[some])

    return Data(
        options | {"n": n},
        spirals[:n_train],
        spirals[n_train + VALIDATION :],
        series[:n_train].map(some_targets),
        series[n_train : n_train + VALIDATION],
        series[n_train + VALIDATION :],
    )


def predict_curves(model: Regressor, data: SeriesSet, times: Any = None) -> Float[Tensor, "n query 2"]:
    """The whole curves from the observations, at the 150 times of the spirals or at others."""
    at = data[0].target_times if times is None else times.double().numpy()
    return torch.from_numpy(np.stack([one.values for one in model.predict(data, at=at)])).float()


def through_observations(kind: Interpolation, spirals: Spirals) -> Float[Tensor, "n times 2"]:
    """Interpolation of the noisy observations, constant outside them."""
    return interpolate(kind, spirals.observed_times, spirals.observed_values)(spirals.times)


def mean_curve(train: Spirals, spirals: Spirals) -> Float[Tensor, "n times 2"]:
    """The mean of the training curves of the same direction."""
    means = torch.stack([train.clean[train.clockwise == way].mean(0) for way in (False, True)])
    return means[spirals.clockwise.long()]


def fitted_formula(spirals: Spirals, alpha: float, noise: float, end: float) -> Float[Tensor, "n times 2"]:
    """The best possible: the formula, the direction and the distribution of ``a`` and ``b`` are known.

    The radius along the known angle is ``r = a + b g(t)``, observed with noise, so the posterior mean of
    ``(a, b)`` is a ridge regression towards ``(0, 0.3)``.
    """
    zero, one = torch.zeros(()), torch.ones(())
    clockwise = spirals.clockwise[:, None, None]

    def curve(times: Tensor, a: Tensor, b: Tensor) -> Float[Tensor, "n times 2"]:
        angle = LAST_ANGLE * times
        return torch.where(clockwise, hyperbolic(angle, a, b, end), archimedean(angle, a, b))

    direction = curve(spirals.observed_times, one, zero)
    growth = (curve(spirals.observed_times, zero, one) * direction).sum(-1)
    radius = (spirals.observed_values * direction).sum(-1)
    design = torch.stack([torch.ones_like(growth), growth], dim=-1)
    ridge = (noise / alpha) ** 2 * torch.eye(2)
    deviation = torch.linalg.solve(design.mT @ design + ridge, design.mT @ (radius - 0.3 * growth).unsqueeze(-1))
    a, b = deviation.squeeze(-1).unbind(-1)
    return curve(spirals.times, a.unsqueeze(1), 0.3 + b.unsqueeze(1))


def rms(difference: Tensor) -> float:
    """Root of the mean square over everything."""
    return float(difference.square().mean().sqrt())


def errors(predicted: Float[Tensor, "n times 2"], truth: Float[Tensor, "n times 2"]) -> list[float]:
    """RMSE and MAE of each coordinate: of interpolation, the first half of the times, and of extrapolation."""
    halves = (predicted - truth).tensor_split(2, dim=1)
    return [error for half in halves for error in (rms(half), float(half.abs().mean()))]


def _show_errors(model: Regressor, data: Data, console: Console) -> None:
    test = data.test
    rows = {
        "linear interpolation": through_observations("linear", test),
        "natural cubic spline": through_observations("cubic", test),
        "mean training curve": mean_curve(data.train, test),
        "[bold]ContiFormer[/bold]": predict_curves(model, data.testing),
        "[dim]formula known[/dim]": fitted_formula(test, ALPHA, NOISE, END),
    }
    table = Table(title=f"Error against the true curve, {len(test)} unseen spirals", title_justify="left")
    table.add_column("")
    for half in ("interpolation", "extrapolation"):
        table.add_column(f"{half}\nRMSE", justify="right")
        table.add_column("\nMAE", justify="right")
    for name, predicted in rows.items():
        table.add_row(name, *(f"{error:.3f}" for error in errors(predicted, test.clean)))
    console.print(table)
    steps, seconds = model.history_[-1]["step"], model.metrics_["seconds"]
    console.print(
        f"""\
Errors are per coordinate; the curves reach a radius of 5.7, the noise is {NOISE}.
Linear interpolation and spline pass through the observations and hold the last
one. The mean is over the training curves of the same direction. The last row
knows the formula and fits only its two parameters: nothing can do better.
seed {model.seed}, {POINTS} observations per spiral, {steps:.0f} steps in {seconds:.0f} s"""
    )


def _predict(model: Regressor, data: Data, output: Path, folder: Path, console: Console) -> Path:
    shown = examples(data.test)
    some, times = data.testing.select(shown), torch.linspace(0, 1, 1000)
    curves = predict_curves(model, some, times)
    points = ", ".join(f"({x:.2f}, {y:.2f}) at {t:g}" for t, (x, y) in zip((0.25, 0.5, 1), curves[0, [250, 500, -1]]))
    console.print(f"[bold]3. predict[/bold] at {curves.shape[1]:,} times; the first spiral is at {points}")
    picture, observed = output / "spirals.png", output / "observed.csv"
    draw_spirals(data.test[torch.tensor(shown)], times, curves, picture)
    write_csv(without_answers(some), observed)
    console.print(
        f"""\
[bold]4. go on[/bold] with what lies in {output}:
   contiformer evaluate {folder}
   contiformer predict {folder} --input {observed} --at 0:1:0.01 --output {output / "curves.csv"}
   contiformer plot {folder}""",
        soft_wrap=True,
    )
    return picture


def examples(spirals: Spirals) -> list[int]:
    """The first few spirals of each direction, counter-clockwise ones first: no choice by result."""
    ways = [torch.nonzero(spirals.clockwise == way).squeeze(1)[:EXAMPLES] for way in (False, True)]
    return torch.cat(ways).tolist()


def draw_spirals(spirals: Spirals, times: Tensor, curves: Float[Tensor, "n query 2"], path: Path) -> None:
    """Write a PNG with one panel for each spiral and its predicted curve."""
    within = times <= spirals.times[0, spirals.times.shape[1] // 2 - 1]
    figure = new_figure(3 * len(spirals), 3.5)
    panels = figure.subplots(1, len(spirals), squeeze=False)[0]
    for panel, clean, seen, curve in zip(panels, spirals.clean, spirals.observed_values, curves, strict=True):
        # a wide band under the thin prediction: where they part, it shows
        panel.plot(*clean.T, color="0.8", linewidth=5, solid_capstyle="round", label="true curve")
        panel.plot(*curve[within].T, color=BLUE, linewidth=1.6, label="prediction, observed half")
        panel.plot(*curve[~within].T, color=ORANGE, linewidth=1.6, label="prediction, beyond all observations")
        dots = {"color": INK, "s": 14, "edgecolors": "white", "linewidths": 0.5, "zorder": 3}
        panel.scatter(*seen.T, label="noisy observations", **dots)
        panel.set_aspect("equal")
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)
