"""``contiformer demo``: one layer learns to continue noisy spirals, while you watch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from contiformer.experiments.spiral_demo import Data, Outcome, SpiralModel


def demo(
    seconds: Annotated[float, typer.Option(min=0.1, help="Time to train.")] = 90.0,
    seed: Annotated[int, typer.Option(help="Of the spirals and of the model.")] = 0,
    output: Annotated[Path, typer.Option(file_okay=False, help="Where the picture goes.")] = Path("demo-output"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the picture.")] = False,
) -> None:
    """Fit noisy, irregularly observed spirals with one ContiFormer layer, and draw the continuous prediction.

    Ctrl-C ends the training early and shows what was learned until then.
    """
    from rich.console import Console  # noqa: PLC0415

    from contiformer.experiments.spiral_demo import one_thread  # noqa: PLC0415

    console = Console(quiet=quiet, highlight=False)
    try:
        with one_thread():
            picture = _run(seconds, seed, output, console)
    except (ModuleNotFoundError, FloatingPointError, OSError) as error:
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(1) from error
    typer.echo(str(picture))


def _run(seconds: float, seed: int, output: Path, console: Console) -> Path:
    from contiformer.experiments import spiral_demo, spiral_picture  # noqa: PLC0415

    # what can fail, before the training
    spiral_picture.require_matplotlib()
    output.mkdir(parents=True, exist_ok=True)
    data = spiral_demo.make_data(seed)
    model = spiral_demo.make_model(data.train, seed)
    size = sum(p.numel() for p in model.parameters())
    console.print(
        f"{len(data.train)} spirals to learn from, {spiral_demo.POINTS} noisy points of the first half of each;\n"
        f"one layer, {size:,} parameters"
    )
    outcome = _fit_with_progress(model, data, seconds, seed, console)
    _show(model, data, outcome, seed, console)
    picture = output / "spirals.png"
    spiral_picture.draw(model, spiral_picture.examples(data.test), picture)
    return picture


def _fit_with_progress(model: SpiralModel, data: Data, seconds: float, seed: int, console: Console) -> Outcome:
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    from contiformer.experiments.spiral_demo import Report, fit  # noqa: PLC0415

    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.fields[left]:3.0f} s left  step {task.fields[step]}"),
        TextColumn("loss {task.fields[loss]:.1e}  validation error {task.fields[error]:.3f}"),
    )
    unknown = float("nan")
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=seconds, left=seconds, step=0, loss=unknown, error=unknown)

        def notify(report: Report) -> None:
            progress.update(
                task,
                completed=min(report.elapsed, seconds),
                left=max(0.0, seconds - report.elapsed),
                step=report.step,
                loss=report.loss,
                error=report.validation_error,
            )

        return fit(model, data, seconds, seed, notify)


def _show(model: SpiralModel, data: Data, outcome: Outcome, seed: int, console: Console) -> None:
    from rich.table import Table  # noqa: PLC0415

    from contiformer.experiments import spiral_baselines as baselines  # noqa: PLC0415
    from contiformer.experiments import spiral_demo  # noqa: PLC0415

    test = data.test
    rows = {
        "linear interpolation": baselines.through_observations("linear", test),
        "natural cubic spline": baselines.through_observations("cubic", test),
        "mean training curve": baselines.mean_curve(data.train, test),
        "[bold]ContiFormer[/bold]": model.curves(test),
        "[dim]formula known[/dim]": baselines.fitted_formula(
            test, spiral_demo.ALPHA, spiral_demo.NOISE, spiral_demo.END
        ),
    }
    table = Table(title=f"Error against the true curve, {len(test)} unseen spirals", title_justify="left")
    table.add_column("")
    for half in ("interpolation", "extrapolation"):
        table.add_column(f"{half}\nRMSE", justify="right")
        table.add_column("\nMAE", justify="right")
    for name, predicted in rows.items():
        errors = spiral_demo.Errors.of(predicted, test.clean)
        numbers = (
            errors.interpolation_rmse,
            errors.interpolation_mae,
            errors.extrapolation_rmse,
            errors.extrapolation_mae,
        )
        table.add_row(name, *(f"{number:.3f}" for number in numbers))
    console.print(table)
    stopped = ", stopped by Ctrl-C" if outcome.interrupted else ""
    console.print(
        f"""\
Errors are per coordinate; the curves reach a radius of 5.7, the noise is {spiral_demo.NOISE}.
Linear interpolation and spline pass through the observations and hold the last
one. The mean is over the training curves of the same direction. The last row
knows the formula and fits only its two parameters: nothing can do better.
seed {seed}, {spiral_demo.POINTS} observations per spiral, {outcome.steps} steps in {outcome.seconds:.0f} s{stopped}
validation error {outcome.error_before:.3f} before training, {outcome.error_after:.3f} after"""
    )
