"""Data sources of a run: a file, a set of the catalogue or a generator, divided into training and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from contiformer.cli.files import (
    EVENT_ENDINGS,
    SERIES_ENDINGS,
    ending_of,
    read_event_file,
    read_labels,
    read_series_file,
)
from contiformer.data import (
    DataError,
    EventSet,
    Schema,
    SeriesSet,
    catalog,
    cut_windows,
    did_you_mean,
    without_features,
)
from contiformer.data.synthetic import GENERATORS
from contiformer.estimators.event_tables import EventColumns, Events
from contiformer.estimators.input_checks import last_part
from contiformer.estimators.labels import only_labelled
from contiformer.estimators.scoring import columns_of_run
from contiformer.estimators.tables import Columns, without_answers

if TYPE_CHECKING:
    from contiformer.estimators import Estimator, EventPredictor, Forecaster

EVENT_GENERATORS = ("hawkes", "poisson", "synthetic")
#: Test share of a generated set, unless another is given: the paper's 200 spirals for training and 100 for the test.
GENERATED_TEST = 1 / 3
GENERATED_EVENTS_TEST = 0.2
#: The test part of sets that have none of their own.
_TESTED_ON = {"PhysioNet2012-A": "PhysioNet2012-B"}
_USE_EVENTS = "use `contiformer train events` with it"


def kind_of(data: str) -> str:
    """The kind of a name or path from :func:`find_data`: "file", "generated", or the task in the catalogue."""
    if Path(data).is_absolute():
        return "file"
    return "generated" if data in GENERATORS else catalog.dataset_info(data).task


def find_data(data: str, *, events: bool) -> str:
    """The name as the catalogue or the generators have it, or an absolute path.

    An unknown name is refused with the nearest one, and so are data for other tasks.
    """
    tasks = {info.name: info.task for info in catalog.DATASETS.values()}
    made = [name for name in GENERATORS if events == (name in EVENT_GENERATORS)]
    public = [name for name, task in tasks.items() if events == (task == "events")]
    lower = data.lower()
    found = {name.lower(): name for name in (*made, *public)}.get(lower)
    if found is not None:
        return found
    path = Path(data).expanduser()
    if path.exists():
        return str(path.resolve())
    if path.is_absolute() or ending_of(path) in (EVENT_ENDINGS if events else SERIES_ENDINGS) or "/" in data:
        raise DataError("there is no such file", file=data, remedy="check the path")
    advice = did_you_mean(data, [*public, *made])
    other = next((name for name in tasks if name.lower() == lower), None)
    if events and other is not None:
        raise DataError(f"{data} is a set for {tasks[other]}, not of events", remedy=advice)
    if events:
        raise DataError(f"there is no set of events and no file {data!r}", remedy=advice)
    if lower in EVENT_GENERATORS:
        raise DataError(f"{lower} makes events", remedy=_USE_EVENTS)
    if other is not None:
        raise DataError(f"{other} is a set of events", remedy=_USE_EVENTS)
    raise DataError(f"there is no data set and no file {data!r}", remedy=advice)


def share_of(text: str | None) -> float | None:
    """The share that is written there, None where it is something else."""
    try:
        share = float(text or "")
    except ValueError:
        return None
    if not 0 < share < 1:
        problem = f"--test {text} is not a share between 0 and 1"
        raise DataError(problem, remedy="pass --test 0.2, a file or a data set")
    return share


@dataclass(frozen=True)
class Source:
    """All that is needed to read the data of a run again.

    Attributes:
        data: name or absolute path.
        columns: of a table.
        test: name or path of other data, or a share of these; None: the test part of a set that has one.
        seed: of the division into training and test, and of dropped points.
    """

    #: The items of the data, for messages.
    items: ClassVar[str]

    data: str
    columns: Any = None
    test: str | None = None
    seed: int = 0

    @classmethod
    def of(cls, data: str, *, test: str | None = None, **others: Any) -> Self:
        """Make a source, with names and paths as :func:`find_data` gives them."""
        events = issubclass(cls, EventSource)
        if test is not None and share_of(test) is None:
            test = find_data(test, events=events)
        return cls(find_data(data, events=events), test=test, **others)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        return cls(**{**saved, "columns": cls("").columns.from_dict(saved["columns"])})

    @property
    def name(self) -> str:
        """Short, for the names of runs."""
        return Path(self.data).name.split(".")[0] if kind_of(self.data) == "file" else self.data

    @property
    def test_data(self) -> str | None:
        """The name or path of the test data, where they are others."""
        return self.test if share_of(self.test) is None else None


@dataclass(frozen=True)
class SeriesSource(Source):
    """The source of series: ``labels`` is the path of a table of their own, ``drop`` a share of points to leave out."""

    items: ClassVar[str] = "series"

    columns: Columns = field(default_factory=Columns)
    labels: str | None = None
    drop: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """Further words in the names of runs."""
        return f"-drop{self.drop:g}" if self.drop else ""

    def lengths(self) -> dict[str, int]:
        """History and horizon of the paper's tables for the sets that are in them."""
        if kind_of(self.data) != "forecasting":
            return {}
        history, horizons = catalog.PAPER_LENGTHS[self.data]
        return {"history": history, "horizon": horizons[0]}

    def training(self, task: str, parameters: Mapping[str, Any]) -> tuple[SeriesSet, SeriesSet | None, Columns]:
        """Series to train on, those to validate on where the set prescribes them, and the columns of a table."""
        kind = kind_of(self.data)
        if kind == "forecasting" and task == "forecasting":
            training, validation = (self._windows(part, parameters) for part in ("train", "val"))
            return training, validation, self.columns
        data, columns = self._read(self.data, "train")
        if kind in ("file", "generated"):
            data = self._divided(data, task)[0]
        return without_answers(data) if task == "forecasting" else data, None, columns

    def testing(self, estimator: Estimator) -> SeriesSet | None:
        """Series to test on; None where there are none."""
        kind, other = kind_of(self.data), self.test_data
        if other is None and kind in ("file", "generated"):
            found = self._held_out(estimator)
        else:
            if other is None:
                own = _TESTED_ON.get(self.data) if kind == "clinical" else self.data
                other = own if own is not None and _has_test_part(own) else None
            found = None if other is None else self._test_of(other, estimator)
        if found is None or estimator.task_name != "forecasting" or found.lazy:  # windows are lazy, and have targets
            return found
        return without_answers(found)

    def check_test(self, training: SeriesSet) -> None:
        """Read a test file once."""
        if self.test_data is not None and kind_of(self.test_data) == "file":
            self._read_file(self.test_data, training.schema)

    def other(self, data: str, estimator: Estimator, **columns: str | None) -> SeriesSet | None:
        """Other series with answers; of a set with parts its test part."""
        found, labels = find_data(data, events=False), columns.pop("labels", None)
        roles = columns_of_run(estimator, columns)
        return replace(self, data=found, test=found, columns=roles, labels=labels).testing(estimator)

    def inputs(self, data: str, estimator: Estimator, **columns: str | None) -> SeriesSet:
        """Other series, whose labels and targets may be missing."""
        found = find_data(data, events=False)
        if kind_of(found) == "file":
            roles = columns_of_run(estimator, columns)
            return read_series_file(Path(found), roles, estimator.schema_)[0]
        series = SeriesSource(found, test=found).testing(estimator)
        assert series is not None
        return series

    def _test_of(self, data: str, estimator: Estimator) -> SeriesSet | None:
        if kind_of(data) == "generated" and data == self.data:
            # the same generator makes the same series: what was trained on is no test
            return self._divided(self._read(data, "train")[0], estimator.task_name)[1]
        if kind_of(data) != "forecasting":
            return self._read(data, "test", estimator.schema_)[0]
        if estimator.task_name != "forecasting":
            return None
        return replace(self, data=data)._windows("test", estimator.get_params(deep=False))

    def _held_out(self, estimator: Estimator) -> SeriesSet | None:
        """The share of the data that was not trained on."""
        share, generated = share_of(self.test), kind_of(self.data) == "generated"
        if share is None and not generated:
            return None
        data = self._read(self.data, "train")[0]
        if estimator.task_name != "forecasting" or share is None or generated:
            return self._divided(data, estimator.task_name)[1]
        # what lies exactly on the border is for the test
        between = [(float(np.nextafter(border, -np.inf)), np.inf) for border in _borders(data, share)]
        forecaster = cast("Forecaster", estimator)
        return cut_windows(without_answers(data), forecaster._history, forecaster._reach(), between=between)

    def _read_file(self, data: str, known: Schema | None) -> tuple[SeriesSet, Columns]:
        labelled = self.labels is None
        found, columns = read_series_file(Path(data), self.columns, known, labelled=labelled)
        return (found, columns) if self.labels is None else read_labels(Path(self.labels), found, columns)

    def _read(self, data: str, part: str, known: Schema | None = None) -> tuple[SeriesSet, Columns]:
        kind, columns = kind_of(data), self.columns
        if kind == "file":
            found, columns = self._read_file(data, known)
        elif kind == "generated":
            found = cast("SeriesSet", GENERATORS[data](**{"seed": 0, **self.options}))
        else:
            found = catalog.dataset_info(data).load(**({"split": part} if kind == "classification" else {}))
        return self._dropped(found), columns

    def _windows(self, part: str, parameters: Mapping[str, Any]) -> SeriesSet:
        data = catalog.load_forecasting(self.data)
        return self._dropped(catalog.windows(data, part, parameters["history"], parameters["horizon"]))

    def _dropped(self, data: SeriesSet) -> SeriesSet:
        return catalog.drop_points(data, self.drop, self.seed) if self.drop else data

    def _divided(self, data: SeriesSet, task: str) -> tuple[SeriesSet, SeriesSet | None]:
        share = share_of(self.test)
        if task in ("classification", "regression") and not data.schema.targets:
            data = only_labelled(data, data.labels)[0]
        if kind_of(self.data) == "generated":
            last = round((GENERATED_TEST if share is None else share) * len(data))
            return data[: len(data) - last], data[len(data) - last :]
        if share is None:
            return data, None
        if task == "forecasting":
            first = [one.between(-np.inf, border) for one, border in zip(data, _borders(data, share), strict=True)]
            return SeriesSet(first, schema=data.schema), None
        if task == "interpolation" and len(data) == 1:
            # one series is divided along time
            border = _borders(data, share)[0]
            ends = ((-np.inf, border), (border, np.inf))
            kept, tested = (SeriesSet([data[0].between(*end)], schema=data.schema) for end in ends)
            return kept, tested
        parts = data.split(1 - share, share, seed=self.seed, stratify=data.classes is not None)
        return parts[0], parts[1]


def _has_test_part(name: str) -> bool:
    info = catalog.dataset_info(name)
    # the first file of a set for classification is its training part
    return all(catalog.find_file(file) is not None for file in info.forms[0].files[info.task == "classification" :])


def _borders(data: SeriesSet, share: float) -> list[float]:
    """The time at which the last ``share`` of each series begins."""
    return [float(one.times[-1] - share * one.span) if len(one) else 0.0 for one in data]


@dataclass(frozen=True)
class EventSource(Source):
    """The source of event sequences; ``fold`` is that of a set of the catalogue, from 1."""

    items: ClassVar[str] = "sequences"

    columns: EventColumns = field(default_factory=EventColumns)
    fold: int = 1

    @classmethod
    def of(cls, data: str, *, test: str | None = None, fold: int | None = None, **others: Any) -> Self:
        """As for any source; an unknown fold, or a share of a set with a test part of its own, is refused."""
        source = super().of(data, test=test, fold=1 if fold is None else fold, **others)
        if kind_of(source.data) == "events":
            catalog.check_fold(source.data, catalog.EVENT_FOLDS.get(source.data, 1), source.fold, "test")
            if share_of(test) is not None:
                raise DataError(f"{source.data} has a test part of its own", remedy="leave --test away, or pass a file")
        elif fold is not None:
            raise DataError(f"{data} has no folds", remedy="leave --fold away")
        return source

    @property
    def variant(self) -> str:
        """Further words in the names of runs."""
        return f"-fold{self.fold}" if self.data in catalog.EVENT_FOLDS else ""

    def training(self, *_: Any) -> tuple[Events, Events | None, EventColumns]:
        """Sequences to train on, those to validate on where the set prescribes them, and the columns of a table."""
        if kind_of(self.data) == "events":
            return self._part("train"), self._part("dev"), self.columns
        return self._divided(self._read())[0], None, self.columns

    def testing(self, estimator: EventPredictor) -> Events | None:
        """Sequences to test on; None where there are none."""
        return self._test(estimator.type_names_)

    def check_test(self, training: Events) -> None:
        """Read other test data once, with the types of the training."""
        if self.test_data is not None:
            self._test(training.data.type_names)

    def other(self, data: str, estimator: EventPredictor, **columns: str | None) -> Events:
        """Other sequences; of a set with parts its test part, of the fold of the run where it has it."""
        source = EventSource.of(data, columns=columns_of_run(estimator, columns))
        fold = self.fold if self.fold <= catalog.EVENT_FOLDS.get(source.data, 1) else 1
        return replace(source, fold=fold)._read(estimator.type_names_)

    inputs = other

    def _test(self, type_names: tuple[str, ...]) -> Events | None:
        if self.test_data is not None:
            return replace(self, data=self.test_data, test=None)._read(type_names)
        whole = self._read(type_names)
        return whole if kind_of(self.data) == "events" else self._divided(whole)[1]

    def _read(self, type_names: tuple[str, ...] | None = None) -> Events:
        """All sequences; of a set with parts, the test part."""
        kind = kind_of(self.data)
        if kind == "file":
            return read_event_file(Path(self.data), self.columns, type_names)
        if kind == "events":
            return self._part("test")
        return Events(cast("EventSet", GENERATORS[self.data](seed=0)).map(without_features), "set")

    def _part(self, part: str) -> Events:
        return Events(catalog.load_events(self.data, fold=self.fold, split=part).map(without_features), "set")

    def _divided(self, whole: Events) -> tuple[Events, Events | None]:
        share = share_of(self.test)
        if share is None:
            if kind_of(self.data) == "file":
                return whole, None
            share = GENERATED_EVENTS_TEST
        if len(whole) < 2:
            # one sequence is divided along time
            one = whole.data[0]
            border = last_part(len(one), share, f"sequence of {len(one)} events", "test")
            ends = (slice(border), slice(border, None))
            kept, tested = (EventSet([one.events(part)], type_names=whole.data.type_names) for part in ends)
        else:
            kept, tested = whole.data.split(1 - share, share, seed=self.seed)
        return replace(whole, data=kept), replace(whole, data=tested)


def source_class(task: str) -> type[SeriesSource | EventSource]:
    """The class of sources for a task."""
    return EventSource if task == "events" else SeriesSource
