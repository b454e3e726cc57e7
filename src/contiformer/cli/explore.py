"""``contiformer explore``: the explorer page of one run in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from threading import Thread
from typing import Any

import typer

from contiformer.cli.plot import shown_part
from contiformer.cli.run_folder import note, read_given, refuse_without_data
from contiformer.cli.serve import application, require_server
from contiformer.data import DataError
from contiformer.estimators.event_tables import Events

_HOST = "127.0.0.1"


def explore(run: Path, data: str | None, port: int, browser: bool, **columns: Any) -> None:
    """Serve the run on the loopback interface, and open the page."""
    require_server()
    from contiformer.serving.limits import Limits  # noqa: PLC0415
    from contiformer.serving.server import answer_requests, listen  # noqa: PLC0415

    bound = listen(_HOST, port)
    limits = Limits()
    app = application([run], None, limits=limits)
    model = next(iter(app.state.models.values()))
    model.data = explored_data(run, model.estimator, data, **columns)
    address = f"http://{_HOST}:{bound.getsockname()[1]}/"
    count = "no data: draw a series, or paste a table" if model.data is None else f"{len(model.data):,} series"
    typer.echo(f"{model.name}: {model.task}, {count}", err=True)
    typer.echo(f"exploring on {address} (Ctrl-C ends)", err=True)
    if browser:
        # the socket listens already: the page waits until the server takes its connection
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    answer_requests(app, bound, limits)


def explored_data(run: Path, estimator: Any, data: str | None, **columns: Any) -> Any:
    """The series of a file, or those that ``run.json`` names: the test part, or else what was validated on.

    Returns:
        A SeriesSet or an EventSet; None where there are no data.
    """
    found: Any
    if data is not None:
        found = read_given(run, estimator, data, answers=False, **columns)
    else:
        refuse_without_data(columns)
        try:
            found, part = shown_part(run, estimator)
        except (DataError, OSError) as error:
            note(f"the data of the run cannot be read ({error}); pass --data FILE")
            return None
        if found is not None:
            note(f"showing the {part} part of the run")
    return found.data if isinstance(found, Events) else found
