"""The event predictor: marked temporal point processes."""

from __future__ import annotations

import math
import time as clock
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from contiformer.data.batch import EventBatch, collate_events
from contiformer.data.conversion import TimeKind, refuse_other_kind
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.loader import Loader
from contiformer.data.scaling import EventScaling
from contiformer.estimators.event_tables import (
    EventColumns,
    Events,
    along_time,
    as_given,
    event_table,
    read_events,
    wait_of,
    with_waits,
)
from contiformer.estimators.input_checks import check_parameters, refuse_long
from contiformer.estimators.learner import Learner
from contiformer.estimators.tables import TABLES, asked_times, frame_functions, frame_library, names_of, per_series
from contiformer.tasks.base import Judged
from contiformer.tasks.events.build import build_model, check_names
from contiformer.tasks.events.likelihood import IntegralRule, RuleName, compensator, intervals, log_likelihood
from contiformer.tasks.events.next_event import chance_within, draw_next, expect, quantile
from contiformer.tasks.events.task import EventTask
from contiformer.training.options import EVALUATION_BATCH, TrainingOutcome

if TYPE_CHECKING:
    from contiformer.estimators.event_stream import EventStream
    from contiformer.estimators.explanation import Explanation, Method

#: More events than that in one sample are a process that explodes.
MOST_EVENTS = 100_000
#: Long sequences make smaller batches: a step sees about so many events, of at least so many sequences.
EVENTS_IN_A_STEP, FEWEST = 4000, 4


@dataclass(kw_only=True, eq=False, repr=False)
class EventPredictor(Learner):
    """Marked temporal point process: intensities of all types of events at any time, given the history.

    Attributes:
        backbone: "hp", "nhp", "rmtpp", "sahp", "thp", or any backbone that is or can be causal; or a baseline that is
            fitted in closed form: "poisson" (constant rates), "renewal" (independent waits, types by the last type).
        intensity: "auto": each model's own; for contiformer "hazard", exact and flexible. "thp" (the paper's formula),
            "thp-elapsed", "sahp", "rmtpp": from the state at the last event. "continuous": from the state at every
            time; slower, above all in prediction.
        waits: whether backbones see the wait before each event; None: yes, but not in "thp", as in its paper. No matter
            to "hp", "nhp", "rmtpp" and "sahp", which have a way of their own.
        time_weight, type_weight: weights of the losses of the next time and type, beside the likelihood.
        integral, nodes: rule of the integral in training ("closed", "gauss" or "monte carlo"), and points per interval.
        num_types: number of types, if the training data may lack some.
        (all others): see :class:`~contiformer.estimators.learner.Learner`. Batches are smaller for long sequences.

    Example:
        >>> from contiformer import EventPredictor, TrainingOptions
        >>> X = [([0.0, 1.0, 2.0, 3.5], [0, 1, 0, 1])] * 4
        >>> model = EventPredictor(backbone="hp", training=TrainingOptions(verbose=0)).fit(X)
        >>> model.predict_next(X).columns
        ['id', 'last_time', 'expected_time', 'median_time', 'type', 'probability']
    """

    d_model: int = 32
    dropout: float = 0.2
    intensity: str = "auto"
    waits: bool | None = None
    time_weight: float = 0.01
    type_weight: float = 1.0
    integral: RuleName = "closed"
    nodes: int = 8
    num_types: int | None = None

    task_name: ClassVar[str] = "events"
    training_defaults: ClassVar[Mapping[str, Any]] = {
        **Learner.training_defaults,
        "validation": 0.1,
        "epochs": 12,
        "min_steps": 600,
        "learning_rate": 5e-3,
        "weight_decay": 0.1,
    }
    unused_options: ClassVar[frozenset[str]] = Learner.unused_options | {"keep_points", "most_points", "noise", "warp"}

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        id: str | None = None,
        time: str | None = None,
        type: str | None = None,
        features: Sequence[str] = (),
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: an EventSet, a DataFrame with a row for each event, or a list of (times, types): numbers or dates, and
                numbers from 0 or words. One sequence alone is divided along time into training and validation.
            y: not used; scikit-learn passes it.
            id, time, type, features: columns of a DataFrame.
            validation_data: of the same kind as X, to choose by, instead of a part of X.
        """
        check_parameters(self)
        check_names(self.backbone, self.intensity)
        if isinstance(features, str):
            raise DataError(f"features={features!r} is one word", remedy=f"pass a list: features=[{features!r}]")
        columns = EventColumns(id, time, type, tuple(features))
        every = None if self.num_types is None else [str(n) for n in range(self.num_types)]
        given = read_events(X, columns, every)
        if given.form == "pandas":
            columns = frame_functions().located(X, columns)[1]
        if len(given) == 1 and columns.time is not None and columns.id is None and validation_data is None:
            warnings.warn(
                "the table is read as one sequence: if it has several, name the column of ids in id=", stacklevel=2
            )
        held_out = None if validation_data is None else read_events(validation_data, columns, given.data.type_names)
        if held_out is not None and given.kind is not None:
            refuse_other_kind(held_out.kind, given.kind, "the times of validation_data are")
        if held_out is None:
            training, judged = self._parts(given.data)
        else:
            training, judged = with_waits(given.data), with_waits(held_out.data)
            if not len(judged):
                raise DataError("no sequence of validation_data has two events", remedy="give longer sequences")
        self._forget()
        self.columns_, self.time_kind_ = columns, given.kind or "numbers"
        self.type_names_ = given.data.type_names
        self.scaling_ = EventScaling.fit(training)
        self.config_ = {
            "backbone": self.backbone,
            "backbone_options": self._backbone_options(),
            "intensity": self.intensity,
            "waits": self.waits,
            "task": {"time_weight": self.time_weight, "type_weight": self.type_weight},
            "integral": asdict(IntegralRule(self.integral, self.nodes)),
        }
        folder = None if self.run_dir is None else Path(self.run_dir)
        task = self._new_task(self.seed)
        training, judged = self.scaling_.apply(training), self.scaling_.apply(judged)
        judged = judged.select(np.argsort(judged.lengths, kind="stable"))
        outcome = self._learn(task, training, judged, folder)
        task.calibrate(Loader(judged, EVALUATION_BATCH, shuffle=False))
        self.tasks_, self.outcomes_ = [task], [outcome]
        found = task.evaluate(Loader(judged, EVALUATION_BATCH, shuffle=False))
        self._record([found], len(training), len(judged))
        self._save_run(folder)
        return self

    def _parts(self, data: EventSet) -> tuple[EventSet, EventSet]:
        options = self.training_options()
        if not 0 < options.validation <= 0.5:
            raise ValueError(f"validation must be a share above 0 and at most 0.5, got {options.validation}")
        data = with_waits(data)
        if not len(data):
            raise DataError("no sequence has two events", remedy="give longer sequences")
        if len(data) < 2:
            return along_time(data, options.validation)
        folds = min(round(1 / options.validation), len(data))
        return data.k_fold(folds, seed=options.seed)[0]

    def _learn(self, task: EventTask, training: EventSet, judged: EventSet, folder: Path | None) -> TrainingOutcome:
        began = clock.perf_counter()
        if task.model.fit_directly(training):
            task.eval()
            return TrainingOutcome([], 0, clock.perf_counter() - began, 0, False, [])
        options = self.training_options()
        fewer = max(FEWEST, int(EVENTS_IN_A_STEP / max(1.0, float(training.lengths.mean()))))
        size = options.batch_size or min(fewer, options.batch_for(len(training)))
        return self._train(task, training, judged, replace(options, batch_size=size), folder)

    def _new_task(self, seed: int) -> EventTask:
        config = self.config_
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            names, options = (config["backbone"], config["intensity"]), config["backbone_options"]
            model = build_model(*names, self.scaling_, options, waits=config["waits"])
            return EventTask(model, unit=self.scaling_.unit, rule=IntegralRule(**config["integral"]), **config["task"])

    def _description(self) -> dict[str, Any]:
        return {
            "columns": asdict(self.columns_),
            "time_kind": self.time_kind_,
            "type_names": list(self.type_names_),
            "scaling": self.scaling_.to_dict(),
        }

    def _describe_again(self, saved: Mapping[str, Any]) -> None:
        self.columns_ = EventColumns.from_dict(saved["columns"])
        self.time_kind_ = saved["time_kind"]
        if self.time_kind_ not in get_args(TimeKind):
            raise ValueError("time_kind is none of the kinds of times")
        self.type_names_ = tuple(saved["type_names"])
        if not all(isinstance(name, str) for name in self.type_names_):
            raise TypeError("type_names are no words")
        self.scaling_ = EventScaling.from_dict(saved["scaling"])

    def _facts(self) -> dict[str, str]:
        names = ", ".join(self.type_names_[:20]) + (", ..." if len(self.type_names_) > 20 else "")
        return {"types of events": names, "mean wait": f"{self.scaling_.unit:g}"}

    # Use

    @property
    def _model(self) -> Any:
        self._check_fitted()
        return self.tasks_[0].model

    def _read(self, X: Any) -> Events:
        self._check_fitted()
        given = read_events(X, self.columns_, self.type_names_)
        refuse_other_kind(given.kind, self.time_kind_)
        return given if len(given) else replace(given, kind=self.time_kind_)

    def _scaled(self, data: EventSet) -> EventSet:
        scaled = self.scaling_.apply(data)
        refuse_long(scaled, self.scaling_.span, self._model.longest_span)
        return scaled

    def _batches(self, data: EventSet, *, by_length: bool = False) -> Iterator[EventBatch]:
        scaled = self._scaled(data)
        if by_length:
            scaled = scaled.select(np.argsort(scaled.lengths, kind="stable"))
        for batch in Loader(scaled, EVALUATION_BATCH, shuffle=False):
            assert isinstance(batch, EventBatch)
            yield batch.to(self.tasks_[0].device)

    @torch.no_grad()
    def predict_next(self, X: Any, *, rule: str = "expected", within: Any = None, probabilities: bool = False) -> Any:
        """The event after the last of each sequence: a table with a row for each.

        Args:
            X: as in ``fit``.
            rule: of the type: "expected": the likeliest at the expected time, as in the paper; "mixture": the likeliest
                over all times at which the next event may come.
            within: a time after the last event (a duration where times are dates): the column "within" is the
                probability that the next event has come by then.
            probabilities: also a column "probability_NAME" for each type.
        """
        if rule not in ("expected", "mixture"):
            raise ValueError(f"rule must be 'expected' or 'mixture', got {rule!r}")
        given = self._read(X)
        _refuse_empty(given.data)
        mean, median, shares_of, soon = [], [], [], []
        wait = None if within is None else wait_of(within, self.time_kind_) / self.scaling_.unit
        for batch in self._batches(given.data):
            memory = self._model.remember(batch).take(batch.lengths[:, None] - 1)
            said = expect(self._model, memory, mixture=rule == "mixture")
            shares_of.append((said.kinds if said.mixture is None else said.mixture).squeeze(1))
            mean.append(said.mean.squeeze(1))
            median.append(quantile(self._model, memory).squeeze(1))
            if wait is not None:
                soon.append(chance_within(self._model, memory, wait).squeeze(1))
        waits = [_joined(part) * self.scaling_.unit for part in (mean, median)]
        last = np.array([one.times[-1] for one in given.data])
        shares = _joined(shares_of).reshape(len(given), len(self.type_names_))
        best = shares.argmax(1)
        table = {
            self.columns_.id or "id": names_of(given.data),
            "last_time": last,
            "expected_time": last + waits[0],
            "median_time": last + waits[1],
            "type": [self.type_names_[k] for k in best],
            "probability": shares[np.arange(len(best)), best],
        }
        if wait is not None:
            table["within"] = _joined(soon)
        if probabilities:
            table |= {f"probability_{name}": shares[:, k] for k, name in enumerate(self.type_names_)}
        return event_table(given, table, ("last_time", "expected_time", "median_time"))

    def predict(self, X: Any) -> Any:
        """The same as :meth:`predict_next`."""
        return self.predict_next(X)

    @torch.no_grad()
    def intensity_at(self, sequence: Any, times: ArrayLike) -> Any:
        """[T, K], intensities per unit of the data's time at any times after the first event, given what came before.

        An event does not count as its own history, nor do others at the same time. For a DataFrame, which may have
        several sequences, the answer is one, with columns for the id, the time and each type.
        """
        given = self._some(sequence)
        if len(given) > 1:
            return frame_functions().stacked([self.intensity_at(one, times) for one in given.singly()])
        one = given.data[0]
        at = asked_times(times, "times", self.time_kind_, plain=given.form == "set")
        alone = EventSet([one], type_names=self.type_names_)
        _refuse_empty(alone)
        if len(at) and at.min() <= one.times[0]:
            problem = f"there is no history before {at.min():g}: the first event is at {one.times[0]:g}"
            raise DataError(problem, remedy="ask for later times")
        batch = collate_events([self._scaled(alone)[0]]).to(self.tasks_[0].device)
        before = np.searchsorted(one.times, at) - 1
        elapsed = (at - one.times[before]) / self.scaling_.unit
        memory = self._model.remember(batch).take(torch.as_tensor(before)[None].to(batch.times.device))
        dtype = next(self._model.parameters()).dtype
        moments = torch.as_tensor(elapsed, dtype=dtype, device=batch.times.device)[None, :, None]
        rates = self._model.rates(memory, moments)[0, :, 0].double().cpu().numpy() / self.scaling_.unit
        if given.form not in TABLES:
            return rates
        time = self.columns_.time or "time"
        ids = {} if self.columns_.id is None else {self.columns_.id: [one.id] * len(at)}
        table = {**ids, time: at, **{name: rates[:, k] for k, name in enumerate(self.type_names_)}}
        return event_table(given, table, (time,))

    @torch.no_grad()
    def log_likelihood(
        self, X: Any, *, integral: RuleName = "closed", nodes: int | None = None, return_error: bool = False
    ) -> Any:
        """The log-likelihood of each sequence in nats, its first event given: the sum over its events, not the mean.

        Times count in the data's unit (dates: seconds). ``score`` and ``evaluate`` give the mean per event. Of a table
        the answer is indexed by id.

        Args:
            X: as in ``fit``.
            integral, nodes: the rule, see :class:`~contiformer.tasks.events.IntegralRule`.
            return_error: also an estimate of the error of each from the integral: how far the rule with twice the
                nodes is away.
        """
        given = self._read(X)
        rule = IntegralRule(integral, self.nodes if nodes is None else nodes)
        totals, errors = [], []
        for batch in self._batches(given.data):
            scored = intervals(self._model, batch)
            count = scored.known.sum(1)
            total = log_likelihood(self._model, scored, rule).double().sum(1)
            if return_error:
                finer = log_likelihood(self._model, scored, replace(rule, nodes=2 * rule.nodes)).double().sum(1)
                errors.append((finer - total).abs())
            totals.append(total - count * math.log(self.scaling_.unit))
        each = [_joined(totals), _joined(errors)] if return_error else [_joined(totals)]
        said = [per_series(given.form, given.data, x, "log_likelihood", self.columns_, X) for x in each]
        return tuple(said) if return_error else said[0]

    @torch.no_grad()
    def residuals(self, X: Any) -> NDArray[np.float64]:
        """The integrated intensity from each event to the next: unit exponential if the model is right."""
        found = []
        for batch in self._batches(self._read(X).data):
            scored = intervals(self._model, batch)
            found.append(compensator(self._model, scored.memory, scored.wait, IntegralRule("closed", 32))[scored.known])
        return _joined(found)

    @torch.no_grad()
    def sample(self, sequence: Any, *, until: Any = None, n: int | None = None, draws: int = 1, seed: int = 0) -> Any:
        """Sample ``draws`` continuations of the sequence, by thinning with a proven bound.

        They come in the form of the sequence: a DataFrame with a column "draw" for a DataFrame, which may have several
        sequences, pairs of times and types where types are words or times dates, and otherwise a list of EventSequence.

        Args:
            sequence: the history, with at least one event.
            until: events up to this time, which may be a date where those of the sequence are; or
            n: so many events.
            draws: how many continuations.
            seed: of the random numbers.
        """
        if (until is None) == (n is None):
            raise ValueError("pass until= (a time) or n= (a number of events), not both")
        if draws < 1 or (n is not None and (n < 0 or n != int(n))):
            raise ValueError(f"draws must be positive and n not negative, both whole, got {draws} and {n}")
        given = self._some(sequence)
        if len(given) > 1:
            how: dict[str, Any] = {"until": until, "n": n, "draws": draws}
            return frame_functions().stacked(
                [self.sample(one, **how, seed=seed + k) for k, one in enumerate(given.singly())]
            )
        one, alone = given.data[0], given.data
        _refuse_empty(alone)
        last = math.inf
        if until is not None:
            last = float(asked_times([until], "until", self.time_kind_, plain=given.form == "set")[0])
        if last < one.times[-1]:
            raise ValueError(f"until must be a time after the last event, which is at {one.times[-1]:g}, got {until}")
        if self.scaling_.feature_mean:
            raise ValueError("a model with features of events cannot go on by itself: it does not draw features")
        generator = torch.Generator().manual_seed(seed)
        scaled = self._scaled(alone)[0]
        start = one.times[0]
        end = (last - start) / self.scaling_.unit
        drawn = [scaled] * draws
        going = list(range(draws))
        while going and (n is None or len(drawn[going[0]]) < len(scaled) + n):
            batch = collate_events([drawn[g] for g in going]).to(self.tasks_[0].device)
            memory = self._model.remember(batch).take(batch.lengths[:, None] - 1)
            left = torch.tensor([end - drawn[g].times[-1] for g in going])
            wait, kind, came = draw_next(self._model, memory, until=left, generator=generator)
            for g, w, k, c in zip(list(going), wait.tolist(), kind.tolist(), came.tolist(), strict=True):
                if not c:
                    going.remove(g)
                    continue
                now = drawn[g]
                drawn[g] = EventSequence(np.append(now.times, now.times[-1] + w), np.append(now.types, k), id=one.id)
                if len(drawn[g]) > MOST_EVENTS:
                    raise RuntimeError(f"more than {MOST_EVENTS} events: the process explodes; ask for fewer with n=")
        new = [s.events(slice(len(scaled), None)) for s in drawn]
        moved = [replace(s, times=s.times * self.scaling_.unit + start) for s in new]
        return as_given(moved, given, self.columns_, self.type_names_)

    def predict_ahead(self, X: Any, n: int, *, draws: int = 100, seed: int = 0) -> Any:
        """The next ``n`` events of each sequence, by sampling: a table with a row for each.

        Times are medians over the draws with the 5 % and 95 % quantiles beside, types the most frequent ones.
        """
        from contiformer.estimators.events_ahead import table_ahead  # noqa: PLC0415

        return table_ahead(self, self._read(X), n, draws, seed)

    def stream(self) -> EventStream:
        """A sequence that goes on: append events one after the other and ask in between."""
        from contiformer.estimators.event_stream import EventStream  # noqa: PLC0415

        self._check_fitted()
        return EventStream(self)

    def explain(
        self, X: Any, method: Method = "occlusion", *, target: Any = None, at: Any = None, most_parts: int = 512
    ) -> Explanation:
        """Attributions to the events of the history: what an answer loses when one of them is left out.

        Args:
            X, method, most_parts: see :meth:`Estimator.explain`; events are there or not, so only by occlusion.
            target: the type whose intensity is explained, beside ``at``; None: that of all types together.
            at: explain the log intensity then, given the events before. None: the log-likelihood of the last event.
        """
        from contiformer.estimators.explain_events import explain_events  # noqa: PLC0415

        return explain_events(self, X, method, target=target, at=at, most_parts=most_parts)

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Sums for each sequence, by length; the metrics are per event, with times in the data's unit (dates: seconds).

        The mean log-likelihood in nats, the accuracy of the type at the expected time, the RMSE of the expected time
        and the MAE of the median time, each over all events but the first of a sequence.
        """
        given = self._read(X)
        if not len(given):
            raise DataError("X has no sequences", remedy="give at least one")
        return [self.tasks_[0].judged(self._batches(given.data, by_length=True))]

    def evaluate(self, X: Any, y: Any = None, *, ahead: int = 0, seed: int = 0) -> dict[str, float]:
        """All metrics; with ``ahead`` also those of :func:`~contiformer.estimators.events_ahead.judge_ahead`."""
        from contiformer.estimators.events_ahead import judge_ahead  # noqa: PLC0415

        found = super().evaluate(X, y)
        return found | judge_ahead(self, self._read(X).data, ahead, seed) if ahead else found

    def metric_meanings(self) -> dict[str, str]:
        """Meanings and units of the metrics; times are in the data's unit, or seconds where they are dates."""
        unit = "seconds" if self.time_kind_ != "numbers" else "the data's unit of time"
        return {
            "nll": f"negative log-likelihood per event, in nats, time in {unit}",
            "log_likelihood": f"log-likelihood per event, in nats, time in {unit}",
            "accuracy": "share of types predicted correctly",
            "rmse": f"root mean squared error of the expected time, in {unit}",
            "mae": f"mean absolute error of the median time, in {unit}",
            "events": "number of scored events",
            "otd": "optimal-transport distance of the next events, in mean waits",
            "tmap": "temporal mAP of the next events",
        }

    def score(self, X: Any, y: None = None) -> float:
        """The log-likelihood per event."""
        return self.evaluate(X)["log_likelihood"]

    def _some(self, sequence: Any) -> Events:
        """One sequence, or those of a table."""
        whole = isinstance(sequence, EventSet | Events | EventSequence) or frame_library(sequence) is not None
        given = self._read(sequence if whole else [sequence])
        if len(given) != 1 and (given.form not in TABLES or not len(given)):
            raise DataError(f"{len(given)} sequences where one is asked for", remedy="pass them one by one")
        return given


def _joined(parts: Sequence[Tensor]) -> NDArray[np.float64]:
    return torch.cat(list(parts)).double().cpu().numpy() if parts else np.zeros(0)


def _refuse_empty(data: EventSet) -> None:
    for n, one in enumerate(data):
        if not len(one):
            raise DataError(f"sequence {n if one.id is None else one.id!r} has no events", remedy="leave it out")
