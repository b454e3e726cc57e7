"""Generated data, for which the truth is known everywhere.

``GENERATORS`` maps a name to a function of ``seed`` (and options of its own) that gives a SeriesSet or an EventSet.
"""
# ruff: noqa: F401

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from contiformer.lazy import lazy_names

if TYPE_CHECKING:
    from contiformer.data.events import EventSet
    from contiformer.data.series_set import SeriesSet
    from contiformer.data.synthetic.clinic import clinic_frames
    from contiformer.data.synthetic.event_process import EventProcess, event_process_set, transition_matrix
    from contiformer.data.synthetic.oscillators import Oscillators, oscillator_set
    from contiformer.data.synthetic.pendulum import pendulum_set, pendulum_splits
    from contiformer.data.synthetic.point_process import Hawkes, PointProcess, Poisson, hawkes_set, poisson_set
    from contiformer.data.synthetic.spirals import Spirals, archimedean, generate_spirals, hyperbolic, spiral_set

#: Public names by module. Imported on first use: only the spirals need torch.
_NAMES: dict[str, tuple[str, ...]] = {
    "clinic": ("clinic_frames",),
    "event_process": ("EventProcess", "event_process_set", "transition_matrix"),
    "oscillators": ("Oscillators", "oscillator_set"),
    "pendulum": ("pendulum_set", "pendulum_splits"),
    "point_process": ("Hawkes", "PointProcess", "Poisson", "hawkes_set", "poisson_set"),
    "spirals": ("Spirals", "archimedean", "generate_spirals", "hyperbolic", "spiral_set"),
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)
__all__ += ["GENERATORS"]


def _later(function: str, **preset: Any) -> Callable[..., SeriesSet | EventSet]:
    return lambda **options: __getattr__(function)(**{**preset, **options})


#: Generators by name. Nothing is imported before one is called.
GENERATORS: dict[str, Callable[..., SeriesSet | EventSet]] = {
    "spirals": _later("spiral_set"),
    "spirals-authors": _later("spiral_set", preset="authors' code"),
    "synthetic": _later("event_process_set"),
    "hawkes": _later("hawkes_set"),
    "poisson": _later("poisson_set"),
    "pendulum": _later("pendulum_set"),
    "oscillators": _later("oscillator_set"),
}
