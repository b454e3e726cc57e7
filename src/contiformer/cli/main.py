"""The command ``contiformer``: its commands, options and help.

The work is done by the module of the command's name, imported when the command runs: help answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from contiformer import __version__
from contiformer.cli.commands import DEBUG, AsJson, Commands
from contiformer.cli.datasets import app as datasets
from contiformer.serving.limits import Limits

TASKS = "classification, regression, interpolation, forecasting, events"
Task = Annotated[str, typer.Argument(metavar="TASK", help=TASKS)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `contiformer train` wrote.")]
Id = Annotated[str | None, typer.Option(help="Column of series ids.")]
Time = Annotated[str | None, typer.Option(help="Column of times: numbers or dates.")]
Type = Annotated[str | None, typer.Option(help="Column of event types (events only).")]
Values = Annotated[str | None, typer.Option(metavar="A,B", help="Columns of the channels (default: all others).")]
Label = Annotated[str | None, typer.Option(help="Column of the class or number to predict.")]
Labels = Annotated[Path | None, typer.Option(metavar="FILE", exists=True, help="Separate table of ids and labels.")]
Variable = Annotated[str | None, typer.Option(help="Column of variable names, in a long table.")]
Value = Annotated[str | None, typer.Option(help="Column of values, in a long table.")]
Categorical = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that hold categories.")]
Static = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that do not change within a series.")]
Targets = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to predict at every time (regression only).")]
Duplicates = Annotated[str, typer.Option(help="Rows of a series at one time: error, mean, first, last or keep.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One parameter of the estimator; repeatable.")
]
Quantiles = Annotated[str | None, typer.Option(metavar="0.1,0.9", help="Quantiles, in place of mean and std.")]
Ahead = Annotated[int | None, typer.Option(min=1, metavar="STEPS", help="Number of events to predict (events only).")]
#: Defaults of the server.
LIMITS = Limits()

app = typer.Typer(
    name="contiformer",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _limit(help: str, metavar: str = "N") -> Any:
    return typer.Option(min=1, metavar=metavar, help=help, rich_help_panel="Limits")


def _run(command: str, options: Mapping[str, Any]) -> None:
    getattr(import_module(f"contiformer.cli.{command}"), command)(**options)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contiformer {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the trace of an error. May stand anywhere, also after a command.")
    ] = False,
) -> None:
    """Continuous-time transformers for irregular time series: train, predict at any time, explain and serve.

    [bold]First steps[/bold]

      contiformer demo
      contiformer train classification --data BasicMotions --drop 0.3
      contiformer evaluate runs/classification-BasicMotions-drop0.3-seed0

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 stopped by Ctrl-C.
    """


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training spirals.")] = 14,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the spirals and of the model.")] = 0,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder of run and picture.")] = Path("demo-output"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the picture.")] = False,
) -> None:
    """Train one ContiFormer layer on noisy spirals, evaluate it, predict at new times, and draw the curves.

    After Ctrl-C, start the same command again: it resumes. The run folder has
    the form that `contiformer train` writes.
    """
    _run("demo", locals())


@app.command()
def train(
    task: Task,
    data: Annotated[str, typer.Option(metavar="NAME|FILE", help="Data set, or CSV, Parquet, .ts or .jsonl file.")],
    id: Id = None,
    time: Time = None,
    type: Type = None,
    values: Values = None,
    variable: Variable = None,
    value: Value = None,
    label: Label = None,
    labels: Labels = None,
    static: Static = None,
    categorical: Categorical = None,
    targets: Targets = None,
    duplicates: Duplicates = "error",
    test: Annotated[
        str | None, typer.Option(metavar="FILE|NAME|SHARE", help="Test data (default: the set's own).")
    ] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Fold of a data set of events (default: 1).")] = None,
    drop: Annotated[float, typer.Option(min=0, max=0.99, help="Share of the points of each series to drop.")] = 0,
    backbone: Annotated[str | None, typer.Option(help="See `contiformer backbones` (default: contiformer).")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML parameters; --set overrides them.")] = None,
    assignments: Settings = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the training and of --drop.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="RUN", help="Run folder (default: in runs/).")] = None,
) -> None:
    """Train a model, and leave it in a run folder. Ctrl-C and a crash lose little: start the same command again.

    A run that is finished is not trained again.

    [bold]Examples[/bold]

      contiformer train classification --data BasicMotions --drop 0.3
      contiformer train classification --data stays.csv --label died --test 0.2
        --id patient --time hour
      contiformer train classification --data labs.csv --labels died.csv
        --id stay --time hour --variable test --value result
      contiformer train forecasting --data ILI --set horizon=36
      contiformer train regression --data beds.parquet --targets load
        --id bed --time t --values x,y
      contiformer train interpolation --data spirals --config small.yaml
        --set learning_rate=0.01
      contiformer train events --data MIMIC-II --fold 2
      contiformer train events --data orders.csv --test 0.2
        --id customer --time date --type product
    """
    _run("train", locals())


@app.command()
def compare(
    data: Annotated[str, typer.Option(metavar="NAME|FILE", help="As for `contiformer train`.")],
    task: Annotated[str, typer.Option(help=TASKS)] = "classification",
    id: Id = None,
    time: Time = None,
    type: Type = None,
    values: Values = None,
    variable: Variable = None,
    value: Value = None,
    label: Label = None,
    labels: Labels = None,
    static: Static = None,
    categorical: Categorical = None,
    duplicates: Duplicates = "error",
    drop: Annotated[float, typer.Option(min=0, max=0.99, help="Share of the points of each series to drop.")] = 0,
    models: Annotated[
        str | None, typer.Option(metavar="A,B", help="Baselines and backbones (default: some that fit).")
    ] = None,
    assignments: Settings = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    metric: Annotated[str | None, typer.Option(help="Ranks the models (default: by task).")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Time budget, after which no training starts.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of results; resumes what is there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare ContiFormer, rivals and quick baselines on your data by cross-validation, and recommend one.

    Differences are paired: all models predict the same series. With --output
    a comparison that was stopped goes on.

    [bold]Examples[/bold]

      contiformer compare --data stays.csv --label died
        --id patient --time hour --minutes 30 --output comparison
      contiformer compare --data BasicMotions --models boosting,rocket
      contiformer compare --task forecasting --data ILI --set horizon=12
    """
    _run("compare", locals())


@app.command()
def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Labelled data, in the columns of the run (default: its test part)."),
    ] = None,
    id: Id = None,
    time: Time = None,
    type: Type = None,
    label: Label = None,
    labels: Labels = None,
    n: Ahead = None,
    as_json: AsJson = False,
) -> None:
    """Metrics of a trained model on its test part, or on other data.

    The test part is read from the files that the run folder names; the command
    prints which ones. With --data it reads only the files that you name: use it
    for a run folder that you got from someone else.

    [bold]Examples[/bold]

      contiformer evaluate runs/classification-BasicMotions-seed0
      contiformer evaluate runs/mortality --data other-hospital.csv --json
    """
    _run("evaluate", locals())


@app.command()
def predict(
    run: Run,
    given: Annotated[
        str,
        typer.Option(
            "--input",
            "--data",
            metavar="FILE|FOLDER|PATTERN|-",
            help="Series in the columns of the run; no labels needed. Put a pattern in quotes; - is stdin.",
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIMES",
            help="Query times: 0,0.5,1 or start:stop:step or a file with a time (and id) in each row. "
            "Default: the times of the series; in forecasting the next steps.",
        ),
    ] = None,
    quantiles: Quantiles = None,
    id: Id = None,
    time: Time = None,
    type: Type = None,
    n: Ahead = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|FOLDER|-", help=".csv, .parquet or .json; a folder for batches (default: CSV on stdout)."
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Only the I-th of every N blocks, for several machines.")
    ] = None,
    on_error: Annotated[
        str | None, typer.Option(metavar="stop|skip", help="What to do with series that fail (default: stop).")
    ] = None,
    block_rows: Annotated[
        int | None, typer.Option(min=1, metavar="ROWS", help="Rows that are scored together (default: 65536).")
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="parquet|csv", help="Format of the parts in a folder (default: parquet).")
    ] = None,
    escape_formulas: Annotated[
        bool, typer.Option("--escape-formulas", help="Put ' before words that a spreadsheet would run (=, +, -, @).")
    ] = False,
) -> None:
    """Classes and their probabilities, numbers, values with their uncertainty at any times, or the next events.

    With a folder as --output, tables of any size are scored block by block,
    into part-00001.parquet and so on. Rows may be in any order and in any
    number of CSV or Parquet files. After a crash, start the same command again:
    it does what is missing. --on-error skip lists series that cannot be scored
    in _refused-00001.csv and so on.

    [bold]Examples[/bold]

      contiformer predict runs/mortality --input new.csv --output risk.csv
      contiformer predict runs/vitals --input new.csv --at 0:48:0.5 --output a.csv
      contiformer predict runs/demand --input known.csv --quantiles 0.1,0.5,0.9
      contiformer predict runs/orders --input known.csv --n 5 --output next.csv
      contiformer predict runs/mortality --input all/ --output risk/ --shard 2/8
      zcat stays.csv.gz | contiformer predict runs/mortality --input - | head
    """
    _run("predict", locals())


@app.command()
def explain(
    run: Run,
    given: Annotated[
        str,
        typer.Option("--input", "--data", metavar="FILE", help="Series in the columns of the run; no labels needed."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=".csv, .parquet or .json: a row for each observation; .png, .svg or .pdf: a picture of one series. "
            "Default: CSV on stdout.",
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="occlusion, gradients or attention.")] = "occlusion",
    series: Annotated[str | None, typer.Option(metavar="ID", help="Explain this series only.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Class, channel or type of event (default: the predicted class, the only channel)."),
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the prediction that is explained.")] = None,
    hide: Annotated[str, typer.Option(help="Hide by observation, time or channel.")] = "observation",
    most_parts: Annotated[int, typer.Option(min=1, help="Most parts to hide in a series; fewer are quicker.")] = 512,
    id: Id = None,
    time: Time = None,
    type: Type = None,
) -> None:
    """Contribution of each observation to the answer: log-odds of a class, a predicted number or value, or next events.

    Occlusion, the default, hides each observation and measures how much the
    answer changes.

    [bold]Examples[/bold]

      contiformer explain runs/mortality --input new.csv --output why.csv
      contiformer explain runs/mortality --input new.csv --series 7 --output a.png
      contiformer explain runs/vitals --input new.csv --target pulse --at 12.5
    """
    _run("explain", locals())


@app.command()
def export(
    run: Run,
    to: Annotated[str, typer.Option(metavar="onnx|pt2", help="ONNX, or PyTorch's own format.")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: model.onnx or model.pt2 in the run folder.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Series to check the file on (default: the test part of the run)."),
    ] = None,
    id: Id = None,
    time: Time = None,
    as_json: AsJson = False,
) -> None:
    """Write the model as one graph that runs without this library, and compare its answers with the model's own.

    The graph holds scaling, clock, backbone, head and calibration, but no
    checks of the data. Inputs and outputs are in the units of the data; the
    file's metadata describe them. A file whose answers differ from the model's
    by more than 1e-4 is not written. A run without a test part is checked on
    series that are generated from the statistics of the training data.

    [bold]Examples[/bold]

      contiformer export runs/mortality --to onnx
      contiformer export runs/vitals --to pt2 --output vitals.pt2 --data new.csv
    """
    _run("export", locals())


@app.command()
def plot(
    run: Run,
    output: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Default: plots/ in the run folder.")] = None,
) -> None:
    """Learning curves, and predictions for the test series (without a test part: the validation series).

    Classification: confusion matrix and reliability diagram. Interpolation and
    forecasting: series with prediction and band. Regression: true against
    predicted numbers. Events: intensities, gaps, residuals and a confusion
    matrix. The paths of the pictures are printed.

    [bold]Example[/bold]

      contiformer plot runs/classification-BasicMotions-seed0
    """
    _run("plot", locals())


@app.command()
def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders that `contiformer train` wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen on. One that others reach needs --token-file.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the bearer token that every request must carry.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Series to look at on the page, in the columns of a run.")
    ] = None,
    max_body: Annotated[int, _limit("Size of one request's body.", "MIB")] = LIMITS.body_bytes // 2**20,
    max_rows: Annotated[int, _limit("Records, or rows of CSV, in a request.")] = LIMITS.rows,
    max_series: Annotated[int, _limit("Series or sequences in a request.")] = LIMITS.series,
    max_length: Annotated[int, _limit("Points of a series; events of a sequence or stream.")] = LIMITS.length,
    max_times: Annotated[int, _limit("Times asked for in a request, over all its series.")] = LIMITS.times,
    max_streams: Annotated[int, _limit("Open event streams; beyond, the longest idle one goes.")] = LIMITS.streams,
    max_queue: Annotated[int, _limit("Requests that wait for a model; beyond, the answer is 503.")] = LIMITS.queue,
    max_batch: Annotated[int, _limit("Series of waiting requests that are computed together.")] = LIMITS.batch,
    timeout: Annotated[float, _limit("Seconds after which a request without an answer ends in 504.", "SECONDS")] = (
        LIMITS.deadline
    ),
) -> None:
    r"""Predictions over HTTP: one process for any number of models, each named after its folder.

    GET /schema lists models and columns, /openapi.json describes every endpoint,
    /metrics is for Prometheus. Needs the extra: pip install 'contiformer\[serve]'.

    [bold]Examples[/bold]

      contiformer serve runs/mortality
      contiformer serve runs/* --port 8080
      curl localhost:8000/predict -H 'Content-Type: text/csv' --data-binary @a.csv
      curl localhost:8000/at --json '{"records": [...], "at": [0.5, 24]}'
      contiformer serve runs/mortality --host 0.0.0.0 --token-file token.txt
    """
    _run("serve", locals())


@app.command()
def explore(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="Series to look at, in the columns of the run (default: its test part)."
        ),
    ] = None,
    id: Id = None,
    time: Time = None,
    type: Type = None,
    label: Label = None,
    labels: Labels = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    r"""Look at series and what the model says of them, on a page in the browser.

    Move the time up to which the model knows a series; drag, add and delete
    observations, and see predictions change; look at attributions, attention,
    calibration and the series that the model finds most surprising. The page
    can be reached from this machine only. Without --data it shows series from
    the files that the run folder names; the command prints which ones. Needs
    the extra: pip install 'contiformer\[serve]'.

    [bold]Examples[/bold]

      contiformer explore runs/mortality
      contiformer explore runs/mortality --data new.csv --labels died.csv
    """
    _run("explore", locals())


@app.command()
def report(
    run: Run,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: report.html in the run folder.")] = None,
) -> None:
    """One HTML page about a run: findings, metrics with confidence intervals, charts, and tables that can be sorted.

    The report is about the test part, or about the validation series of a run
    without one. The page loads nothing from the network, so you can send it and
    print it.

    [bold]Example[/bold]

      contiformer report runs/mortality --output report.html
    """
    _run("report", locals())


@app.command()
def doctor() -> None:
    """Versions, threads, devices, memory, data and extras, and a self-test.

    The exit code is 1 when something is broken.
    """
    _run("doctor", {})


@app.command()
def backbones(as_json: AsJson = False) -> None:
    """List backbones: capabilities, number of parameters (default size, 6 channels) and paper.

    Use a name with --backbone, or as backbone= in Python.
    """
    _run("backbones", locals())


app.add_typer(datasets)

if __name__ == "__main__":
    app()
