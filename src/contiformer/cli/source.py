"""Where the series of a run come from: a file, the catalogue, or a generator; and which of them are for the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from contiformer.cli.files import ENDINGS, ending_of, read_file
from contiformer.data.catalog import registry, store
from contiformer.data.catalog.drop import drop_points
from contiformer.data.catalog.forecasting import PAPER_LENGTHS, load_forecasting, windows
from contiformer.data.cuts import cut_windows
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.series_set import SeriesSet
from contiformer.data.synthetic import GENERATORS
from contiformer.estimators.tables import Columns, without_answers

if TYPE_CHECKING:
    from contiformer.estimators import Estimator, Forecaster

Kind = Literal["file", "generated", "classification", "forecasting", "clinical"]
EVENTS = "use `contiformer train events` with it"
#: Of a generated set, unless another is given: the paper's 200 spirals for training and 100 for the test.
GENERATED_TEST = 1 / 3
#: What is tested on where a set has no test part of its own.
_TESTED_ON = {"PhysioNet2012-A": "PhysioNet2012-B"}


@dataclass(frozen=True)
class Source:
    """All that has to be known to read the series of a run again.

    Attributes:
        data: name or absolute path.
        columns: of a table.
        duplicates: what to do with two rows of a series at one time.
        test: name or path of other data, or a share of these; None: the test part of a set that has one.
        drop: share of the points of each series that is left out.
        seed: of what is left out, and of which series are for the test.
        options: of a generator.
    """

    data: str
    columns: Columns = field(default_factory=Columns)
    duplicates: str = "error"
    test: str | None = None
    drop: float = 0.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: str, **others: Any) -> Source:
        """With the name as the catalogue writes it, or the path made absolute; an unknown one is refused."""
        test = others.pop("test", None)
        if test is not None and share_of(test) is None:
            test = _resolved(test)
        return cls(_resolved(data), test=test, **others)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Source:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        known = {one.name for one in fields(cls)}
        return cls(**{**{k: v for k, v in saved.items() if k in known}, "columns": Columns.from_dict(saved["columns"])})

    @property
    def name(self) -> str:
        """Short, for the names of runs."""
        return Path(self.data).name.split(".")[0] if kind_of(self.data) == "file" else self.data

    @property
    def variant(self) -> str:
        """What else names of runs tell."""
        return f"-drop{self.drop:g}" if self.drop else ""

    def lengths(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """History and horizon of the paper's tables for the sets that are in them, where none are given."""
        if kind_of(self.data) != "forecasting":
            return parameters
        history, horizons = PAPER_LENGTHS[self.data]
        return {"history": history, "horizon": horizons[0]} | parameters

    def training(self, task: str, parameters: Mapping[str, Any]) -> tuple[SeriesSet, SeriesSet | None, Columns]:
        """Series to train on, those to validate on where the set prescribes them, and the columns of a table."""
        kind, columns = kind_of(self.data), self.columns
        if kind == "forecasting" and task == "forecasting":
            training, validation = (self._windows(part, parameters) for part in ("train", "val"))
            return training, validation, columns
        data, columns = self._read(self.data, "train")
        if kind in ("file", "generated"):
            data = self._divided(data, task)[0]
        if task == "forecasting":
            data = without_answers(data)
        return data, None, columns

    def testing(self, estimator: Estimator) -> SeriesSet | None:
        """Series to test on; None where there are none."""
        if self.test is not None and share_of(self.test) is None:
            found = self._test_of(self.test, estimator)
        elif kind_of(self.data) in ("file", "generated"):
            found = self._held_out(estimator)
        else:
            other = self.data if kind_of(self.data) != "clinical" else _TESTED_ON.get(self.data)
            found = self._test_of(other, estimator) if other is not None and _has_test_part(other) else None
        if found is None or estimator.task_name != "forecasting" or found.lazy:  # windows are lazy, and have targets
            return found
        return without_answers(found)

    def _test_of(self, data: str, estimator: Estimator) -> SeriesSet | None:
        if kind_of(data) == "generated" and data == self.data:
            # the same generator makes the same series: what was trained on is no test
            return self._divided(self._read(data, "train")[0], estimator.task_name)[1]
        if kind_of(data) != "forecasting":
            return self._read(data, "test")[0]
        if estimator.task_name != "forecasting":
            return None
        return replace(self, data=data)._windows("test", estimator.get_params(deep=False))

    def _held_out(self, estimator: Estimator) -> SeriesSet | None:
        """The share of the data that was not trained on."""
        share = None if self.test is None else share_of(self.test)
        generated = kind_of(self.data) == "generated"
        if share is None and not generated:
            return None
        data = self._read(self.data, "train")[0]
        if estimator.task_name == "forecasting" and share is not None and not generated:
            return _last_windows(data, share, cast("Forecaster", estimator))
        return self._divided(data, estimator.task_name)[1]

    def _read(self, data: str, part: str) -> tuple[SeriesSet, Columns]:
        kind, columns = kind_of(data), self.columns
        if kind == "file":
            found, columns = read_file(Path(data), columns, duplicates=self.duplicates)
        elif kind == "generated":
            found = GENERATORS[data](**{"seed": 0, **self.options})  # type: ignore[assignment]
        elif kind == "classification":
            found = registry.get(data).load(split=part)
        else:
            found = registry.get(data).load()
        return (drop_points(found, self.drop, self.seed) if self.drop else found), columns

    def _windows(self, part: str, parameters: Mapping[str, Any]) -> SeriesSet:
        found = windows(load_forecasting(self.data), part, parameters["history"], parameters["horizon"])
        return drop_points(found, self.drop, self.seed) if self.drop else found

    def _divided(self, data: SeriesSet, task: str) -> tuple[SeriesSet, SeriesSet | None]:
        share = None if self.test is None else share_of(self.test)
        if kind_of(self.data) == "generated":
            last = round((GENERATED_TEST if share is None else share) * len(data))
            return data[: len(data) - last], data[len(data) - last :]
        if share is None:
            return data, None
        if task == "forecasting":
            return SeriesSet(
                [one.between(-np.inf, border) for one, border in zip(data, _borders(data, share), strict=True)],
                schema=data.schema,
            ), None
        parts = data.split(1 - share, share, seed=self.seed, stratify=data.classes is not None)
        return parts[0], parts[1]


def kind_of(data: str) -> Kind:
    """What a name or a path stands for.

    Raises:
        DataError: for one that is neither, with the nearest name.
    """
    path = Path(data)
    if path.is_absolute() or ending_of(path) in ENDINGS or "/" in data:
        return "file"
    if data in GENERATORS:
        return "generated"
    names = [info.name for info in registry.DATASETS.values() if info.task != "events"]
    known = {info.name: info.task for info in registry.DATASETS.values()}
    if data not in known:
        advice = did_you_mean(data, [*names, *GENERATORS])
        raise DataError(f"there is no data set and no file {data!r}", remedy=advice)
    if known[data] == "events":
        raise DataError(f"{data} is a set of events", remedy=EVENTS)
    return known[data]  # type: ignore[return-value]


def share_of(text: str) -> float | None:
    """The share that is written there, None where it is something else."""
    try:
        share = float(text)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise DataError(f"a share of {text} cannot be tested on", remedy="pass --test 0.2, a file or a data set")
    return share


def _resolved(data: str) -> str:
    small = {name.lower(): name for name in (*registry.DATASETS, *GENERATORS)}
    found = data if Path(data).exists() and data not in GENERATORS else small.get(data.lower(), data)
    if found in GENERATORS and found.partition("-")[0] in ("synthetic", "hawkes", "poisson"):
        raise DataError(f"{found} makes events", remedy=EVENTS)
    if kind_of(found) != "file" and found == small.get(data.lower()):
        return found
    path = Path(found).expanduser().resolve()
    if not path.exists():
        raise DataError("there is no such file", file=data, remedy="check the path")
    return str(path)


def _has_test_part(name: str) -> bool:
    info = registry.get(name)
    # the first file of a set for classification is its training part
    return all(store.find(file) is not None for file in info.forms[0].files[info.task == "classification" :])


def _borders(data: SeriesSet, share: float) -> list[float]:
    """The time from which on the last ``share`` of each series is."""
    return [float(one.times[-1] - share * one.span) if len(one) else 0.0 for one in data]


def _last_windows(data: SeriesSet, share: float, forecaster: Forecaster) -> SeriesSet:
    # what lies exactly on the border is for the test
    between = [(float(np.nextafter(border, -np.inf)), np.inf) for border in _borders(data, share)]
    return cut_windows(without_answers(data), forecaster._history, forecaster._reach(), between=between)
