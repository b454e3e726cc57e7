"""Marked temporal point processes: intensities, likelihood, prediction and sampling."""

from contiformer.lazy import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "build": ["build_model"],
        "intensity": ["IntensityModel", "Memory"],
        "likelihood": ["IntegralRule", "Intervals", "intervals", "log_likelihood"],
        "next_event": ["NextEvent", "draw_next", "expect", "quantile"],
        "task": ["EventTask"],
    },
)
