"""SeriesSet: series with the same channels, and the schema that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, get_args

from contiformer.data.collection import Collection, Lazy
from contiformer.data.conversion import TimeKind
from contiformer.data.errors import DataError
from contiformer.data.series import Label, Series
from contiformer.data.summary import Summary, summarize


@dataclass(frozen=True)
class Schema:
    """Description of a set: names, units, classes and the meaning of times.

    Attributes:
        channels, static, targets: names of the channels, of the static features and of the target's channels.
        units: a unit for each channel, None where unknown; empty when none is known.
        classes: the labels that can occur, in the order of their numbers; None when labels are not classes.
        dates: times are seconds since 1970 and stand for dates.
        time_unit: what a time of 1 is, for tables and axes.
        time_kind: of the times as they were given, None where unknown.
        categories: the categories of each column that became one 0/1 channel or feature for each of them.

    Example:
        >>> from contiformer.data import Schema
        >>> schema = Schema(channels=("pulse", "pH"), units=("1/min", None), time_unit="h")
        >>> Schema.from_dict(schema.to_dict()) == schema
        True
    """

    channels: tuple[str, ...] = ()
    units: tuple[str | None, ...] = ()
    static: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    classes: tuple[Label, ...] | None = None
    dates: bool = False
    time_unit: str | None = None
    time_kind: TimeKind | None = None
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def kind(self) -> TimeKind:
        """The kind of the times; where none was recorded, dates or numbers."""
        return self.time_kind or ("dates" if self.dates else "numbers")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        return cls(**{name: as_tuples(x) for name, x in data.items()})

    def check_types(self) -> None:
        """Raise a TypeError with the name of an entry of another type, for schemas that were read from a file."""
        for name, kinds in _ENTRIES.items():
            found = getattr(self, name)
            if found is None and name == "classes":
                continue
            if not isinstance(found, tuple) or not all(isinstance(each, kinds) for each in found):
                raise TypeError(name)
        if not (isinstance(self.dates, bool) and isinstance(self.time_unit, str | None)):
            raise TypeError("dates or time_unit")
        if self.time_kind not in (None, *get_args(TimeKind)):
            raise TypeError("time_kind")


#: Types of the entries of a schema that are tuples.
_ENTRIES: dict[str, Any] = {"channels": str, "static": str, "targets": str, "units": str | None, "categories": tuple}
_ENTRIES["classes"] = str | int | float


def as_tuples(x: Any) -> Any:
    """Lists as tuples, also within lists: JSON has lists only."""
    return tuple(map(as_tuples, x)) if isinstance(x, list) else x


class SeriesSet(Collection[Series]):
    """Series with the same channels, in memory or read when needed.

    Example:
        >>> from contiformer.data import Series, SeriesSet
        >>> data = SeriesSet([Series.of([0, 1, 4], [[1.0], [2.0], [3.0]], id="a")], channels=["pH"])
        >>> len(data), data.channels, data[0].id
        (1, ('pH',), 'a')
    """

    def __init__(
        self,
        series: Sequence[Series] | Lazy[Series],
        *,
        channels: Sequence[str] | None = None,
        classes: Sequence[Label] | None = None,
        schema: Schema | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Check that all series have the same channels, static features and targets.

        ``channels`` and ``classes`` override those of the schema; channels without names are numbered.
        """
        super().__init__(series, notes)
        given = schema or Schema()
        if channels is not None:
            given = replace(given, channels=tuple(channels))
        if classes is not None:
            given = replace(given, classes=tuple(classes))
        self.schema = _completed(given, self)
        _check_names(self.schema)
        if not self.lazy:
            _check(self)

    def _like(self, items: Sequence[Series] | Lazy[Series]) -> Self:
        return type(self)(items, schema=self.schema, notes=self.notes)

    def described(self, schema: Schema) -> Self:
        """The same series with another schema."""
        return type(self)(self._items, schema=schema, notes=self.notes)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the channels."""
        return self.schema.channels

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The labels that can occur."""
        return self.schema.classes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeriesSet) and self.schema == other.schema and super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"SeriesSet({len(self)} series, {len(self.channels)} channels{', lazy' if self.lazy else ''})"

    def summary(self) -> Summary:
        """Counts, lengths, gaps and missing shares; ``print`` it, or ``.table()`` for rich."""
        return summarize(self, self.channels, self.notes)


def _completed(schema: Schema, series: SeriesSet) -> Schema:
    if len(series) == 0:
        return schema
    first = series[0]
    if not schema.channels:
        schema = replace(schema, channels=numbered("channel", first.channels))
    if not schema.static and first.static is not None:
        schema = replace(schema, static=numbered("static", len(first.static)))
    if not schema.targets and first.target_values is not None:
        schema = replace(schema, targets=numbered("target", first.target_values.shape[1]))
    return schema


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Default names, as in ``channel_0``."""
    return tuple(f"{name}_{n}" for n in range(count))


def _check_names(schema: Schema) -> None:
    for what, names in (("channel", schema.channels), ("static feature", schema.static), ("target", schema.targets)):
        twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
        if twice is not None:
            raise DataError(f"two of the {what}s are called {twice!r}", remedy="rename one of them")
    if schema.units and len(schema.units) != len(schema.channels):
        raise DataError(f"{len(schema.units)} units for {len(schema.channels)} channels", remedy="use None if unknown")


def _check(data: SeriesSet) -> None:
    schema = data.schema
    classes = None if schema.classes is None else set(schema.classes)
    for n, series in enumerate(data):
        name = f"series {n if series.id is None else repr(series.id)}"
        if series.channels != len(schema.channels):
            problem = f"{name} has {series.channels} channels, the set has {len(schema.channels)}"
            raise DataError(problem, remedy="give every series all channels, with NaN where one was not observed")
        if (0 if series.static is None else len(series.static)) != len(schema.static):
            raise DataError(f"{name} has other static features than the first", remedy="use NaN for what is unknown")
        if (0 if series.target_values is None else series.target_values.shape[1]) != len(schema.targets):
            raise DataError(f"{name} has other targets than the first", remedy="use NaN for what is unknown")
        if classes is not None and series.label is not None and series.label not in classes:
            raise DataError(
                f"{name} has the label {series.label!r}, which is none of the classes {schema.classes}",
                remedy="add it to classes",
            )
