"""``contiformer serve``: the HTTP API of trained models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from contiformer.cli.run_folder import note, read_source, refuse_unfinished
from contiformer.data import DataError, read_text
from contiformer.estimators.event_tables import Events

if TYPE_CHECKING:
    from fastapi import FastAPI

#: Fewer characters can be guessed.
LEAST_TOKEN = 16


def require_server() -> None:
    """Refuse to go on without FastAPI and uvicorn.

    Raises:
        ModuleNotFoundError: naming the extra.
    """
    try:
        import fastapi  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        problem = f"serving needs {error.name}, which is an extra: pip install 'contiformer[serve]'"
        raise ModuleNotFoundError(problem, name=error.name) from None


def serve(
    runs: list[Path],
    host: str,
    port: int,
    token_file: Path | None,
    data: str | None,
    max_body: int,
    timeout: float,
    **most: int,
) -> None:
    """Check everything that can be checked, load the models, and answer requests until Ctrl-C or SIGTERM."""
    require_server()
    from contiformer.serving.limits import Limits  # noqa: PLC0415
    from contiformer.serving.server import answer_requests, is_loopback, listen  # noqa: PLC0415

    token = None if token_file is None else read_token(token_file)
    if token is None and not is_loopback(host):
        problem = f"{host} can be reached from other machines, which asks for --token-file."
        raise typer.BadParameter(problem, param_hint="--host")
    bound = listen(host, port)
    sizes = {name.removeprefix("max_"): value for name, value in most.items()}
    limits = Limits(
        body_bytes=max_body * 2**20, waiting_bytes=max(8 * max_body, 128) * 2**20, deadline=timeout, **sizes
    )
    app = application(runs, data, token=token, limits=limits, **({} if is_loopback(host) else {"hosts": None}))
    models = app.state.models
    address = f"[{host}]" if ":" in host else host
    for name, model in models.items():
        typer.echo(f"{name}: {model.task}, from {model.run}", err=True)
    typer.echo(f"serving on http://{address}:{bound.getsockname()[1]} (Ctrl-C ends)", err=True)
    answer_requests(app, bound, limits)


def application(runs: list[Path], data: str | None, **options: Any) -> FastAPI:
    """The application for these runs, with the series of a file for those models that they fit."""
    from contiformer.serving import create_app  # noqa: PLC0415

    for run in runs:
        refuse_unfinished(run)
    app = create_app(runs, **options)
    if data is not None:
        attach(app, data)
    return app


def attach(app: FastAPI, data: str) -> None:
    """Read the data to explore for each model that it fits.

    Raises:
        DataError: it fits none.
    """
    models = app.state.models
    problems: dict[str, DataError] = {}
    for model in models.values():
        try:
            found: Any = read_source(model.run, model.task).inputs(data, model.estimator)
        except DataError as error:
            problems[model.name] = error
            continue
        model.data = found.data if isinstance(found, Events) else found
    if len(problems) == len(models):
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        note(f"--data is not for {name}: {problem}")


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        DataError: it is too short, or has more than one line.
    """
    token = read_text(path).strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        remedy = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        raise DataError(f"a token is one word of {LEAST_TOKEN} ASCII characters or more", file=path, remedy=remedy)
    return token
