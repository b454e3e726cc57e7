"""What all pictures share: a figure without a screen, quiet axes, a file."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

from contiformer.data.readers.text import write_bytes

BLUE, ORANGE, GREEN, GREY, INK = "#0072b2", "#d55e00", "#009e73", "0.75", "0.15"


def require_matplotlib() -> None:
    """Say what to install when there is nothing to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("pictures need matplotlib, which is an extra: pip install 'contiformer[plot]'")


def new_figure(width: float, height: float) -> Any:
    """A figure that needs no screen."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Any) -> None:
    """Without the box around it, and with a faint grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def save(figure: Any, path: Path) -> Path:
    """Write a PNG of at most 256 colours, whole or not at all.

    Pictures are committed and embedded in reports, and a palette makes them a third as large.
    """
    from PIL import Image  # noqa: PLC0415  # matplotlib needs it

    full, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=150)
    Image.open(full).convert("RGB").quantize(256).save(packed, format="png", optimize=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, packed.getvalue())
    return path
