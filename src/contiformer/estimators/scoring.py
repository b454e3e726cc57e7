"""Score tables with a saved run: one table of predictions for each task, and the run loaded once per process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.categories import columns_behind
from contiformer.data.readers.columns import Place
from contiformer.estimators.blend import load
from contiformer.estimators.event_tables import EventColumns, Events
from contiformer.estimators.frames import events_from, frame_of, series_from
from contiformer.estimators.tables import Columns, names_of


class OptionError(ValueError):
    """An option that means nothing for the model of a run."""

    def __init__(self, option: str, why: str) -> None:
        self.option, self.why = option, why
        super().__init__(f"{option}= cannot be used: {why}")


def fingerprint(run: Path | str) -> str:
    """A hash of the configuration and the weights of a saved run; another model has another."""
    found = hashlib.sha256()
    # a blend has a folder with weights for each member
    weights = sorted(Path(run).glob("member*/model.safetensors")) or [Path(run) / "model.safetensors"]
    for path in (Path(run) / "config.json", *weights):
        try:
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            problem = f"no model is saved here (there is no {path.name})"
            raise DataError(
                problem, file=run, remedy="pass the folder that save() or `contiformer train` wrote"
            ) from None
    return found.hexdigest()[:16]


@lru_cache(maxsize=4)
def load_in_worker(run: str, expected: str) -> Any:
    """The run with the expected fingerprint, loaded once in this process, for one thread; another one is refused."""
    import torch  # noqa: PLC0415 - start-up time

    found = fingerprint(run)
    if found != expected:
        problem = f"the run on this worker ({found}) is not the one that was asked for ({expected})"
        raise DataError(problem, file=run, remedy="keep the run on a disk that all workers share, and do not change it")
    # several workers share the cores of a machine
    torch.set_num_threads(1)
    return load(Path(run))


def scorer_on_workers(
    run: Path | str, columns: Mapping[str, Any], question: Mapping[str, Any], there: Sequence[str]
) -> tuple[Scorer, Callable[[], Scorer]]:
    """A scorer of a table with the columns ``there``, and a function that makes the same one on a worker."""
    folder = str(Path(run).resolve())
    expected = fingerprint(folder)
    scorer = Scorer.of(load(Path(folder)), columns, **question)
    for name in scorer.required:
        if name not in there:
            raise DataError(f"there is no column {name!r}", remedy=did_you_mean(name, there))
    return scorer, lambda: Scorer.of(load_in_worker(folder, expected), columns, **question)


def columns_of_run(estimator: Any, given: Mapping[str, Any]) -> Any:
    """The columns that the model was trained on, unless they have other names here."""
    columns = estimator.columns_
    other: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "time" in other and isinstance(columns, Columns) and not columns.values:
        other["values"] = estimator.schema_.channels
    for name in other.keys() - columns.__dataclass_fields__.keys():
        raise OptionError(name, f"{estimator.task_name} does not use this option.")
    return replace(columns, **other)


def required_columns(estimator: Any, columns: Any) -> list[str]:
    """The columns that a model reads of tables with these roles."""
    names: list[str | None] = [columns.id, columns.time]
    if isinstance(columns, EventColumns):
        names += [columns.type, *columns.features]
    elif columns.variable is not None:
        names += [columns.variable, columns.value, *columns.static]
    else:
        names += [*columns_behind(estimator.schema_.channels, estimator.schema_.categories), *columns.static]
    return list(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True)
class Scorer:
    """A model and a question to it: each call answers for the series of one table.

    Attributes:
        estimator: the fitted estimator.
        columns: roles of the columns of the tables.
        at: times of the predictions; None: those of the series, or the next steps of a forecast.
        quantiles: levels, in place of mean and standard deviation.
        n: events ahead, by sampling; None: the next event and its expected time.
        names: roles whose names the columns of the predictions have; None: those of the training.
    """

    estimator: Any
    columns: Any
    at: Any = None
    quantiles: Sequence[float] | None = None
    n: int | None = None
    names: Any = None

    def __post_init__(self) -> None:
        """Reject options that mean nothing for the task."""
        task = self.estimator.task_name
        given = {"at": self.at, "quantiles": self.quantiles, "n": self.n}
        why = f"{task} does not use this option."
        refused: tuple[str, ...] = ("n",)
        if self.events:
            refused, why = ("at", "quantiles"), "a model of events predicts the next event only."
        elif self.per_series:
            refused, why = ("n", "at", "quantiles"), "this model gives one answer for each series."
        elif task == "regression":
            refused, why = ("n", "quantiles"), f"{task} does not use this option."
        for name in refused:
            if given[name] is not None:
                raise OptionError(name, why)

    @classmethod
    def of(cls, estimator: Any, columns: Mapping[str, Any], **question: Any) -> Scorer:
        """A scorer of tables with these names of columns, which the predictions have as well."""
        roles = columns_of_run(estimator, columns)
        if roles.id is None or roles.time is None:
            missing = "id" if roles.id is None else "time"
            raise DataError(f"which column is the {missing}?", remedy=f"name it in {missing}=")
        return cls(estimator, roles, names=roles, **question)

    @property
    def events(self) -> bool:
        """Whether the model is one of events."""
        return bool(self.estimator.task_name == "events")

    @property
    def per_series(self) -> bool:
        """Whether there is one answer for each series, not one for each time."""
        return bool(self.estimator._per_series)

    @cached_property
    def required(self) -> list[str]:
        """The columns that a table has to have."""
        return required_columns(self.estimator, self.columns)

    @property
    def answers_per_series(self) -> int:
        """The number of times that are asked for in each series, beside its own; for the size of blocks."""
        if self.events or self.per_series:
            return self.n or 1
        if self.at is None:
            return int(getattr(self.estimator, "horizon", 0) or 0)
        return 0 if isinstance(self.at, Mapping) else len(self.at)

    def schema(self, id: Any, time: Any) -> dict[str, Any]:
        """The columns of the predictions with their types, given the types of ids and times."""
        roles, number, text = self.names or self.estimator.columns_, pl.Float64(), pl.String()
        key = {roles.id or "id": id}
        if self.events and self.n is None:
            times = dict.fromkeys(("last_time", "expected_time", "median_time"), time)
            return key | times | {"type": text, "probability": number}
        if self.events:
            times = dict.fromkeys(("time", "time_q0.05", "time_q0.95"), time)
            return key | {"step": pl.Int64()} | times | {"type": text}
        if self.estimator.task_name == "classification":
            classes = self.estimator.classes_.tolist()
            kind = pl.Series(self.estimator.classes_[:1]).dtype
            return key | {"class": kind} | {f"probability_{label}": number for label in classes}
        if self.per_series:
            return key | {roles.label or "prediction": number}
        outputs = self.estimator._outputs
        names = [*outputs]
        if self.quantiles is not None:
            names = [f"{name}_q{level:g}" for name in outputs for level in self.quantiles]
        elif self._with_std:
            names += [f"{name}_std" for name in outputs]
        return key | {roles.time or "time": time} | dict.fromkeys(names, number)

    @property
    def _with_std(self) -> bool:
        return bool(self.estimator.task_name != "forecasting" and self.estimator.law == "gaussian")

    def read(self, frame: pl.DataFrame, place: Place | None = None) -> Any:
        """The series or event sequences of a table, in the order of their ids."""
        if self.events:
            data, kind, zone, types = events_from(frame, self.columns, self.estimator.type_names_, place)
            return Events(data, "polars", kind, zone, types=types)
        bare = replace(self.columns, label=None, targets=())
        return series_from(frame, bare, self.estimator.schema_, place=place)

    def __call__(self, frame: pl.DataFrame, place: Place | None = None, first: int = 0) -> pl.DataFrame:
        """The predictions for the series of a table; ``first`` is the number of its first series among all."""
        return self.predict(self.read(frame, place), first)

    def stream(self, frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
        """The predictions for frames that follow each other, in which rows of one id do; ``rows`` at a time."""
        id = self.columns.id
        for block in whole_series(frames, id, rows):
            # random draws must not depend on the neighbours, which an engine chooses
            for part in [block] if self.n is None else block.partition_by(id, maintain_order=True):
                yield self(part)

    def predict(self, data: Any, first: int = 0) -> pl.DataFrame:
        """A row for each series, or for each series and time."""
        estimator = self.estimator
        columns = self.names or estimator.columns_
        if self.events:
            table = (
                estimator.predict_next(data) if self.n is None else estimator.predict_ahead(data, self.n, seed=first)
            )
            return table.rename({table.columns[0]: columns.id or "id"})
        id, time = columns.id or "id", columns.time or "time"
        task = estimator.task_name
        if self.per_series:
            ids: dict[str, Any] = {id: names_of(data)}
            if task == "regression":
                return pl.DataFrame(ids | {columns.label or "prediction": estimator.predict(data)})
            probability, classes = estimator.predict_proba(data), estimator.classes_
            shares = {f"probability_{label}": probability[:, k] for k, label in enumerate(classes.tolist())}
            return pl.DataFrame(ids | {"class": classes[probability.argmax(1)]} | shares)
        if self.quantiles is not None:
            parts = [estimator.predict(data, at=self.at, quantiles=self.quantiles)]
        elif self._with_std:
            parts = list(estimator.predict(data, at=self.at, return_std=True))
        else:
            parts = [estimator.predict(data, at=self.at)]
        names = [f"{channel}{suffix}" for part, suffix in zip(parts, ("", "_std")) for channel in part.channels]
        values = [np.hstack([one.values for one in series]) for series in zip(*parts, strict=True)]
        return frame_of(data, [one.times for one in parts[0]], values, names, Columns(id, time))


def whole_series(frames: Iterable[pl.DataFrame], id: str, rows: int) -> Iterator[pl.DataFrame]:
    """Frames of about ``rows`` rows that divide no series; rows of one id follow each other.

    Example:
        >>> import polars as pl
        >>> from contiformer.estimators.scoring import whole_series
        >>> frames = [pl.DataFrame({"id": [1, 1, 2]}), pl.DataFrame({"id": [2, 3]})]
        >>> [part["id"].to_list() for part in whole_series(frames, "id", 2)]
        [[1, 1], [2, 2], [3]]
    """
    kept: list[pl.DataFrame] = []
    for frame in frames:
        for part in frame.iter_slices(rows):
            kept.append(part)
            if sum(map(len, kept)) > rows:
                together = pl.concat(kept)
                runs = together[id].rle_id()
                last = int(runs.search_sorted(runs[-1]))
                if last:
                    yield together[:last]
                kept = [together[last:]]
    if kept and sum(map(len, kept)):
        yield pl.concat(kept)
