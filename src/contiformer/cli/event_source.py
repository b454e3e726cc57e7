"""Where the events of a run come from: a file, the catalogue, or a generator; and which of them are for the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contiformer.cli.event_files import ENDINGS, read_event_file
from contiformer.cli.files import ending_of
from contiformer.cli.source import share_of
from contiformer.data.catalog import folds, registry
from contiformer.data.catalog.events import FOLDS, load_events
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.events import EventSet, without_features
from contiformer.data.synthetic import GENERATORS
from contiformer.estimators.event_tables import EventColumns, Events

if TYPE_CHECKING:
    from contiformer.estimators import EventPredictor

Kind = Literal["file", "catalogue", "generated"]
#: Generators of events that the catalogue does not have.
GENERATED = ("hawkes", "poisson", "synthetic-expected")
#: Of generated sequences, unless another share is given.
GENERATED_TEST = 0.2
_MORE = "name the column that tells sequences apart with --id"


@dataclass(frozen=True)
class EventSource:
    """All that has to be known to read the events of a run again.

    Attributes:
        data: name or absolute path.
        columns: of a table.
        test: name or path of other data, or a share of these; None: the test part of a set that has one.
        fold: of a set of the catalogue, from 1.
        seed: of which sequences are for the test, where a share of them is.
    """

    data: str
    columns: EventColumns = field(default_factory=EventColumns)
    test: str | None = None
    fold: int = 1
    seed: int = 0

    @classmethod
    def of(cls, data: str, *, test: str | None = None, fold: int | None = None, **others: Any) -> EventSource:
        """With the name as the catalogue writes it, or the path made absolute; what cannot be is refused.

        Raises:
            DataError: for a name, file or fold that there is not, or a share of a set with a test part of its own.
        """
        found = _resolved(data)
        if test is not None and share_of(test) is None:
            test = _resolved(test)
        if kind_of(found) == "catalogue":
            folds.check(found, FOLDS.get(found, 1), 1 if fold is None else fold, "test")
            if test is not None and share_of(test) is not None:
                raise DataError(f"{found} has a test part of its own", remedy="leave --test away, or pass a file")
        elif fold is not None:
            raise DataError(f"{data} has no folds", remedy="leave --fold away")
        return cls(found, test=test, fold=1 if fold is None else fold, **others)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> EventSource:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        known = {one.name for one in fields(cls)}
        columns = EventColumns.from_dict(saved["columns"])
        return cls(**{**{k: v for k, v in saved.items() if k in known}, "columns": columns})

    @property
    def name(self) -> str:
        """Short, for the names of runs."""
        return Path(self.data).name.split(".")[0] if kind_of(self.data) == "file" else self.data

    @property
    def variant(self) -> str:
        """What else names of runs tell."""
        return f"-fold{self.fold}" if kind_of(self.data) == "catalogue" and self.data in FOLDS else ""

    def training(self, *_: Any) -> tuple[Events, Events | None, EventColumns]:
        """Sequences to train on, those to validate on where the set prescribes them, and the columns of a table."""
        if kind_of(self.data) == "catalogue":
            return self._part("train"), self._part("dev"), self.columns
        kept = self._divided(self._read(self.data))[0]
        if len(kept) < 2:
            raise DataError("there is only one sequence to train and to validate on", file=self.data, remedy=_MORE)
        return kept, None, self.columns

    def testing(self, estimator: EventPredictor) -> Events | None:
        """Sequences to test on; None where there are none."""
        return self._tested(estimator.type_names_)

    def try_test(self, training: Events) -> None:
        """A test file that does not go with the training data is refused."""
        if self.test is not None and share_of(self.test) is None:
            self._tested(training.data.type_names)

    def _tested(self, type_names: tuple[str, ...]) -> Events | None:
        if self.test is not None and share_of(self.test) is None:
            return replace(self, data=self.test, test=None)._all(type_names)
        if kind_of(self.data) == "catalogue":
            return self._part("test")
        return self._divided(self._read(self.data, type_names))[1]

    def _all(self, type_names: tuple[str, ...]) -> Events:
        """Of a set with parts, the test part."""
        return self._part("test") if kind_of(self.data) == "catalogue" else self._read(self.data, type_names)

    def _part(self, part: str) -> Events:
        return Events(load_events(self.data, fold=self.fold, split=part).map(without_features), "set")

    def _read(self, data: str, type_names: tuple[str, ...] | None = None) -> Events:
        if kind_of(data) == "file":
            return read_event_file(Path(data), self.columns, type_names)
        made = GENERATORS[data](seed=0)
        assert isinstance(made, EventSet)
        return Events(made.map(without_features), "set")

    def _divided(self, whole: Events) -> tuple[Events, Events | None]:
        share = None if self.test is None else share_of(self.test)
        if share is None:
            if kind_of(self.data) == "file":
                return whole, None
            share = GENERATED_TEST
        if len(whole) < 2:
            raise DataError("one sequence cannot be divided into training and test", file=self.data, remedy=_MORE)
        kept, tested = whole.data.split(1 - share, share, seed=self.seed)
        return replace(whole, data=kept), replace(whole, data=tested)


def columns_of_run(estimator: EventPredictor, **given: str | None) -> EventColumns:
    """The columns that the model was trained on, unless they have other names here."""
    return replace(estimator.columns_, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def other_events(source: EventSource, estimator: EventPredictor, data: str, **columns: str | None) -> Events:
    """Other data for the model of a run; of a set with parts its test part, of the fold of the run where it has it."""
    asked = EventSource.of(data)
    fold = source.fold if source.fold <= FOLDS.get(asked.data, 1) else 1
    return replace(asked, columns=columns_of_run(estimator, **columns), fold=fold)._all(estimator.type_names_)


def kind_of(data: str) -> Kind:
    """What a resolved name or path stands for."""
    if data in GENERATED:
        return "generated"
    return "catalogue" if data in _catalogue() else "file"


def _catalogue() -> list[str]:
    return [info.name for info in registry.DATASETS.values() if info.task == "events"]


def _resolved(data: str) -> str:
    names = (*_catalogue(), *GENERATED)
    known = {name.lower(): name for name in names}
    path = Path(data).expanduser()
    if data.lower() in known and not path.is_file():
        return known[data.lower()]
    if path.exists():
        return str(path.resolve())
    if path.is_absolute() or ending_of(path) in ENDINGS or "/" in data:
        raise DataError("there is no such file", file=data, remedy="check the path")
    others = {info.name.lower(): info.task for info in registry.DATASETS.values()}
    if data.lower() in others:
        raise DataError(f"{data} is a set for {others[data.lower()]}, not of events", remedy=did_you_mean(data, names))
    raise DataError(f"there is no set of events and no file {data!r}", remedy=did_you_mean(data, names))
