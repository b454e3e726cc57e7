"""Endpoints about the server: health, schema of the models, metrics."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.responses import Response

from contiformer.serving.limits import Limits
from contiformer.serving.metrics import CONTENT_TYPE, Metrics
from contiformer.serving.models import ServedModel


def router(models: Mapping[str, ServedModel], metrics: Metrics, limits: Limits) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["server"])

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @routes.get("/metrics", response_class=Response)
    async def numbers() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return routes
