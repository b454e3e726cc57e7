"""The interpolator: channels at any time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.input_checks import last_part
from contiformer.estimators.tables import without_labels
from contiformer.estimators.values import ValueEstimator
from contiformer.tasks.base import Judged
from contiformer.tasks.heads import SMALLEST_STD
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.interpolation import Interpolation, hide_observations

#: The least standard deviation of channels most of whose values repeat the one before, in that of the channel.
REPEATING_STD = 0.03
#: One long series is learned in pieces of at most so many points.
PIECE = 256


@dataclass(kw_only=True, eq=False, repr=False)
class Interpolator(ValueEstimator):
    """Values of all channels at any time: before, between and after the observations.

    It learns by hiding observations and asking for them; or from target series, where a SeriesSet has them.

    Attributes:
        law: "gaussian": also a calibrated standard deviation; "point": values only.
        hide: share of the observations that a training step hides and predicts.
        stretches: share of the series in which a step hides a stretch of time instead of single observations.
        limit: values farther than so many standard deviations from the mean of their channel are taken for errors: they
            count as that far, in training, prediction and metrics, and ``fit`` warns of them. None: no limit.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> from contiformer import Interpolator, TrainingOptions
        >>> X = [([0, 0.4, 1.0, 2.0], [[n], [-n], [n], [2 * n]]) for n in (1.0, 2.0, 3.0, 4.0)]
        >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
        >>> imp = Interpolator(training=quick).fit(X)
        >>> [values.shape for values in imp.predict(X, at=[0.5, 1.5, 2.5])]
        [(3, 1), (3, 1), (3, 1), (3, 1)]
    """

    law: Literal["gaussian", "point"] = "gaussian"
    hide: float = 0.3
    stretches: float = 0.2
    dropout: float = 0.1
    window: int = 1
    limit: float | None = 20.0

    task_name: ClassVar[str] = "interpolation"
    training_defaults: ClassVar[Mapping[str, Any]] = {
        **ValueEstimator.training_defaults,
        "keep_points": 1.0,
        "most_points": None,
        "learning_rate": 3e-3,
        "weight_decay": 0.05,
        "epochs": 10,
        "patience": 1.0,
    }

    def _fit_scaling(self, data: SeriesSet) -> Scaling:
        if self.scaling != "standard":
            raise ValueError(f"scaling must be 'standard' where values are the answer, got {self.scaling!r}")
        scaling = Scaling.fit(data, origin=self.time_origin, limit=self.limit)
        self._warn_of_outliers(scaling.outliers(data))
        if data.schema.targets and len(data.schema.targets) == len(data.channels):
            # one channel, one scale, whether it is seen or asked for
            return replace(scaling, target_mean=scaling.mean, target_std=scaling.std)
        return scaling

    def _warn_of_outliers(self, found: Mapping[str, tuple[int, Any, float]]) -> None:
        if found:
            named = [f"{n} of {name!r} (such as {x:.6g} in series {id!r})" for name, (n, id, x) in found.items()]
            warnings.warn(
                f"values more than {self.limit:g} standard deviations from the mean count as that far: "
                f"{', '.join(named[:5])}{', ...' if len(named) > 5 else ''}; if they are errors, use NaN; if they are "
                "not, take logarithms or pass limit=None",
                stacklevel=2,
            )

    def _parts(self, data: SeriesSet, member: int) -> tuple[SeriesSet, SeriesSet]:
        """One series alone is divided along time; its last part is validated on."""
        if len(data) != 1 or data.schema.targets:
            return super()._parts(data, member)
        one, share = data[0], self.training_options().validation
        border = last_part(len(one), share, f"series of {len(one)} points")

        def pieces(start: int, end: int) -> SeriesSet:
            length = -(-(end - start) // -(-(end - start) // PIECE))
            cut = [one.points(slice(n, min(n + length, end))) for n in range(start, end, length)]
            return SeriesSet(cut, schema=data.schema)

        return pieces(0, border), pieces(border, len(one))

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        targets = len(training.schema.targets) or len(training.channels)
        return {
            "outputs": targets,
            "law": self.law,
            "from_observed": targets == len(training.channels),
            "augmentation": self._augmentation(),
            "hide": self.hide,
            "stretches": self.stretches,
            "smallest_std": None if self.law == "point" or training.schema.targets else _smallest_std(training),
        }

    def _make_task(self, config: dict[str, Any], inputs: Inputs) -> Interpolation:
        return Interpolation(self._new_backbone(config, inputs), inputs, **config["task"])

    def _validation_form(self, data: SeriesSet) -> SeriesSet:
        return data if data.schema.targets else hide_observations(data, self.hide, self.seed)

    def predict(
        self, X: Any, at: Any = None, *, return_std: bool = False, quantiles: Sequence[float] | None = None
    ) -> Any:
        """Values at any times, in the form of X.

        Args:
            X: series to go by; what is missing in them is what the model fills in.
            at: times: one list for all series, one for each, a dictionary by id, or a DataFrame with the columns of the
                id and the time; of the kind of the times of X: numbers, dates with or without a zone, or durations.
                None: the times of the series, of an array all of 0, 1, ..., L - 1.
            return_std: also the standard deviation, as a second value.
            quantiles: levels; instead of the mean one column for each channel and level.

        Returns:
            A table with the columns id, time and channels for a DataFrame; an array [n, Q, C]; a list of arrays [Q, C];
            or a SeriesSet. With quantiles the channels are called as in ``pH_q0.9``.
        """
        bare, scaled, form = self._read(X)
        times = self._query_times(X, at, bare, form)
        said = self._predict_at(bare, scaled, times, quantiles)
        return self._answer(said, bare, times, form, X, return_std=return_std, quantiles=quantiles)

    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean squared error (in scaled units) of observations that are hidden and asked for."""
        return -self.evaluate(X)["mse"]

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Errors in scaled units on the target of the series, or on observations that are hidden, always the same."""
        data = without_labels(self._read_whole(X))
        return self._judge(self._validation_form(self.scaling_.apply(data)))


def _smallest_std(data: SeriesSet) -> list[float]:
    """The least standard deviation to believe, for each channel.

    A value that is copied from row to row, such as the weight of a patient, is foretold exactly nearly always: the
    spread would vanish, and one change of it would cost more than all other values gain.
    """
    again, pairs = np.zeros(len(data.channels)), np.ones(len(data.channels))
    for series in data:
        for n, column in enumerate(series.values.T):
            known = column[~np.isnan(column)]
            again[n] += (known[1:] == known[:-1]).sum()
            pairs[n] += max(0, len(known) - 1)
    return np.where(again > pairs / 2, REPEATING_STD, SMALLEST_STD).tolist()
