"""Run folders as models that a server answers for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.blend import load
from contiformer.serving.batching import InferenceQueue
from contiformer.serving.errors import ServingError, too_much
from contiformer.serving.inputs import TableReader
from contiformer.serving.limits import Limits
from contiformer.serving.metrics import Metrics


@dataclass(eq=False)
class ServedModel:
    """A trained model, the queue of its inference, and the data that the explorer shows.

    Call the estimator only through ``queue``: ``await model.queue.run(model.estimator.predict, X)``.

    Attributes:
        name: of the model in requests: that of its folder.
        run: the folder.
        estimator: the model; any of :data:`contiformer.estimators.ESTIMATORS`, or a blend.
        queue: runs inference, one call at a time.
        limits: of requests.
        data: series or sequences to explore, from the command line; never from a request.
    """

    name: str
    run: Path
    estimator: Any
    queue: InferenceQueue
    limits: Limits
    data: SeriesSet | EventSet | None = None
    reader: TableReader = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the reader of tables."""
        self.reader = TableReader(self.estimator)

    @property
    def task(self) -> str:
        """Of "classification", "regression", "interpolation", "forecasting" and "events"."""
        return str(self.estimator.task_name)

    @property
    def numbers_per_series(self) -> bool:
        """Whether the model says one thing about a whole series: a class or a number."""
        return bool(self.estimator._per_series)

    def parse_records(self, records: Sequence[Mapping[str, Any]]) -> SeriesSet | EventSet:
        """Series or sequences of JSON records in the columns of ``fit``.

        Raises:
            DataError: naming record (counted from 1) and column.
            ServingError: there are more than the limits allow.
        """
        if len(records) > self.limits.rows:
            raise too_much("records", len(records), self.limits.rows)
        return self._within_limits(self.reader.from_records(records))

    def parse_csv(self, body: bytes) -> SeriesSet | EventSet:
        """Series or sequences of CSV in the columns of ``fit``.

        Raises:
            DataError: naming line and column.
            ServingError: there are more than the limits allow.
        """
        rows = body.count(b"\n")
        if rows > self.limits.rows + 1:
            raise too_much("rows", rows, self.limits.rows)
        return self._within_limits(self.reader.from_csv(body))

    def _within_limits(self, data: SeriesSet | EventSet) -> SeriesSet | EventSet:
        if len(data) > self.limits.series:
            raise too_much("series", len(data), self.limits.series)
        longest = max((len(one) for one in data), default=0)
        if longest > self.limits.length:
            problem = f"a series of {longest:,} points; at most {self.limits.length:,} are allowed"
            raise ServingError(413, problem)
        return data


def load_models(
    runs: Sequence[Path | str], *, limits: Limits | None = None, metrics: Metrics | None = None
) -> dict[str, ServedModel]:
    """The models in these folders, by the names of the folders.

    Where two folders have one name, the names of the folders that they are in go before it: ``a/run``, ``b/run``.

    Raises:
        DataError: a folder holds no finished model, or is given twice.
    """
    limits, metrics = limits or Limits(), metrics or Metrics()
    models: dict[str, ServedModel] = {}
    for name, folder in _names(runs).items():
        estimator = load(folder)
        models[name] = ServedModel(name, folder, estimator, InferenceQueue(name, limits, metrics), limits)
    return models


def _names(runs: Sequence[Path | str]) -> dict[str, Path]:
    """The shortest ends of the paths, of the same number of parts, that tell the folders apart."""
    folders = [Path(run).resolve() for run in runs]
    if not folders:
        raise DataError("there are no models to serve", remedy="name one or more run folders")
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise DataError("this folder is given twice", file=folder, remedy="name it once")
    most = max(len(folder.parts) for folder in folders)
    for count in range(1, most + 1):
        names = ["/".join(folder.parts[-count:]) for folder in folders]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, folders, strict=True))


def find_model(models: Mapping[str, ServedModel], name: str | None) -> ServedModel:
    """The model of this name; without a name the only one.

    Raises:
        ServingError: 404 for a name that there is not, 422 for none where there are several.
    """
    if name is None:
        if len(models) == 1:
            return next(iter(models.values()))
        raise ServingError(422, f"which model? Say ?model=NAME; {did_you_mean('', models)}")
    if name not in models:
        raise ServingError(404, f"there is no model {name!r}; {did_you_mean(name, models)}")
    return models[name]
