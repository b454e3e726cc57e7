"""Counters of a server in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Counter:
    """A number that only grows, for each set of labels."""

    name: str
    help: str
    counts: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Count."""
        self.counts[tuple(labels.items())] += amount

    def lines(self) -> Iterator[str]:
        """In the text format."""
        yield from _head(self.name, self.help, "counter")
        yield from (f"{self.name}{_braces(labels)} {count:g}" for labels, count in sorted(self.counts.items()))


@dataclass
class Histogram:
    """Counts of observations up to each bound, for each set of labels."""

    name: str
    help: str
    bounds: tuple[float, ...]
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def observe(self, value: float, **labels: str) -> None:
        """Count one observation."""
        key = tuple(labels.items())
        self.counts.setdefault(key, [0] * (len(self.bounds) + 1))[bisect_left(self.bounds, value)] += 1
        self.sums[key] += value

    def lines(self) -> Iterator[str]:
        """In the text format, where counts are cumulative."""
        yield from _head(self.name, self.help, "histogram")
        for labels, counts in sorted(self.counts.items()):
            total = 0
            for bound, count in zip((*map("{:g}".format, self.bounds), "+Inf"), counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braces((*labels, ('le', bound)))} {total}"
            yield f"{self.name}_sum{_braces(labels)} {self.sums[labels]:g}"
            yield f"{self.name}_count{_braces(labels)} {total}"


@dataclass
class Metrics:
    """All metrics of a server.

    Example:
        >>> from contiformer.serving.metrics import Metrics
        >>> metrics = Metrics()
        >>> metrics.requests.add(route="/predict", status="200")
        >>> print(metrics.text().splitlines()[2])
        contiformer_requests_total{route="/predict",status="200"} 1
    """

    requests: Counter = field(default_factory=lambda: Counter("contiformer_requests_total", "Requests answered."))
    errors: Counter = field(
        default_factory=lambda: Counter("contiformer_errors_total", "Requests answered with a status of 400 or more.")
    )
    seconds: Histogram = field(
        default_factory=lambda: Histogram("contiformer_request_seconds", "Time to the answer.", _SECONDS)
    )
    batches: Histogram = field(
        default_factory=lambda: Histogram("contiformer_batch_series", "Series in a call of a model.", _SIZES)
    )
    series: Counter = field(
        default_factory=lambda: Counter("contiformer_series_total", "Series and sequences answered.")
    )
    #: Values that are asked for when the metrics are: name, help, and a value for each model.
    gauges: list[tuple[str, str, Callable[[], Mapping[str, float]]]] = field(default_factory=list)

    def text(self) -> str:
        """Everything in the text format."""
        lines: list[str] = []
        for metric in (self.requests, self.errors, self.seconds, self.batches, self.series):
            lines += metric.lines()
        for name, what, values in self.gauges:
            lines += _head(name, what, "gauge")
            lines += [f"{name}{_braces((('model', model),))} {value:g}" for model, value in values().items()]
        return "\n".join(lines) + "\n"


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
