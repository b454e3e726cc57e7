"""Endpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter


def router(*_: Any) -> APIRouter:
    """The endpoints."""
    return APIRouter()
