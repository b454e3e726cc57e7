"""Limits of a server: sizes of requests, waiting requests, and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Everything a request may not exceed; too much is answered with 413, too many requests with 503.

    Attributes:
        body_bytes: size of one request's body.
        waiting_bytes: bodies of all requests that are being answered, together.
        rows: records, or rows of CSV, in a request; also points of all parts of series that classifiers are asked for.
        series: series, or sequences of events, in a request.
        length: points of a series, or events of a sequence or stream.
        times: times asked of a request, over all its series.
        queue: requests that wait for a model.
        batch: series that are put together from waiting requests, at most.
        streams: open streams of events; one more evicts the one that was idle longest.
        deadline: seconds until a request that has no answer is given up.
        body_seconds: seconds in which the body has to arrive.
        head_seconds: seconds in which the request line and headers have to arrive.
        connections: open connections.

    Example:
        >>> from contiformer.serving import Limits
        >>> Limits(rows=1_000).rows
        1000
    """

    body_bytes: int = 16 * 2**20
    waiting_bytes: int = 128 * 2**20
    rows: int = 100_000
    series: int = 2_000
    length: int = 5_000
    times: int = 50_000
    queue: int = 128
    batch: int = 128
    streams: int = 1_000
    deadline: float = 60.0
    body_seconds: float = 20.0
    head_seconds: float = 10.0
    connections: int = 1_000
