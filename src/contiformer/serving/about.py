"""Endpoints about the server: health, schema of the models, metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from contiformer import __version__
from contiformer.data.readers.categories import columns_behind
from contiformer.estimators.model_card import facts_of, number_of_weights
from contiformer.serving.answers import bands_of, kind_of_times
from contiformer.serving.errors import JSONAnswer
from contiformer.serving.limits import Limits
from contiformer.serving.messages import Cell, ColumnSchema, Health, ModelSchema, ServerSchema
from contiformer.serving.metrics import CONTENT_TYPE, Metrics
from contiformer.serving.models import ServedModel, find_model

_EXAMPLE_TIMES: dict[str, list[Cell]] = {
    "numbers": [0.0, 1.5],
    "dates": ["2024-01-31T12:00:00", "2024-01-31T13:30:00"],
    "dates with a time zone": ["2024-01-31T12:00:00Z", "2024-01-31T13:30:00Z"],
    "durations": ["00:00:00", "01:30:00"],
}


def router(models: Mapping[str, ServedModel], metrics: Metrics, limits: Limits) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["server"])

    @routes.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether the server answers; the only endpoint that needs no token."""
        return JSONAnswer({"status": "ok", "models": len(models)})

    @routes.get("/schema", response_model=ServerSchema)
    async def schema(
        name: Annotated[str | None, Query(alias="model", description="Only this model.")] = None,
    ) -> Response:
        """Models, the columns that each takes, what it answers, the facts of its card, and the limits of a request."""
        chosen = models if name is None else {name: find_model(models, name)}
        described = {key: describe(model).model_dump() for key, model in chosen.items()}
        return JSONAnswer({"contiformer": __version__, "models": described, "limits": asdict(limits)})

    @routes.get("/metrics", response_class=Response)
    async def numbers() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return routes


def describe(model: ServedModel) -> ModelSchema:
    """Columns, outputs and metrics of a model."""
    estimator, task = model.estimator, model.task
    events = task == "events"
    schema = None if events else estimator.schema_
    channels = [] if schema is None else columns_behind(schema.channels, schema.categories)
    values = not events and not model.numbers_per_series
    bands = bands_of(estimator) if values else None
    columns = _columns(model, channels)
    return ModelSchema(
        task=task,
        estimator=type(estimator).__name__,
        backbone=estimator.config_["backbone"],
        weights=number_of_weights(estimator),
        columns=columns,
        channels=channels,
        time_kind=kind_of_times(estimator),
        time_unit=None if schema is None else schema.time_unit,
        classes=None if schema is None or schema.classes is None else list(schema.classes),
        types=list(estimator.type_names_) if events else None,
        outputs=list(estimator._outputs) if values else None,
        bands=bands,
        quantiles=list(estimator.quantiles) if bands == "quantiles" else None,
        horizon=estimator.horizon if task == "forecasting" else None,
        step=estimator.step_ if task == "forecasting" else None,
        facts=facts_of(estimator),
        metrics=validation_metrics(estimator),
        data=None if model.data is None else len(model.data),
        example=_example(model, columns, channels),
    )


def _columns(model: ServedModel, channels: list[str]) -> list[ColumnSchema]:
    roles = model.reader.columns
    found = []
    if roles.id is not None:
        found.append(ColumnSchema(name=roles.id, role="id", kind="word or whole number"))
    found.append(ColumnSchema(name=roles.time, role="time", kind="time"))
    if model.task == "events":
        if roles.type is not None:
            found.append(ColumnSchema(name=roles.type, role="type", kind="word or whole number"))
        return [*found, *(ColumnSchema(name=name, role="feature", kind="number") for name in roles.features)]
    schema = model.estimator.schema_
    units, categories = dict(zip(schema.channels, schema.units)), dict(schema.categories)

    def described(name: str, role: Any) -> ColumnSchema:
        known = categories.get(name)
        kind: Any = "number" if known is None else "category"
        known = None if known is None else list(known)
        return ColumnSchema(name=name, role=role, kind=kind, unit=units.get(name), categories=known)

    if roles.variable is not None:
        found.append(ColumnSchema(name=roles.variable, role="variable", kind="category", categories=channels))
        found.append(ColumnSchema(name=roles.value, role="value", kind="number"))
    else:
        found += [described(name, "channel") for name in channels]
    return found + [described(name, "static") for name in roles.static]


def _example(model: ServedModel, columns: list[ColumnSchema], channels: list[str]) -> list[dict[str, Cell]]:
    """Two records that the model takes."""
    kind = kind_of_times(model.estimator)
    types = model.estimator.type_names_ if model.task == "events" else ()
    records = []
    for n in range(2):
        record: dict[str, Cell] = {}
        for one in columns:
            fixed = {"id": "a", "time": _EXAMPLE_TIMES[kind][n], "type": types[n % len(types)] if types else None}
            word = one.categories[0] if one.categories else None
            record[one.name] = fixed.get(one.role, 1.0 if one.kind == "number" else word)
        records.append(record)
    return records


def validation_metrics(estimator: Any) -> dict[str, float | None]:
    """Metrics on the validation series, None where one is not finite."""
    metrics = estimator.metrics_.get("validation", {})
    found = {name: x for name, x in metrics.items() if isinstance(x, int | float)}
    return {name: x if math.isfinite(x) else None for name, x in found.items()}
