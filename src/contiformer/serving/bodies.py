"""Bodies of requests: JSON or CSV, by their content type."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from contiformer.data.errors import DataError
from contiformer.serving.errors import ServingError, invalid_text

M = TypeVar("M", bound=BaseModel)


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
        raise DataError(f"the body is not as it should be: {invalid_text(error.errors())}") from None


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
