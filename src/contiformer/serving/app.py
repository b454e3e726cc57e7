"""The application: models, limits and routes put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from contiformer import __version__
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.serving import about, errors, explorer, predictions, streams
from contiformer.serving.batching import collecting
from contiformer.serving.guards import LOOPBACK, BoundedBodies, Guarded, Observed
from contiformer.serving.limits import Limits
from contiformer.serving.metrics import Metrics
from contiformer.serving.models import load_models

_DESCRIPTION = """Predictions of trained models for irregular time series.

`GET /schema` says which models there are, and which columns each of them takes. Series are sent as JSON records or as
CSV, a row for each observation or event, in the columns that the model was trained on. Errors have one form,
`Problem`: bad data are 422 with the row and the column, too much is 413, too many requests are 503 with `Retry-After`.
"""


def create_app(
    runs: Sequence[Path | str],
    *,
    data: Mapping[str, SeriesSet | EventSet] | None = None,
    token: str | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
) -> FastAPI:
    """The HTTP API of the models in these run folders, as an ASGI application.

    Args:
        runs: folders that ``save`` or ``contiformer train`` wrote; a model has the name of its folder.
        data: series or sequences for the explorer page, by the name of the model.
        token: demanded of every request but ``/health``, see :class:`~contiformer.serving.guards.Guarded`.
        limits: of requests.
        hosts: names in the header Host that are answered; None: any, for servers that other machines can reach.

    Example:
        >>> from contiformer import EventPredictor
        >>> from contiformer.serving import create_app
        >>> X = [([0.0, 1.0, 2.0, 3.5], ["buy", "sell", "buy", "sell"])] * 4
        >>> EventPredictor(backbone="hp").fit(X).save("orders")
        >>> app = create_app(["orders"])
        >>> list(app.state.models)
        ['orders']
    """
    limits, metrics = limits or Limits(), Metrics()
    models = load_models(runs, limits=limits, metrics=metrics)
    for name, shown in (data or {}).items():
        models[name].data = shown

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with collecting():
            yield
        for model in models.values():
            model.queue.close()

    app = FastAPI(
        title="contiformer",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # the pages of FastAPI load scripts from another site; the document itself is at /openapi.json
        docs_url=None,
        redoc_url=None,
        default_response_class=errors.JSONAnswer,
        responses={code: {"model": errors.Problem} for code in (401, 404, 422, 503)},
    )
    app.state.models, app.state.metrics, app.state.limits = models, metrics, limits
    errors.install(app)
    metrics.gauges.append(
        ("contiformer_queue_length", "Requests that wait.", lambda: {n: len(m.queue) for n, m in models.items()})
    )
    app.include_router(about.router(models, metrics, limits))
    app.include_router(predictions.router(models, metrics))
    app.include_router(streams.router(models, metrics, limits))
    app.include_router(explorer.router(models))
    # the last one is the outermost
    app.add_middleware(BoundedBodies, limits=limits)
    app.add_middleware(Guarded, hosts=None if hosts is None else tuple(hosts), token=token)
    app.add_middleware(Observed, metrics=metrics)
    return app
