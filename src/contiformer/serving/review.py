"""A pass over the data of a model in the background: the surprise of each series, and the report of the model."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.data.windows import cut_windows
from contiformer.estimators.event_stream import one_step_ahead
from contiformer.estimators.tables import without_labels
from contiformer.plots.classes import confusion, reliability
from contiformer.plots.events import exponential_distance
from contiformer.serving.batching import InferenceQueue
from contiformer.serving.edited import rounded
from contiformer.serving.models import ServedModel
from contiformer.tasks.interpolation import hide_observations
from contiformer.tasks.scores import classification_scores

T = TypeVar("T")
logger = logging.getLogger("contiformer.serving")
#: The first so many series are reviewed.
MOST = 2_000
#: Seconds that a part of the pass keeps the model busy, about.
PART = 0.04
#: Pairs of numbers in a picture of the report.
_MOST_PAIRS = 2_000


class Aside:
    """A second copy of a model with a queue of its own, for slow questions: quick ones need not wait for them.

    Args:
        model: that is served.
    """

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.estimator = deepcopy(model.estimator)
        self.queue = InferenceQueue(f"{model.name} (explorer)", model.limits, model.queue.metrics)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function with the copy of the model, in its turn."""
        return await self.queue.run(function, self.estimator, *arguments)


class Review(ABC):
    """Surprise of the first series of a model's data, computed bit by bit between the requests of the page.

    Attributes:
        surprise: [n] float64, NaN where it is not known (yet).
        answers: what the model says of each series, as the list shows it; None where it is not known (yet).
        done, total: how far the pass is.
        error: why it stopped, where it did.
    """

    #: What surprise is, for the foot of the list.
    meaning: str

    def __init__(self, aside: Aside) -> None:
        self.aside, self.estimator = aside, aside.estimator
        self.data: Any = aside.model.data
        count = 0 if self.data is None else len(self.data)
        self.surprise = np.full(count, np.nan)
        self.answers: list[Any] = [None] * count
        self.done, self.total = 0, min(MOST, count)
        self.error: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, once; in the event loop of the server."""
        if self._task is None and self.total:
            self._task = asyncio.get_running_loop().create_task(self._pass())

    def progress(self) -> dict[str, Any]:
        """Progress of the pass, and the meaning of its measure."""
        return {"done": self.done, "total": self.total, "error": self.error, "meaning": self.meaning}

    async def _pass(self) -> None:
        size = 4
        while self.done < self.total:
            which = range(self.done, min(self.done + size, self.total))
            began = time.perf_counter()
            try:
                await self.aside.queue.run(self._judge_part, which)
            except Exception as error:
                self.error = str(error) or type(error).__name__
                logger.info("the review of %s stopped", self.aside.model.name)
                return
            self.done = which.stop
            size = max(1, min(128, int(size * PART / max(1e-4, time.perf_counter() - began))))
            # others first
            await asyncio.sleep(0)
        # what a report imports is loaded before somebody waits for it
        await asyncio.to_thread(self.report)

    def _judge_part(self, which: Sequence[int]) -> None:
        self.judge(which, self.data.select(np.array(which)))

    @abstractmethod
    def judge(self, which: Sequence[int], part: Any) -> None:
        """Set surprise and answers of these series."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """Figures of the series that are done, for JSON."""

    def cell(self, true: int, predicted: int) -> NDArray[np.bool_]:
        """[n], the series of one cell of the confusion matrix."""
        return np.zeros(len(self.surprise), bool)


class ClassReview(Review):
    """Classifiers: negative log-likelihood of the label."""

    meaning = "negative log-likelihood of the label, in nats"

    def __init__(self, aside: Aside) -> None:
        super().__init__(aside)
        self.classes: list[Any] = self.estimator.classes_.tolist()
        self.probability = np.zeros((len(self.surprise), len(self.classes)))
        self._number = {label: n for n, label in enumerate(self.classes)}
        self.label = np.full(len(self.surprise), -1)

    def judge(self, which: Sequence[int], part: SeriesSet) -> None:
        """Probabilities of the classes."""
        rows = np.array(which)
        self.probability[rows] = self.estimator.predict_proba(part)
        self.label[rows] = [self._number.get(one.label, -1) for one in part]
        for n in rows.tolist():
            best = int(self.probability[n].argmax())
            self.answers[n] = {"class": best, "probability": float(self.probability[n, best])}
            if self.label[n] >= 0:
                self.surprise[n] = -np.log(max(1e-12, self.probability[n, self.label[n]]))

    def cell(self, true: int, predicted: int) -> NDArray[np.bool_]:
        """[n], series with this label that got this answer."""
        done = np.arange(len(self.label)) < self.done
        return done & (self.label == true) & (self.probability.argmax(1) == predicted)

    def report(self) -> dict[str, Any]:
        """Metrics, confusion matrix, and the bins of the reliability diagram."""
        known = np.flatnonzero(self.label[: self.done] >= 0)
        if not len(known):
            return {}
        probability, label = self.probability[known], self.label[known]
        counts = confusion(label, probability.argmax(1), len(self.classes))
        bins = reliability(probability, label)._asdict()
        second = bins.pop("second")
        return {
            "series": len(known),
            "metrics": classification_scores(probability, label),
            "confusion": counts.tolist(),
            "reliability": {"second": second, **{name: rounded(x) for name, x in bins.items()}},
        }


class NumberReview(Review):
    """Regressors of one number for each series: the absolute error."""

    meaning = "absolute error, in the label's unit"

    def __init__(self, aside: Aside) -> None:
        super().__init__(aside)
        self.predicted, self.label = np.full((2, len(self.surprise)), np.nan)

    def judge(self, which: Sequence[int], part: SeriesSet) -> None:
        """Predicted numbers."""
        rows = np.array(which)
        self.predicted[rows] = self.estimator.predict(part)
        self.label[rows] = [np.nan if one.label is None else float(one.label) for one in part]
        self.surprise[rows] = np.abs(self.predicted[rows] - self.label[rows])
        for n in rows.tolist():
            self.answers[n] = {"value": float(self.predicted[n])}

    def report(self) -> dict[str, Any]:
        """Errors, and pairs of true and predicted numbers."""
        known = np.flatnonzero(np.isfinite(self.surprise[: self.done]))
        if not len(known):
            return {}
        miss = self.predicted[known] - self.label[known]
        spread = float(((self.label[known] - self.label[known].mean()) ** 2).sum())
        metrics = {"rmse": float(np.sqrt((miss**2).mean())), "mae": float(np.abs(miss).mean())}
        if spread > 0:
            metrics["r2"] = 1 - float((miss**2).sum()) / spread
        pairs = {"series": known.tolist(), "true": rounded(self.label[known]), "said": rounded(self.predicted[known])}
        return {"series": len(known), "metrics": metrics, "pairs": pairs}


class ValueReview(Review):
    """Values at times: errors of observations that are hidden, of targets, or of the last steps of a series."""

    def __init__(self, aside: Aside) -> None:
        super().__init__(aside)
        asked = "the last steps" if aside.model.task == "forecasting" else "hidden values"
        if self.data is not None and self.data.schema.targets:
            asked = "the targets"
        self.meaning = f"root mean squared error of {asked}, in standard deviations of the channel"
        outputs = len(self.estimator._outputs)
        names = ("squares", "absolutes", "count", "inside90")
        self.sums = {name: np.zeros((len(self.surprise), outputs)) for name in names}

    def judge(self, which: Sequence[int], part: SeriesSet) -> None:
        """Sums of errors of each series and channel, in scaled units, the mean over the members."""
        for n, one in zip(which, part, strict=True):
            judged = self._questions(n, SeriesSet([one], schema=part.schema))
            if judged is None:
                continue
            members = self.estimator._judge(judged)
            for name, kept in self.sums.items():
                if name in members[0]:
                    kept[n] = np.mean([one[name].reshape(-1, kept.shape[1]).sum(0) for one in members], 0)
            count = self.sums["count"][n].sum()
            if count:
                self.surprise[n] = np.sqrt(self.sums["squares"][n].sum() / count)
                self.answers[n] = {"error": float(self.surprise[n])}

    def _questions(self, number: int, one: SeriesSet) -> SeriesSet | None:
        """The series with something to ask for, scaled: its target, its last steps, or hidden observations."""
        estimator = self.estimator
        if estimator.task_name == "forecasting" and not one.schema.targets:
            return self._last_steps(one)
        if estimator.task_name == "regression" and not one.schema.targets:
            return None
        scaled = estimator.scaling_.apply(without_labels(one))
        if one.schema.targets:
            return scaled
        return hide_observations(scaled, estimator.hide, estimator.seed + number)

    def _last_steps(self, one: SeriesSet) -> SeriesSet | None:
        # the window whose future is the last horizon of the series
        border = float(one[0].times[-1]) - self.estimator._reach() if len(one[0]) else 0.0
        how: dict[str, Any] = {"least": 2, "between": [(border, np.inf)]}
        windows = cut_windows(without_labels(one), self.estimator._history, self.estimator._reach(), **how)
        return self.estimator.scaling_.apply(windows[:1].in_memory()) if len(windows) else None

    def report(self) -> dict[str, Any]:
        """Errors of each channel in its unit."""
        known = np.flatnonzero(np.isfinite(self.surprise[: self.done]))
        if not len(known):
            return {}
        estimator = self.estimator
        count, squares, absolutes, inside = (
            self.sums[name][known].sum(0) for name in ("count", "squares", "absolutes", "inside90")
        )
        width = len(count)
        unit = np.abs(estimator._undo(np.ones(width)) - estimator._undo(np.zeros(width)))
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = {
                "values": count.astype(int).tolist(),
                "rmse": rounded(np.sqrt(squares / count) * unit),
                "scaled_rmse": rounded(np.sqrt(squares / count)),
                "mae": rounded(absolutes / count * unit),
                "coverage90": rounded(inside / count) if getattr(estimator, "law", "") == "gaussian" else None,
            }
        total = float(count.sum())
        metrics = {"rmse": float(np.sqrt(squares.sum() / total)), "mae": float(absolutes.sum() / total)}
        if rows["coverage90"] is not None:
            metrics["coverage90"] = float(inside.sum() / total)
        return {"series": len(known), "metrics": metrics, "channels": rows}


class EventReview(Review):
    """Event sequences: negative log-likelihood per event."""

    meaning = "negative log-likelihood per event, in nats"

    def __init__(self, aside: Aside) -> None:
        super().__init__(aside)
        self.residuals: list[NDArray[np.float64]] = []
        self.waits: list[NDArray[np.float64]] = []
        self.expected: list[NDArray[np.float64]] = []
        kinds = len(self.estimator.type_names_)
        self.confusion = np.zeros((kinds, kinds), int)

    def judge(self, which: Sequence[int], part: EventSet) -> None:
        """Log-likelihood, residuals, and each next event as it was expected."""
        long = [n for n, one in zip(which, part, strict=True) if len(one) > 1]
        if not long:
            return
        scored = self.data.select(np.array(long))
        likelihood = np.asarray(self.estimator.log_likelihood(scored))
        for n, one, total in zip(long, scored, likelihood, strict=True):
            self.surprise[n] = -total / (len(one) - 1)
            self.answers[n] = {"nll": float(self.surprise[n])}
        self.residuals.append(self.estimator.residuals(scored))
        ahead = one_step_ahead(self.estimator, scored)
        self.waits.append(ahead.wait)
        self.expected.append(ahead.expected)
        self.confusion += confusion(ahead.type, ahead.predicted, len(self.confusion))

    def report(self) -> dict[str, Any]:
        """Metrics, quantiles of the residuals beside those of the unit exponential law, waits, and types."""
        if not self.residuals:
            return {}
        residuals = np.sort(np.concatenate(self.residuals))
        wait, expected = np.concatenate(self.waits), np.concatenate(self.expected)
        count = len(residuals)
        some = np.unique(np.linspace(0, count - 1, min(count, 400)).astype(int))
        law = -np.log1p(-(np.arange(count) + 0.5) / count)
        pairs = np.unique(np.linspace(0, len(wait) - 1, min(len(wait), _MOST_PAIRS)).astype(int))
        known = np.isfinite(self.surprise[: self.done])
        right = int(np.trace(self.confusion))
        return {
            "series": int(known.sum()),
            "metrics": {
                "nll": float(np.nanmean(self.surprise[: self.done])),
                "accuracy": right / max(1, int(self.confusion.sum())),
                "mae of the expected time": float(np.abs(wait - expected).mean()),
                "KS distance of residuals": exponential_distance(residuals),
                "by chance up to": 1.358 / count**0.5,
            },
            "residuals": {"law": rounded(law[some]), "found": rounded(residuals[some])},
            "pairs": {"true": rounded(wait[pairs]), "said": rounded(expected[pairs])},
            "confusion": self.confusion.tolist(),
        }


def review_of(aside: Aside) -> Review:
    """The review for the task of a model."""
    model = aside.model
    if model.task == "events":
        return EventReview(aside)
    if model.task == "classification":
        return ClassReview(aside)
    return NumberReview(aside) if model.numbers_per_series else ValueReview(aside)
