"""Requests and answers as pydantic models, the types of the OpenAPI document; and bodies, read by content type."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from contiformer.data.errors import DataError
from contiformer.serving.errors import ServingError, invalid_text

M = TypeVar("M", bound=BaseModel)

#: A cell of a record.
Cell = str | int | float | bool | None
#: A time as it was in training: a number, a date in ISO 8601, or a duration as hh:mm:ss.
Time = Annotated[float | str, Field(description="A number; an ISO 8601 date; or hh:mm:ss where times are durations.")]
Class = str | int | float | bool

_RECORDS = [{"id": "a", "time": 0.0, "x": 1.5}, {"id": "a", "time": 1.25, "x": None}]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PredictRequest(_Request):
    """Series as records, in the columns that the model was trained on."""

    records: list[dict[str, Any]] = Field(
        description="A record for each observation or event; null, or no key: not observed.", examples=[_RECORDS]
    )


class AtRequest(PredictRequest):
    """Series as records, and the times to answer for."""

    at: list[Time] | dict[str, list[Time]] = Field(
        description="Times for all series, or a list for each id.", examples=[[0.5, 2.0], {"a": [0.5, 2.0]}]
    )
    quantiles: list[float] | None = Field(
        None, description="Levels of the bands; default: what the model has.", examples=[[0.05, 0.95]]
    )


class ClassAnswer(BaseModel):
    """Answer of a classifier: class and probabilities."""

    label: Class = Field(description="The most probable class.")
    probabilities: dict[str, float] = Field(description="Calibrated, by class.")


class NumberAnswer(BaseModel):
    """Answer of a regressor: one number for a series."""

    value: float


class CurveAnswer(BaseModel):
    """Values of every channel at times, with their bands."""

    times: list[float | str]
    values: dict[str, list[float | None]] = Field(description="Means, by channel.")
    std: dict[str, list[float | None]] | None = Field(None, description="Standard deviations, by channel.")
    quantiles: dict[str, dict[str, list[float | None]]] | None = Field(None, description="By level, then by channel.")


class EventAnswer(BaseModel):
    """The next event of a sequence."""

    last_time: float | str
    expected_time: float | str | None
    median_time: float | str | None
    type: str
    probability: float
    probabilities: dict[str, float]


class ClassCurveAnswer(BaseModel):
    """Predictions of a classifier from the observations until each time; null before the first."""

    times: list[float | str]
    labels: list[Class | None]
    probabilities: dict[str, list[float | None]]


class NumberCurveAnswer(BaseModel):
    """Predictions of a regressor of one number from the observations until each time; null before the first."""

    times: list[float | str]
    value: list[float | None]


class IntensityAnswer(BaseModel):
    """Intensities of each type of event, per unit of time."""

    times: list[float | str]
    intensities: dict[str, list[float | None]]


class _Answers(BaseModel):
    model: str
    task: Literal["classification", "regression", "interpolation", "forecasting", "events"]
    warnings: list[str] = Field([], description="Of the data or the question, such as times beyond the horizon.")


class PredictAnswers(_Answers):
    """An answer for each series, by id."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "model": "mortality",
                "task": "classification",
                "predictions": {"a": {"label": "no", "probabilities": {"no": 0.8, "yes": 0.2}}},
                "warnings": [],
            }
        }
    )
    predictions: dict[str, ClassAnswer | NumberAnswer | CurveAnswer | EventAnswer]


class AtAnswers(_Answers):
    """An answer for each series at its times, by id."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "model": "vitals",
                "task": "interpolation",
                "predictions": {"a": {"times": [0.5, 2.0], "values": {"x": [1.4, 0.9]}, "std": {"x": [0.1, 0.3]}}},
                "warnings": [],
            }
        }
    )
    predictions: dict[str, CurveAnswer | ClassCurveAnswer | NumberCurveAnswer | IntensityAnswer]


class EventRequest(_Request):
    """One event."""

    time: Time = Field(examples=[3.5])
    type: str | int | None = Field(None, description="Its name; may be left out where there is one.", examples=["buy"])


class StreamState(BaseModel):
    """A stream after an event."""

    stream: str
    model: str
    events: int = Field(description="How many it has.")


class NextEvent(StreamState):
    """The next event of a stream."""

    expected_time: float | str | None
    median_time: float | str | None
    type: str
    probability: float
    probabilities: dict[str, float]
    within: float | None = Field(None, description="Probability that it comes within the time that was asked for.")


class StreamIntensity(IntensityAnswer, StreamState):
    """Intensities of a stream."""


class ColumnSchema(BaseModel):
    """A column of the records."""

    name: str
    role: Literal["id", "time", "channel", "static", "variable", "value", "type", "feature"]
    kind: Literal["word or whole number", "time", "number", "category"]
    unit: str | None = None
    categories: list[str] | None = None


class ModelSchema(BaseModel):
    """Columns, outputs and metrics of a model."""

    task: str
    estimator: str
    backbone: str
    weights: int = Field(description="Number of parameters.")
    columns: list[ColumnSchema] = Field(description="Columns that are read; others are ignored.")
    channels: list[str] = Field(description="Names of the channels; in the layout of variables, the variables.")
    time_kind: Literal["numbers", "dates", "dates with a time zone", "durations"]
    time_unit: str | None
    classes: list[Class] | None = Field(description="Of a classifier.")
    types: list[str] | None = Field(description="Of events.")
    outputs: list[str] | None = Field(description="Channels of the answers.")
    bands: Literal["std", "quantiles"] | None = Field(description="What comes with values.")
    quantiles: list[float] | None = Field(description="Levels that a model of quantiles knows.")
    horizon: int | None = Field(description="Steps that a forecaster answers for.")
    step: float | None = Field(description="Of a forecaster, in the unit of time (dates: seconds).")
    facts: dict[str, str] = Field(description="Of the model card.")
    metrics: dict[str, float | None] = Field(description="On the validation series, not a test.")
    data: int | None = Field(description="Series to explore, where some were given.")
    example: list[dict[str, Cell]] = Field(description="Records in the right form.")


class ServerSchema(BaseModel):
    """All models, and the limits of a request."""

    contiformer: str
    models: dict[str, ModelSchema]
    limits: dict[str, float]


class Health(BaseModel):
    """Whether the server answers."""

    status: Literal["ok"]
    models: int


def content_type(request: Request, *, csv: bool = True) -> str:
    """One of "application/json" and "text/csv".

    Raises:
        ServingError: 415 for any other. A page of another site can only send those others without asking first.
    """
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    kind, charset = kind.strip().lower(), parameters.lower().partition("charset=")[2].strip(' "')
    known = ("application/json", "text/csv") if csv else ("application/json",)
    if kind not in known or charset not in ("", "utf-8", "us-ascii"):
        raise ServingError(415, f"send the header Content-Type: {' or '.join(known)}, in UTF-8")
    return kind


def from_json(body: bytes, kind: type[M]) -> M:
    """The body as a message.

    Raises:
        DataError: it is no JSON, or not of this form.
    """
    try:
        parsed: Any = json.loads(body.decode(), parse_constant=_refuse_constant)
    except DataError:
        raise
    except RecursionError:
        raise DataError("the body is nested too deeply", remedy="send flat records") from None
    except ValueError as error:
        # of a JSONDecodeError, which holds the body, only the message
        said = getattr(error, "msg", None) or type(error).__name__
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"the body is no JSON: {said}{place}", remedy="send JSON in UTF-8") from None
    try:
        return kind.model_validate(parsed)
    except ValidationError as error:
        raise DataError(f"the body does not fit the schema: {invalid_text(error.errors())}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise DataError(f"{name} is not JSON", remedy="use null for what was not observed")


def schema_in_openapi(kind: type[BaseModel], *, csv: bool = True) -> dict[str, Any]:
    """The description of a body that is read by these functions, for ``openapi_extra``."""
    content: dict[str, Any] = {"application/json": {"schema": _inlined(kind)}}
    if csv:
        example = "id,time,x\na,0.0,1.5\na,1.25,\n"
        content["text/csv"] = {"schema": {"type": "string"}, "example": example}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    assert "$defs" not in schema, "a reference would point to nowhere"
    return schema
