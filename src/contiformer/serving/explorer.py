"""The explorer: a page of series and predictions, and its endpoints.

Everything that the page loads is in the folder ``static``; names from data reach it as JSON only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from contiformer import __version__
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence
from contiformer.data.series import Series
from contiformer.estimators.model_card import facts_of, kept_weights, size_of
from contiformer.serving.about import validation_metrics
from contiformer.serving.edited import (
    MOST_PARTS,
    Edited,
    EditedEvents,
    answer_events,
    answer_series,
    answers_over_time,
    band_of,
    event_layer,
    layer,
    layers_of,
    rounded,
)
from contiformer.serving.errors import JSONAnswer, ServingError
from contiformer.serving.listing import Listing, Sort
from contiformer.serving.models import ServedModel, find_model
from contiformer.serving.predictions import Name
from contiformer.serving.review import MOST, Aside, Review, review_of
from contiformer.training.history import read_histories

STATIC = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
#: Series that a pasted table may have.
MOST_PASTED = 50
Layer = Literal["attribution", "attention"]
Parts = Annotated[int, Query(ge=1, le=512)]
Position = Annotated[int | None, Query(ge=0, le=100_000)]


def router(models: Mapping[str, ServedModel]) -> APIRouter:
    """The page at ``/``, its files, and its endpoints below ``/explore``."""
    page = APIRouter(include_in_schema=False, default_response_class=JSONAnswer)
    _add_files(page)
    asides: dict[str, Aside] = {}
    reviews: dict[str, Review] = {}
    listings: dict[str, Listing] = {}

    def aside(model: ServedModel) -> Aside:
        if model.name not in asides:
            asides[model.name] = Aside(model)
        return asides[model.name]

    def review(model: ServedModel) -> Review:
        if model.name not in reviews:
            reviews[model.name] = review_of(aside(model))
        reviews[model.name].start()
        return reviews[model.name]

    def listing(model: ServedModel) -> Listing:
        if model.name not in listings:
            listings[model.name] = Listing(model.data, reviews[model.name])
        return listings[model.name]

    @page.get("/explore/models")
    async def described() -> Any:
        return {"version": __version__, "models": [_described(model) for model in models.values()]}

    @page.get("/explore/series")
    async def listed(
        model: Name = None,
        search: Annotated[str, Query(max_length=200)] = "",
        sort: Sort = "order",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        true: int | None = None,
        predicted: int | None = None,
    ) -> Any:
        served = find_model(models, model)
        if served.data is None:
            return {"total": 0, "items": [], "review": None}
        review(served)
        cell = None if true is None or predicted is None else (true, predicted)
        pages = await asyncio.to_thread(listing, served)
        return pages.page(search, sort, descending, offset, limit, cell)

    @page.get("/explore/item")
    async def item(number: Annotated[int, Query(ge=0)], model: Name = None) -> Any:
        served = find_model(models, model)
        if served.data is None or number >= len(served.data):
            raise ServingError(404, f"there is no series {number}")
        return as_json(served.data[number])

    @page.post("/explore/paste")
    async def paste(request: Request, model: Name = None) -> Any:
        served = find_model(models, model)
        found = served.parse_csv(await request.body())
        if len(found) > MOST_PASTED:
            remedy = f"paste at most {MOST_PASTED}, or start with --data FILE"
            raise DataError(f"the table has {len(found)} series", remedy=remedy)
        return {"items": [as_json(one) for one in found]}

    @page.post("/explore/answer")
    async def answer(edited: Edited, model: Name = None) -> Any:
        served = _of_series(models, model)
        return await served.queue.run(answer_series, served.estimator, edited)

    @page.post("/explore/over-time")
    async def over_time(edited: Edited, model: Name = None) -> Any:
        served = _of_series(models, model)
        if not served.numbers_per_series:
            raise ServingError(422, "this model answers at any time already: use /explore/answer")
        return await aside(served).run(answers_over_time, edited)

    @page.post("/explore/layer")
    async def weights(
        edited: Edited,
        name: Layer,
        at: float | None = None,
        target: Position = None,
        parts: Parts = MOST_PARTS,
        model: Name = None,
    ) -> Any:
        served = _of_series(models, model)
        return await aside(served).run(layer, edited, name, at, target, parts)

    @page.post("/explore/events")
    async def events(edited: EditedEvents, model: Name = None) -> Any:
        served = _of_events(models, model)
        return await served.queue.run(answer_events, served.estimator, edited)

    @page.post("/explore/event-layer")
    async def event_weights(edited: EditedEvents, model: Name = None) -> Any:
        served = _of_events(models, model)
        return await aside(served).run(event_layer, edited)

    @page.get("/explore/report")
    async def report(model: Name = None) -> Any:
        served = find_model(models, model)
        return await _report(served, None if served.data is None else review(served))

    return page


def _add_files(page: APIRouter) -> None:
    """The page and its files."""
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in _KINDS}

    @page.api_route("/", methods=["GET", "HEAD"])
    async def index() -> Response:
        return _file(files["index.html"])

    @page.api_route("/static/{path:path}", methods=["GET", "HEAD"])
    async def static(path: str) -> Response:
        if path not in files:
            raise ServingError(404, "there is no such file")
        return _file(files[path])


async def _report(model: ServedModel, review: Review | None) -> dict[str, Any]:
    """Facts, metrics and learning curves of a model, and how it does on its data so far."""
    estimator = model.estimator
    return {
        "facts": {
            "backbone": str(estimator.config_["backbone"]),
            "size": size_of(estimator),
            "seed": str(estimator.seed),
            **facts_of(estimator),
        },
        "notes": kept_weights(estimator),
        "validation": validation_metrics(estimator),
        "meanings": estimator.metric_meanings(),
        "history": [[_finite(row) for row in rows] for rows in read_histories(model.run, lambda _: None)],
        "monitor": estimator.tasks_[0].monitor,
        "kept": estimator.metrics_.get("kept_epochs", []),
        "review": None if review is None else review.progress(),
        "report": {} if review is None else _finite(await asyncio.to_thread(review.report)),
    }


def _of_series(models: Mapping[str, ServedModel], name: str | None) -> ServedModel:
    served = find_model(models, name)
    if served.task == "events":
        raise ServingError(422, f"{served.name} is a model of events")
    return served


def _of_events(models: Mapping[str, ServedModel], name: str | None) -> ServedModel:
    served = find_model(models, name)
    if served.task != "events":
        raise ServingError(422, f"{served.name} is a model of series, not of events")
    return served


def _file(path: Path) -> Response:
    # a browser asks again, and gets 304 where nothing has changed
    return FileResponse(path, media_type=_KINDS[path.suffix], headers={"Cache-Control": "no-cache"})


def _described(model: ServedModel) -> dict[str, Any]:
    """Everything about a model that the page needs before it shows a series."""
    estimator = model.estimator
    common = {
        "name": model.name,
        "task": model.task,
        "estimator": type(estimator).__name__,
        "count": None if model.data is None else len(model.data),
        "reviewed": MOST,
        "columns": model.reader.wanted,
        "layers": layers_of(estimator),
    }
    if model.task == "events":
        unit = estimator.scaling_.unit
        return common | {
            "types": list(estimator.type_names_),
            "time": {"kind": estimator.time_kind_, "unit": None, "span": 20 * unit},
        }
    schema = estimator.schema_
    mean, std = np.array(estimator.scaling_.mean), np.array(estimator.scaling_.std)
    units = schema.units or (None,) * len(schema.channels)
    whole = model.numbers_per_series
    return common | {
        "channels": [{"name": name, "unit": unit} for name, unit in zip(schema.channels, units, strict=True)],
        "typical": [rounded(mean - 2 * std), rounded(mean + 2 * std)],
        "static": list(schema.static),
        "classes": None if schema.classes is None or model.task != "classification" else list(schema.classes),
        "outputs": None if whole else list(estimator._outputs),
        "label": estimator.columns_.label,
        "number": model.task == "regression" and whole,
        "band": None if whole else band_of(estimator),
        "time": {
            "kind": schema.kind,
            "unit": schema.time_unit,
            "span": float(estimator.scaling_.unit),
            "horizon": estimator.horizon * estimator.step_ if model.task == "forecasting" else None,
        },
    }


def as_json(one: Series | EventSequence) -> dict[str, Any]:
    """A series or sequence as the page edits it."""
    label = one.label if one.label is None or isinstance(one.label, str | int | bool) else float(one.label)
    common = {"id": one.id, "label": label, "times": one.times.tolist()}
    if isinstance(one, EventSequence):
        features = None if one.features is None else _nullable(one.features)
        return common | {"types": one.types.tolist(), "features": features}
    rows, channels = np.nonzero(one.observed)
    points = list(zip(rows.tolist(), channels.tolist(), _nullable(one.values[rows, channels]), strict=True))
    found = common | {"points": points, "static": [] if one.static is None else _nullable(one.static)}
    if one.target_times is not None and one.target_values is not None:
        found["target"] = {"times": one.target_times.tolist(), "values": rounded(one.target_values.T)}
    return found


def _nullable(values: Any) -> list[Any]:
    """Lists with None for NaN; numbers of float32 as they were written, not with the digits of float64 behind them."""
    if values.ndim > 1:
        return [_nullable(row) for row in values]
    return [None if np.isnan(x) else float(str(x)) for x in values]


def _finite(tree: Any) -> Any:
    """The tree with None for numbers that JSON does not have."""
    if isinstance(tree, dict):
        return {name: _finite(x) for name, x in tree.items()}
    if isinstance(tree, list):
        return [_finite(x) for x in tree]
    return None if isinstance(tree, float) and not np.isfinite(tree) else tree
