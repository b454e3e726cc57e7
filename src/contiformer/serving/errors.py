"""Errors as HTTP answers, in one place: status, text, and row and column of bad data."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from contiformer.data.errors import DataError, printable

logger = logging.getLogger("contiformer.serving")


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    detail: str = Field(description="What is wrong, where, and what to do.")
    row: int | None = Field(None, description="The record, counted from 1, or the line of CSV.")
    column: str | None = Field(None, description="The column.")
    remedy: str | None = Field(None, description="What to do.")


class ServingError(Exception):
    """A request that is answered with this status and text.

    Attributes:
        status: of the answer.
        detail: one sentence.
        retry_after: seconds after which to try again, for 503.
    """

    def __init__(self, status: int, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after = status, detail, retry_after


def too_much(what: str, given: int | str, limit: int) -> ServingError:
    """Error 413, with the count in the request and the limit."""
    return ServingError(413, f"{given} {what} in one request; at most {limit:,} are allowed: send several requests")


class JSONAnswer(JSONResponse):
    """JSON in ASCII, which also holds the lone surrogates that JSON allows; never NaN or Infinity."""

    def render(self, content: Any) -> bytes:
        """The body as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_to(error: BaseException) -> Response:
    """The answer to a request that failed; what is not expected is logged without its data, and is a 500."""
    if isinstance(error, ServingError):
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return problem(error.status, error.detail, headers=headers)
    if isinstance(error, DataError):
        bare = DataError(error.problem, row=error.row, column=error.column, remedy=error.remedy)
        return problem(422, str(bare), row=error.row, column=error.column, remedy=error.remedy)
    if isinstance(error, ValueError):
        # the estimators' own: an argument that a model of this kind does not take
        return problem(422, str(error))
    logger.error("unexpected %s at %s", type(error).__name__, _places(error))
    return problem(500, "the server failed at this request; its log says where")


def problem(status: int, detail: str, *, headers: dict[str, str] | None = None, **where: Any) -> Response:
    """An answer with the body :class:`Problem`."""
    where = {name: printable(x) if isinstance(x, str) else x for name, x in where.items()}
    content = Problem(detail=printable(detail), **where).model_dump()
    return JSONAnswer(content, status, headers=headers)


def install(app: FastAPI) -> None:
    """Answer all errors of the endpoints of an application."""

    async def failed(_: Request, error: Exception) -> Response:
        return answer_to(error)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem(error.status_code, str(error.detail), headers=dict(error.headers or {}))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(422, invalid_text(error.errors()))

    for kind in (ServingError, ValueError):
        app.add_exception_handler(kind, failed)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)


def invalid_text(errors: Any) -> str:
    """The first errors of pydantic in one line, without the values."""
    said = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in errors[:3]]
    return "; ".join(said) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")


def _places(error: BaseException) -> str:
    """The innermost lines that an error came through, without its message, which may hold data."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
