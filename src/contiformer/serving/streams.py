"""Endpoints of event streams: append events one by one, ask in between."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from contiformer.data.conversion import DATES
from contiformer.data.errors import DataError
from contiformer.estimators.event_stream import EventStream
from contiformer.estimators.tables import frame_functions
from contiformer.serving.answers import as_text, finite, shown
from contiformer.serving.errors import JSONAnswer, Problem, ServingError, too_much
from contiformer.serving.limits import Limits
from contiformer.serving.messages import (
    EventRequest,
    NextEvent,
    StreamIntensity,
    StreamState,
    content_type,
    from_json,
    schema_in_openapi,
)
from contiformer.serving.metrics import Metrics
from contiformer.serving.models import ServedModel, find_model
from contiformer.serving.predictions import Name, moments, split

StreamName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._~-]{1,128}$", description="Letters, digits, '.', '_', '~', '-'.")
]
_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (408, 409, 413, 415, 504)}


@dataclass(eq=False)
class _Stream:
    model: ServedModel
    events: EventStream


class Streams:
    """Open streams by name, each of one model; the one that was idle longest goes when there are too many.

    Args:
        limit: how many there may be.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[str, _Stream] = OrderedDict()

    def counts(self) -> Mapping[str, int]:
        """The number of streams of each model."""
        return Counter(one.model.name for one in self._open.values())

    def find(self, name: str, model: str | None) -> _Stream:
        """An open stream, which is the least idle one from now on.

        Raises:
            ServingError: 404 where there is none, 409 where it belongs to another model.
        """
        if name not in self._open:
            raise ServingError(404, f"there is no stream {name!r}; the first event makes one")
        found = self._open[name]
        if model is not None and model != found.model.name:
            raise ServingError(409, f"the stream {name!r} belongs to the model {found.model.name!r}")
        self._open.move_to_end(name)
        return found

    def find_or_open(self, name: str, models: Mapping[str, ServedModel], model: str | None) -> _Stream:
        """An open stream, or a new one."""
        if name not in self._open:
            # the only model of events needs no name
            able = {key: one for key, one in models.items() if one.task == "events"}
            chosen = find_model(models if model is not None or len(able) != 1 else able, model)
            if chosen.task != "events":
                raise ServingError(422, f"{chosen.name!r} is a model of {chosen.task}, not of events")
            self._open[name] = _Stream(chosen, chosen.estimator.stream())
        return self.find(name, model)

    def settle(self, name: str, stream: _Stream) -> None:
        """After an event: forget a stream that got none, and evict others for one that did."""
        if not len(stream.events) and self._open.get(name) is stream:
            del self._open[name]
        while len(self._open) > self.limit:
            self._open.popitem(last=False)

    def close(self, name: str, model: str | None) -> None:
        """Forget a stream."""
        self.find(name, model)
        del self._open[name]


def router(models: Mapping[str, ServedModel], metrics: Metrics, limits: Limits) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(prefix="/events", tags=["event streams"], responses=_ERRORS)
    streams = Streams(limits.streams)
    metrics.gauges.append(("contiformer_streams", "Open streams of events.", streams.counts))

    @routes.post("/{stream}", response_model=StreamState, openapi_extra=schema_in_openapi(EventRequest, csv=False))
    async def append(request: Request, stream: StreamName, name: Name = None) -> Response:
        """Append an event, not before the last one; the first event opens the stream.

        Streams live in memory: after a restart, or when others pushed it out, send the events again.
        """
        content_type(request, csv=False)
        event = from_json(await request.body(), EventRequest)
        found = streams.find_or_open(stream, models, name)
        try:
            if len(found.events) >= limits.length:
                raise too_much("events", len(found.events) + 1, limits.length)
            kind = _type_of(event, found.events.type_names)
            await found.model.queue.run(found.events.append, event.time, kind)
        finally:
            streams.settle(stream, found)
        metrics.series.add(model=found.model.name)
        return JSONAnswer(_state(stream, found))

    @routes.get("/{stream}", response_model=NextEvent)
    async def predict_next(
        stream: StreamName,
        name: Name = None,
        within: Annotated[str | None, Query(description="A time, or hh:mm:ss where times are dates.")] = None,
    ) -> Response:
        """The next event: when it is expected, its median time, and the probabilities of the types."""
        found = streams.find(stream, name)
        wait = None if within is None else _wait(within)
        said = await found.model.queue.run(lambda: found.events.predict_next(within=wait))
        times = {key: as_text(said.pop(key)) for key in ("expected_time", "median_time")}
        metrics.series.add(model=found.model.name)
        return JSONAnswer({**_state(stream, found), **times, **said})

    @routes.get("/{stream}/intensity", response_model=StreamIntensity)
    async def intensity(
        stream: StreamName,
        at: Annotated[str, Query(description="Times from the last event on, separated by commas.")],
        name: Name = None,
    ) -> Response:
        """Intensities of all types at any times from the last event on, per unit of time."""
        found = streams.find(stream, name)
        asked: list[Any] = split(at)
        if len(asked) > limits.times:
            raise too_much("times", len(asked), limits.times)
        times = moments(asked, "at", found.events.kind)
        rates = await found.model.queue.run(found.events.intensity, asked)
        curves = {kind: finite(rates[:, n]) for n, kind in enumerate(found.events.type_names)}
        return JSONAnswer({**_state(stream, found), "times": shown(times, found.events.kind), "intensities": curves})

    @routes.delete("/{stream}", status_code=204, response_class=Response)
    async def close(stream: StreamName, name: Name = None) -> Response:
        """Forget the stream."""
        streams.close(stream, name)
        return Response(status_code=204)

    return routes


def _state(stream: str, found: _Stream) -> dict[str, Any]:
    return {"stream": stream, "model": found.model.name, "events": len(found.events)}


def _type_of(event: EventRequest, names: tuple[str, ...]) -> Any:
    if event.type is not None:
        return event.type
    if len(names) > 1:
        raise DataError("the type is missing", remedy=f"the model knows {', '.join(names[:8])}")
    return names[0]


def _wait(within: str) -> Any:
    """A wait: a number, or a duration written as hh:mm:ss."""
    remedy = "give a number, or hh:mm:ss where times are dates"
    try:
        seconds, kind = frame_functions().times_from_words([within], "within")
    except DataError as error:
        raise DataError(f"within: {error.problem}", remedy=remedy) from None
    if kind in DATES:
        raise DataError(f"within={within} is a date", remedy=remedy)
    number = float(seconds[0])
    return dt.timedelta(seconds=number) if kind == "durations" else number
