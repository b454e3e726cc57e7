"""``contiformer demo``: the whole path in two minutes. Train, evaluate, predict at new times, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contiformer.cli.commands import INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from contiformer.estimators import Regressor
    from contiformer.experiments.spiral_demo import Data


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training spirals.")] = 14,
    seed: Annotated[int, typer.Option(min=0, help="Of the spirals and of the model.")] = 0,
    output: Annotated[Path, typer.Option(file_okay=False, help="Where run and picture go.")] = Path("demo-output"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the picture.")] = False,
) -> None:
    """Train one ContiFormer layer on noisy spirals, evaluate it, ask it for new times, draw what it says.

    Ctrl-C keeps what was learned: the same command goes on. The run folder is that of `contiformer train`.
    """
    from rich.console import Console  # noqa: PLC0415

    from contiformer.experiments.spiral_demo import one_thread  # noqa: PLC0415

    with one_thread():
        picture = _run(epochs, seed, output, Console(quiet=quiet, highlight=False))
    typer.echo(str(picture))


def _run(epochs: int, seed: int, output: Path, console: Console) -> Path:
    from contiformer.experiments import spiral_demo  # noqa: PLC0415
    from contiformer.reports.figures import require_matplotlib  # noqa: PLC0415

    # what can fail, before the training
    require_matplotlib()
    data = spiral_demo.make_data(seed)
    folder = output / f"run-seed{seed}-epochs{epochs}"
    model = spiral_demo.make_model(epochs, seed, folder, verbose=0 if console.quiet else 1)
    _describe(model, data, folder)
    console.print(
        f"[bold]1. train[/bold]: {len(data.train)} spirals to learn from, {spiral_demo.POINTS} noisy points of the "
        "first half of each"
    )
    try:
        model.fit(data.training, validation_data=data.validation)
    except KeyboardInterrupt:
        typer.echo(f"stopped: what was learned is in {folder}; go on with the same command", err=True)
        raise typer.Exit(INTERRUPTED) from None
    console.print("[bold]2. evaluate[/bold]")
    _show(model, data, console)
    return _predict(model, data, output, folder, console)


def _describe(model: Regressor, data: Data, folder: Path) -> None:
    """So that the other commands know the run, and its test part."""
    from contiformer.cli.run_folder import Start  # noqa: PLC0415
    from contiformer.cli.source import Source  # noqa: PLC0415

    share = len(data.testing) / data.options["n"]
    source = Source("spirals", test=repr(share), options=data.options)
    Start("regression", model.get_params(deep=False), source).write(folder)


def _predict(model: Regressor, data: Data, output: Path, folder: Path, console: Console) -> Path:
    import torch  # noqa: PLC0415

    from contiformer.data.readers.csv import write_csv  # noqa: PLC0415
    from contiformer.estimators.tables import without_answers  # noqa: PLC0415
    from contiformer.experiments import spiral_demo, spiral_picture  # noqa: PLC0415

    shown = spiral_picture.examples(data.test)
    some = data.testing.select(shown)
    curves = spiral_demo.curves(model, some, spiral_picture.times())
    points = ", ".join(f"({x:.2f}, {y:.2f}) at {t:g}" for t, (x, y) in zip((0.25, 0.5, 1), curves[0, [250, 500, -1]]))
    console.print(f"[bold]3. predict[/bold] at {curves.shape[1]:,} times; the first spiral is at {points}")
    picture = output / "spirals.png"
    spiral_picture.draw(data.test[torch.tensor(shown)], curves, picture)
    observed = output / "observed.csv"
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


def _show(model: Regressor, data: Data, console: Console) -> None:
    from rich.table import Table  # noqa: PLC0415

    from contiformer.experiments import spiral_baselines as baselines  # noqa: PLC0415
    from contiformer.experiments import spiral_demo  # noqa: PLC0415

    test = data.test
    rows = {
        "linear interpolation": baselines.through_observations("linear", test),
        "natural cubic spline": baselines.through_observations("cubic", test),
        "mean training curve": baselines.mean_curve(data.train, test),
        "[bold]ContiFormer[/bold]": spiral_demo.curves(model, data.testing),
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
        errors = vars(spiral_demo.Errors.of(predicted, test.clean))
        table.add_row(name, *(f"{number:.3f}" for number in errors.values()))
    console.print(table)
    steps, seconds = model.history_[-1]["step"], model.metrics_["seconds"]
    console.print(
        f"""\
Errors are per coordinate; the curves reach a radius of 5.7, the noise is {spiral_demo.NOISE}.
Linear interpolation and spline pass through the observations and hold the last
one. The mean is over the training curves of the same direction. The last row
knows the formula and fits only its two parameters: nothing can do better.
seed {model.seed}, {spiral_demo.POINTS} observations per spiral, {steps:.0f} steps in {seconds:.0f} s"""
    )
