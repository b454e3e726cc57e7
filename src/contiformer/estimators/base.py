"""The base class of estimators on series: parsing, scaling, training, batches."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from contiformer.backbones import Capabilities, backbone_class, check_capabilities, make_backbone
from contiformer.data.batch import Batch
from contiformer.data.conversion import DATES, TimeKind, refuse_other_kind
from contiformer.data.errors import DataError
from contiformer.data.loader import Loader
from contiformer.data.scaling import Origin, Scaling, ScalingLaw
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.estimators import input_checks
from contiformer.estimators.labels import MissingLabels, matched, with_weights
from contiformer.estimators.learner import Learner
from contiformer.estimators.tables import TABLES, Columns, Form, answer, frame_functions, read, without_answers
from contiformer.tasks.base import SeriesTask
from contiformer.tasks.baselines import BASELINES, DirectTask, make_baseline
from contiformer.tasks.heads import ENOUGH_TO_CALIBRATE
from contiformer.tasks.inputs import InputOptions, Inputs
from contiformer.tasks.pooling import summary_moments
from contiformer.training.options import EVALUATION_BATCH, TrainingOptions, TrainingOutcome

if TYPE_CHECKING:
    from contiformer.estimators.explanation import Explanation, Hidden, Method


@dataclass(frozen=True)
class TrainingJob:
    """The training of one member: a task with new weights, scaled series, and all options."""

    task: SeriesTask | DirectTask
    training: SeriesSet
    validation: SeriesSet
    options: TrainingOptions


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(Learner):
    """Parameters of every estimator of series, beside those of :class:`~contiformer.estimators.learner.Learner`.

    Attributes:
        window: levels of local means shown beside each point, see :class:`~contiformer.tasks.InputOptions`.
        members: models that are trained, each with other series to validate on; their answers are averaged.
        scaling: "standard", by mean and standard deviation; "normal scores", by ranks, for skewed
            channels with outliers; "auto": by ranks where channels are missing at some points, as in clinical records.
        time_origin: "first": the clock of a series starts with it; "global": all series share one clock.

    Example:
        >>> from contiformer.estimators import Estimator, Interpolator
        >>> isinstance(Interpolator(window=2, members=3), Estimator)
        True
    """

    window: int = 3
    members: int = 1
    time_origin: Origin = "first"
    scaling: Literal["auto", "standard", "normal scores"] = "standard"

    training_defaults: ClassVar[Mapping[str, Any]] = {
        **Learner.training_defaults,
        "keep_points": 0.75,
        "most_points": 64,
    }

    # Hooks of subclasses: the task and its arguments

    @abstractmethod
    def _make_task(self, config: dict[str, Any], inputs: Inputs) -> SeriesTask:
        """The task that the configuration describes, with new weights."""

    @abstractmethod
    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        """Options of the task that depend on the training data, for JSON."""

    @abstractmethod
    def _answered(self, data: SeriesSet, y: list[Any] | None, missing: MissingLabels = "drop") -> SeriesSet:
        """The series with their answers, checked; those without a label are left out, or refused."""

    def _prepare(self, data: SeriesSet) -> SeriesSet:
        """Check that the data have what is to be learned."""
        return data

    def _examples(self, data: SeriesSet) -> SeriesSet:
        """Training examples: the series themselves, unless a subclass cuts them."""
        return data

    def _validation_form(self, data: SeriesSet) -> SeriesSet:
        """The scaled validation series as they are judged."""
        return data

    def _begin(self, task: SeriesTask | DirectTask, training: SeriesSet, validation: SeriesSet, seed: int) -> None:
        """Fit the parts of a task that are not trained, before its network is."""

    def _parts(self, data: SeriesSet, member: int) -> tuple[SeriesSet, SeriesSet]:
        """Series to train on and to validate on: another fold for each member."""
        options = self.training_options()
        share = options.validation
        if not 0 < share <= 0.5:
            raise ValueError(f"validation must be a share above 0 and at most 0.5 of the series, got {share}")
        folds = round(1 / share)
        if len(data) < 2:
            raise DataError(
                "one series (n_samples=1) cannot be divided into training and validation",
                remedy="give more, or validation_data=",
            )
        folds = min(folds, len(data))
        stratify = data.schema.classes is not None
        return data.k_fold(folds, seed=options.seed, stratify=stratify)[member % folds]

    def _description(self) -> dict[str, Any]:
        return {
            "columns": asdict(self.columns_),
            "schema": self.schema_.to_dict(),
            "scaling": self.scaling_.to_dict(),
        }

    def _describe_again(self, saved: Mapping[str, Any]) -> None:
        self.columns_ = Columns.from_dict(saved["columns"])
        self.schema_ = Schema.from_dict(saved["schema"])
        self.scaling_ = Scaling.from_dict(saved["scaling"])

    def _facts(self) -> dict[str, str]:
        schema = self.schema_
        facts = {"channels": ", ".join(schema.channels)}
        if schema.static:
            facts["static features"] = ", ".join(schema.static)
        if schema.classes is not None:
            facts["classes"] = ", ".join(map(str, schema.classes))
        unit = " seconds" if schema.kind != "numbers" else f" {schema.time_unit}" if schema.time_unit else ""
        return facts | {"time unit of the model": f"{self.scaling_.unit:g}{unit}"}

    # Training

    def prepare(self, X: Any, y: Any = None, **roles: Any) -> TrainingJob:
        """The first training of ``fit``, for a training loop of your own; takes the arguments of ``fit``.

        Example:
            >>> from contiformer import Classifier
            >>> job = Classifier().prepare([([0.0, 1.0], [[n], [-n]]) for n in range(8)], [0, 1] * 4)
            >>> len(job.training), len(job.validation)
            (6, 2)
        """
        validation = roles.pop("validation_data", None)
        how = {name: roles.pop(name) for name in ("sample_weight", "missing_labels") if name in roles}
        return next(self._jobs(*self._parse(X, y, columns_of(**roles), validation, **how)))

    def _parse(
        self,
        X: Any,
        y: Any,
        columns: Columns,
        validation_data: Any,
        *,
        sample_weight: Any = None,
        missing_labels: MissingLabels = "drop",
    ) -> tuple[SeriesSet, Columns, SeriesSet | None]:
        """Convert what users give to ``fit``: training series, the roles of columns, validation series."""
        series, form = read(X, columns, labelled=y is None)
        if form == "pandas":
            columns = frame_functions().located(X, columns)[1]
        series = with_weights(series, matched(sample_weight, series, form, X, columns, "sample_weight"))
        data = self._answered(series, matched(y, series, form, X, columns), missing_labels)
        if validation_data is None:
            return data, columns, None
        given, answers = validation_data if isinstance(validation_data, tuple) else (validation_data, None)
        held_out, form = read(given, columns, data.schema, labelled=answers is None)
        _check_kind(held_out.schema, data.schema)
        labels = matched(answers, held_out, form, given, columns)
        return data, columns, self._answered(held_out, labels, missing_labels)

    def _jobs(self, data: SeriesSet, columns: Columns, validation: SeriesSet | None) -> Iterator[TrainingJob]:
        """Scale and divide the data, and describe the model; a job for each member."""
        input_checks.check_parameters(self)
        data = self._prepare(data)
        check_capabilities(self.backbone, self._capabilities(), data)
        self.columns_, self.schema_ = columns, data.schema
        input_checks.refuse_endless(data)
        # what is held out is not looked at, also not for its mean
        seen = data if validation is not None else self._parts(data, 0)[0]
        self.scaling_ = self._fit_scaling(seen)
        self._forget()
        self.config_ = self._describe(data)
        if self.config_["task"].get("summaries"):
            self.config_["task"]["moments"] = summary_moments(self.scaling_.apply(seen))
        options = self.training_options()
        checked = None
        if validation is not None:
            checked = self._validation_form(self.scaling_.apply(self._examples(self._prepare(validation))))
        for member in range(self.members):
            if checked is None:
                training, held_out = map(self.scaling_.apply, self._parts(data, member))
                judged = self._validation_form(held_out)
            else:
                training, judged = self.scaling_.apply(self._examples(data)), checked
            judged, _ = by_length(judged)
            seeded = replace(options, seed=options.seed + 1000 * member)
            task = self._new_task(seeded.seed)
            self._begin(task, training, judged, seeded.seed)
            yield TrainingJob(task, training, judged, seeded)

    def _fit(self, data: SeriesSet, columns: Columns, validation: SeriesSet | None) -> Self:
        input_checks.check_parameters(self)
        folder = None if self.run_dir is None else Path(self.run_dir)
        held_out, sizes = [], (0, 0)
        for member, job in enumerate(self._jobs(data, columns, validation)):
            place = None if folder is None else folder if self.members == 1 else folder / f"member{member}"
            if isinstance(job.task, DirectTask):
                started = time.perf_counter()
                how: dict[str, Any] = {"refit": validation is None, "seed": job.options.seed}
                held_out.append(job.task.fit(job.training, job.validation, **how))
                outcome = TrainingOutcome([], 0, time.perf_counter() - started, 0, False, [])
            else:
                outcome = self._train(job.task, job.training, job.validation, job.options, place)
                job.task.calibrate(Loader(job.validation, EVALUATION_BATCH, shuffle=False))
                held_out.append(job.task.evaluate(Loader(job.validation, EVALUATION_BATCH, shuffle=False)))
            sizes = sizes if member else (len(job.training), len(job.validation))
            self.tasks_.append(job.task)
            self.outcomes_.append(outcome)
            if outcome.interrupted:
                break
        self._record(held_out, *sizes)
        self._save_run(folder)
        return self

    def _backbone_options(self) -> dict[str, Any]:
        return dict(self.backbone_options or {}) if self.backbone in BASELINES else super()._backbone_options()

    def _capabilities(self) -> Capabilities:
        if self.backbone in BASELINES:
            return Capabilities()
        return backbone_class(self.backbone).capabilities_for(**self._backbone_options())

    def _fit_scaling(self, data: SeriesSet) -> Scaling:
        law: ScalingLaw = "standard" if self.scaling == "auto" else self.scaling
        if self.scaling == "auto" and self.backbone not in BASELINES and has_gaps(data):
            law = "normal scores"
        return Scaling.fit(data, origin=self._origin(data), law=law)

    def _origin(self, data: SeriesSet) -> Origin:
        usual = self.time_origin
        return BASELINES[self.backbone].origin(data, usual) if self.backbone in BASELINES else usual

    def _describe(self, data: SeriesSet) -> dict[str, Any]:
        """Everything that is needed to build the model again."""
        shown: dict[str, Any] = {
            "channels": len(data.channels),
            "static": len(data.schema.static),
            "window": self.window,
            "spacing": _usual_gap(data) / self.scaling_.unit,
            "gaps": has_gaps(data),
            "causal": self._capabilities().causal,
        }
        task, options = self._describe_task(data, self.scaling_), self._backbone_options()
        if self.backbone in BASELINES:
            kind = BASELINES[self.backbone]
            kind.check(self.backbone, self.task_name, data.schema)
            task = {name: task[name] for name in kind.described if name in task}
            options = {**kind.describe(data, self.scaling_), **options}
        return {
            "backbone": self.backbone,
            "backbone_options": options,
            "inputs": InputOptions(**{**shown, **self._input_options()}).to_dict(),
            "task": task,
            "training_defaults": self._training_defaults_for(data),
        }

    def _training_defaults_for(self, data: SeriesSet) -> dict[str, Any]:
        """Defaults of training options that depend on the training data, for JSON."""
        return {}

    def _augmentation(self) -> dict[str, Any]:
        """The fields of :class:`~contiformer.tasks.Augmentation`."""
        return self.training_options().augmentation()

    def _input_options(self) -> dict[str, Any]:
        return {}

    def _new_task(self, seed: int) -> SeriesTask | DirectTask:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.backbone in BASELINES:
                shape = {name: self.config_["inputs"][name] for name in ("channels", "static")}
                return make_baseline(self.backbone, **shape, **self.config_["task"], **self.config_["backbone_options"])
            inputs = Inputs(InputOptions.from_dict(self.config_["inputs"]))
            return self._make_task(self.config_, inputs)

    def _new_backbone(self, config: dict[str, Any], inputs: Inputs) -> Any:
        return make_backbone(config["backbone"], inputs.size, **config["backbone_options"])

    # Use

    def __sklearn_tags__(self) -> Any:
        """Series may have gaps, and arrays of them have three dimensions."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags

    def _read(self, X: Any) -> tuple[SeriesSet, SeriesSet, Form]:
        """New input: as it is, and scaled for the model, without labels and targets."""
        self._check_fitted()
        data, form = read(X, replace(self.columns_, label=None, targets=()), self.schema_, empty=True)
        return (*self._scaled(data), form)

    def _read_whole(self, X: Any) -> SeriesSet:
        """New input with labels and targets, not scaled."""
        self._check_fitted()
        data = read(X, self.columns_, self.schema_)[0]
        _check_kind(data.schema, self.schema_)
        return data

    def _read_answered(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[SeriesSet, SeriesSet]:
        """Input with answers: with them, and scaled for the model without them."""
        self._check_fitted()
        data, form = read(X, self.columns_, self.schema_, labelled=y is None)
        data = with_weights(data, matched(sample_weight, data, form, X, self.columns_, "sample_weight"))
        answered = self._answered(data, matched(y, data, form, X, self.columns_))
        return answered, self._scaled(answered)[1]

    def _scaled(self, data: SeriesSet) -> tuple[SeriesSet, SeriesSet]:
        """The series without answers, and scaled; refuses what the model was not trained for."""
        _check_kind(data.schema, self.schema_)
        if data.schema.static != self.schema_.static:
            problem = f"X has the static features {data.schema.static}; the model was trained on {self.schema_.static}"
            raise DataError(problem, remedy="give the same")
        check_capabilities(self.config_["backbone"], self._capabilities(), data)
        bare = without_answers(data)
        # also where outliers are limited: a fill value such as 1e30 is none
        input_checks.refuse_extreme(replace(self.scaling_, limit=None).apply(bare))
        scaled = self.scaling_.apply(bare)
        input_checks.refuse_elsewhen(self.tasks_[0], bare, scaled)
        return bare, scaled

    def _batches(self, scaled: SeriesSet) -> Iterator[Batch]:
        for batch in Loader(scaled, EVALUATION_BATCH, shuffle=False):
            assert isinstance(batch, Batch)
            yield batch.to(self.tasks_[0].device)

    @torch.no_grad()
    def _mean_over_members(self, scaled: SeriesSet, method: str, *shape: int) -> NDArray[np.float64]:
        """Mean over the members of a method of their tasks, for each series: [n, *shape]."""
        if not len(scaled):
            return np.zeros((0, *shape))
        scaled, back = by_length(scaled)
        total: NDArray[np.float64] | float = 0.0
        for task in self.tasks_:
            parts = [getattr(task, method)(batch).cpu().numpy() for batch in self._batches(scaled)]
            total = total + np.concatenate(parts).astype(np.float64)
        for said, series in zip(np.asarray(total), scaled, strict=True):
            input_checks.refuse_non_finite(said, series)
        return np.asarray(total)[back] / len(self.tasks_)

    def embed(self, X: Any, at: Any = None, *, member: int = 0) -> Any:
        """States of a member's backbone [Q, d_model] of each series, at its own times or at any others.

        Of a DataFrame a table with the columns id, time and ``state_0`` to ``state_{d_model - 1}``.
        """
        from contiformer.estimators.explain import states  # noqa: PLC0415

        found, bare, times, form = states(self, X, at, member)
        if form not in TABLES:
            return found
        width = self.tasks_[member].backbone.d_model
        return answer(form, bare, times, found, [f"state_{n}" for n in range(width)], self.columns_, X)

    def calibrate(self, X: Any, y: Any = None) -> Self:
        """Adjust the model's certainty to new series with answers: probabilities, or standard deviations.

        ``fit`` does so on the validation series. Series that the model was not trained on, in the proportions in which
        they come, make better probabilities.

        Raises:
            ValueError: the model has no certainty to adjust.
        """
        self._check_fitted()
        if (
            getattr(getattr(self.tasks_[0], "head", None), "law", "gaussian") != "gaussian"
            or self.task_name == "regression"
        ):
            raise ValueError("this model has neither probabilities nor standard deviations to calibrate")
        answered = self._known_classes(self._read_answered(X, y)[0])
        judged = by_length(self._validation_form(self.scaling_.apply(self._examples(answered))))[0]
        known = sum(int((~np.isnan(one.target_values)).sum()) for one in judged if one.target_values is not None)
        if judged.schema.targets and known < ENOUGH_TO_CALIBRATE:
            problem = f"there are {known} values to calibrate on"
            raise DataError(problem, remedy=f"give more series: {ENOUGH_TO_CALIBRATE} values are the least")
        for task in self.tasks_:
            task.calibrate(Loader(judged, EVALUATION_BATCH, shuffle=False))
        return self

    def _known_classes(self, data: SeriesSet) -> SeriesSet:
        """The series with the classes of the model."""
        return data

    def _visible(self, data: SeriesSet) -> SeriesSet:
        """The part of the series that an answer goes by: all of them, unless a subclass has windows."""
        return data

    def _check_states(self) -> None:
        """Refuse states of whole series where there are none."""
        if self.backbone in BASELINES:
            raise ValueError(f"{self.backbone!r} has neither states nor attention: use method='occlusion'")

    def explain(
        self,
        X: Any,
        method: Method = "occlusion",
        *,
        target: Any = None,
        at: Any = None,
        hide: Hidden = "observation",
        most_parts: int = 512,
        member: int | None = None,
    ) -> Explanation:
        """Attributions of the answer to each observation, see :class:`~contiformer.estimators.Explanation`.

        What is explained is one number for each series: the log-odds of a class, the predicted number, or the predicted
        value of a channel at a time.

        Args:
            X: the series, as in ``predict``. Keep them few: a series costs as many evaluations as it has observations
                and channels; they are in ``evaluations`` of the result.
            method: "occlusion": the answer minus that with an observation hidden, for every backbone; hidden means
                missing, or for a backbone that takes no missing values on the line between its neighbours in time.
                "gradients": integrated gradients from the training mean of each channel (its median where scaled by
                ranks); missing stays missing, and the sum is the answer minus that for the baseline.
                "attention": weights of the last layer, of backbones that have them.
            target: class, or channel of the prediction. None: the class predicted for each series, or the only channel.
            at: the time of the prediction that is explained; None: the next step of a forecast. Of attention: query
                times, by default those of the series.
            hide: of occlusion: one "observation", a "time" with all its channels, or a whole "channel" at once.
            most_parts: of occlusion: a series of more observations is hidden in windows of consecutive ones, which
                share the change equally; ``notes`` of the result say so. A smaller number is quicker.
            member: the model to explain, None: the mean of all (attention: the first).

        Example:
            >>> from contiformer import Regressor, TrainingOptions
            >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, 3.0, -1.0, -2.0, -3.0)]
            >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
            >>> model = Regressor(d_model=8, training=quick).fit(X, [1.0, 2.0, 3.0, -1.0, -2.0, -3.0])
            >>> model.explain(X[:1]).table().columns
            ['id', 'time', 'channel', 'value', 'attribution', 'rank']
        """
        from contiformer.estimators.explain import explain_series  # noqa: PLC0415

        self._check_fitted()
        how: dict[str, Any] = {"hide": hide, "most_parts": most_parts, "member": member}
        return explain_series(self, X, method, target=target, at=at, **how)


def _check_kind(given: Schema, trained: Schema) -> None:
    """Refuse times of another kind; a set that does not know more than that its times are dates may have a zone."""
    kind: TimeKind | None = given.time_kind
    if kind is None and given.dates:
        kind = trained.kind if trained.kind in DATES else "dates"
    refuse_other_kind(kind, trained.kind)


def columns_of(*given: Any, **named: Any) -> Columns:
    """The roles of columns, as users name them, in the order of :class:`Columns`."""
    roles: dict[str, Any] = vars(Columns(*given, **named))
    for name in ("values", "static", "targets", "categorical"):
        if isinstance(roles[name], str):
            raise DataError(f"{name}={roles[name]!r} is one word", remedy=f"pass a list: {name}=[{roles[name]!r}]")
    for name in ("id", "time", "label", "variable", "value"):
        if not isinstance(roles[name], str | None):
            several = "; fit one model for each label" if name == "label" else ""
            raise DataError(f"{name}={roles[name]!r} is no name of a column", remedy=f"pass one name{several}")
    roles = {name: x if isinstance(x, str | None) else tuple(x) for name, x in roles.items()}
    return Columns(**roles)


def _usual_gap(data: SeriesSet) -> float:
    """The median over the series of the median gap between points at different times."""
    gaps = [np.diff(series.times) for series in data]
    medians = [float(np.median(gap[gap > 0])) for gap in gaps if (gap > 0).any()]
    return float(np.median(medians)) if medians else 1.0


def by_length(data: SeriesSet) -> tuple[SeriesSet, NDArray[np.int64]]:
    """The series sorted by their number of points, so that batches have little padding; and what sorts them back."""
    if data.lazy:
        return data, np.arange(len(data))
    order = np.argsort(data.lengths, kind="stable")
    return data.select(order), np.argsort(order, kind="stable")


def has_gaps(data: SeriesSet) -> bool:
    """Whether channels are missing at some points."""
    return any(not bool(one.observed.all()) for one in data)
