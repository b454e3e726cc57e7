"""Endpoints of predictions: of series, and at any times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray
from starlette.responses import Response

from contiformer.data.conversion import TimeKind
from contiformer.data.errors import DataError
from contiformer.estimators.tables import asked_times, names_of
from contiformer.serving.answers import Item, Question, answers, kind_of_times, lengths_of_parts
from contiformer.serving.batching import collected
from contiformer.serving.errors import JSONAnswer, Problem, too_much
from contiformer.serving.messages import (
    AtAnswers,
    AtRequest,
    PredictAnswers,
    PredictRequest,
    content_type,
    from_json,
    schema_in_openapi,
)
from contiformer.serving.metrics import Metrics
from contiformer.serving.models import ServedModel, find_model

M = TypeVar("M", bound=PredictRequest)
Name = Annotated[str | None, Query(alias="model", description="Of the model; may be left out where there is one.")]
Words = Annotated[str | None, Query(description="For CSV: separated by commas.")]
_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (408, 413, 415, 504)}
#: Bodies of up to so many bytes are parsed at once, larger ones in a thread.
_SMALL = 16_384


def router(models: Mapping[str, ServedModel], metrics: Metrics) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["predictions"], responses=_ERRORS)

    @routes.post("/predict", response_model=PredictAnswers, openapi_extra=schema_in_openapi(PredictRequest))
    async def predict(request: Request, name: Name = None) -> Response:
        """A prediction for each series: class and probabilities, a number, values with bands, or the next event.

        Series come as JSON records or as CSV, in the columns that `/schema` lists. Forecasters answer for their
        horizon, interpolators for the times of the series.
        """
        model = find_model(models, name)
        kind, body = content_type(request), await request.body()
        _, items, ids, warned = await _in_thread(body, partial(_read, model, kind, PredictRequest))
        return await _answer(model, Question("series"), items, ids, warned, metrics)

    @routes.post("/at", response_model=AtAnswers, openapi_extra=schema_in_openapi(AtRequest))
    async def at(request: Request, name: Name = None, at: Words = None, quantiles: Words = None) -> Response:
        """Answers at any times: values with their bands, or intensities of events.

        Of classifiers, and of regressors of one number: what they say of the observations until each time. With JSON
        the times are in the body, with CSV in the query.
        """
        model = find_model(models, name)
        kind, body = content_type(request), await request.body()
        parse = partial(_asked, model, kind, at, quantiles)
        question, items, ids, warned = await _in_thread(body, parse)
        return await _answer(model, question, items, ids, warned, metrics)

    return routes


async def _in_thread(body: bytes, parse: Callable[[bytes], Any]) -> Any:
    if len(body) <= _SMALL:
        return parse(body)
    return await asyncio.to_thread(parse, body)


async def _answer(
    model: ServedModel, question: Question, items: list[Item], ids: list[str], warned: list[str], metrics: Metrics
) -> Response:
    found, more = await model.queue.ask(question, items, partial(answers, model.estimator, question))
    metrics.series.add(len(items), model=model.name)
    content = {
        "model": model.name,
        "task": model.task,
        "predictions": dict(zip(ids, found, strict=True)),
        "warnings": [*warned, *more],
    }
    return JSONAnswer(content)


def _read(
    model: ServedModel, kind: str, form: type[M], body: bytes
) -> tuple[M | None, list[Item], list[str], list[str]]:
    """The message of a body in JSON, its series or those of CSV, their ids, and warnings."""
    with collected() as warned:
        asked = None if kind == "text/csv" else from_json(body, form)
        data = model.parse_csv(body) if asked is None else model.parse_records(asked.records)
    return asked, [Item(one) for one in data], list(map(str, names_of(data))), warned


def _asked(
    model: ServedModel, kind: str, at: str | None, quantiles: str | None, body: bytes
) -> tuple[Question, list[Item], list[str], list[str]]:
    """Question, series with their times, ids, and warnings."""
    if kind == "text/csv":
        if at is None:
            raise DataError("at which times? There is no at in the query", remedy="add ?at=0,0.5,1")
    elif at is not None or quantiles is not None:
        raise DataError("at and quantiles in the query are for CSV", remedy="put them into the JSON")
    levels = None if quantiles is None else [_number(word) for word in split(quantiles)]
    asked, items, ids, warned = _read(model, kind, AtRequest, body)
    times: Any = split(at) if at is not None else None
    if asked is not None:
        times, levels = asked.at, asked.quantiles
    if levels is not None and len(levels) > 100:
        raise too_much("quantiles", len(levels), 100)
    question = Question("times", None if levels is None else tuple(levels))
    return question, _with_times(model, items, ids, times), ids, warned


def _with_times(model: ServedModel, items: list[Item], ids: list[str], at: Any) -> list[Item]:
    kind = kind_of_times(model.estimator)
    count = sum(map(len, at.values())) if isinstance(at, dict) else len(at) * len(items)
    if count > model.limits.times:
        raise too_much("times", f"{count:,}", model.limits.times)
    if not isinstance(at, dict):
        times = moments(at, "at", kind)
        return _affordable(model, [item._replace(times=times) for item in items])
    for name in at:
        if name not in ids:
            raise DataError(f"at asks for {name!r}, which the records do not have", remedy="give its series as well")
    lacking = next((name for name in ids if name not in at), None)
    if lacking is not None:
        raise DataError(f"at has no times for the series {lacking!r}", remedy="give a list for every id")
    asked = [item._replace(times=moments(at[name], f"at[{name!r}]", kind)) for item, name in zip(items, ids)]
    return _affordable(model, asked)


def _affordable(model: ServedModel, items: list[Item]) -> list[Item]:
    """The items, unless a model of whole series would have to read too many parts of them."""
    if model.numbers_per_series:
        points = sum(sum(lengths_of_parts(item)) for item in items)
        if points > model.limits.rows:
            raise too_much("points in the parts of series until each time", f"{points:,}", model.limits.rows)
    return items


def moments(at: list[float | str], name: str, kind: TimeKind) -> NDArray[np.float64]:
    """Times of a request as numbers, of the kind that the model was trained on; they have to be one kind, and some."""
    if not at:
        raise DataError(f"{name} has no times", remedy="give at least one")
    if len({isinstance(time, str) for time in at}) > 1:
        raise DataError(f"{name} has numbers and words", remedy="use one of them")
    try:
        return asked_times(at, name, kind)
    except DataError as error:
        # its row would be taken for a record
        raise DataError(f"{name}: {error.problem}", remedy=error.remedy) from None


def split(words: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in words.split(",")]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise DataError(f"the quantile {word!r} is no number", remedy="give numbers between 0 and 1") from None
