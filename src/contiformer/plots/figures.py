"""Shared parts of all pictures: colours, figures without a screen, axes, legends and PNG files."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from contiformer.data import as_datetimes, write_bytes

BLUE, ORANGE, GREEN, GREY, INK = "#0072b2", "#d55e00", "#009e73", "0.75", "0.15"
#: Ink on a light ground that stays light on a dark page.
ON_LIGHT = "0.1"
_ABSENT = "pictures need matplotlib, which is an extra: pip install 'contiformer[plot]'"


def require_matplotlib() -> None:
    """Refuse to go on without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError(_ABSENT)


def new_figure(width: float, height: float) -> Any:
    """A figure that needs no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_ABSENT) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Any) -> None:
    """Remove the box around the axes, and draw a faint grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def time_axis(times: NDArray[Any], dates: bool) -> NDArray[Any]:
    """Times as they are drawn: dates where they are seconds since 1970."""
    return as_datetimes(times) if dates else times


def legend_below(figure: Any, panels: Iterable[Any], order: Sequence[str] | None = None, columns: int = 0) -> None:
    """One legend for all panels; without an order, in that of their appearance and in one row."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    names = [name for name in order or handles if name in handles]
    shown = [handles[name] for name in names]
    place = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
    figure.legend(shown, names, ncols=columns or len(names), **place)


def plain_text(figure: Any) -> None:
    """Draw all text as it is: a name with dollars is no formula."""
    from matplotlib.text import Text  # noqa: PLC0415

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def save(figure: Any, path: Path) -> Path:
    """Write a PNG of at most 256 colours, which a palette makes a third as large; whole or not at all.

    An ``.svg`` is for pages: it has no background, and its ink is the colour of the text around it.
    """
    from PIL import Image  # noqa: PLC0415  # matplotlib needs it

    full, packed = io.BytesIO(), io.BytesIO()
    plain_text(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        from matplotlib import rc_context  # noqa: PLC0415

        # names of parts are made from the salt: several pictures may be on one page
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
            figure.savefig(full, format="svg", transparent=True, metadata={"Date": None})
        write_bytes(path, re.sub(rb"#(000000|262626)\b", b"currentColor", full.getvalue()))
        return path
    figure.savefig(full, format="png", dpi=150)
    Image.open(full).convert("RGB").quantize(256).save(packed, format="png", optimize=True)
    write_bytes(path, packed.getvalue())
    return path
