"""The task of learning event sequences."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from contiformer.tasks.base import Judged, Task
from contiformer.tasks.events.intensity import IntensityModel
from contiformer.tasks.events.likelihood import IntegralRule, Intervals, intervals, log_likelihood
from contiformer.tasks.events.next_event import COARSE, FINE, expect


class EventTask(Task):
    """Maximum likelihood, with the paper's two further terms.

        loss = -Σ_i ℓ_i + α_1 Σ_i (t̂_i - t_i)² - α_2 Σ_i log(λ_{k_i}(t̂_i) / λ(t̂_i))

    over all events but the first of each sequence, divided by their number; ``t̂_i`` is the expected time given what
    came before. Times are in mean waits, ``unit`` is a mean wait in the data's time, and ``time_weight`` and
    ``type_weight`` are ``α_1`` and ``α_2``.

    Example:
        >>> from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
        >>> from contiformer.tasks.events import EventTask, build_model
        >>> data = EventSet([EventSequence.of([0, 1, 3], [0, 1, 0])])
        >>> model = build_model("poisson", "auto", EventScaling.fit(data), {})
        >>> task = EventTask(model, unit=EventScaling.fit(data).unit)
        >>> round(task.evaluate([collate_events(data)])["rmse"], 3)
        1.061
    """

    monitor: ClassVar[str] = "nll"
    mode: ClassVar[str] = "min"

    def __init__(
        self,
        model: IntensityModel,
        *,
        unit: float,
        time_weight: float = 0.01,
        type_weight: float = 1.0,
        rule: IntegralRule | None = None,
    ) -> None:
        super().__init__()
        if not (time_weight >= 0 and type_weight >= 0):
            raise ValueError(f"time_weight and type_weight must not be negative, got {time_weight} and {type_weight}")
        self.model, self.unit = model, unit
        self.time_weight, self.type_weight = time_weight, type_weight
        self.rule = rule or IntegralRule()

    def loss_terms(self, batch: Any) -> tuple[Tensor, Tensor]:
        scored = intervals(self.model, batch)
        loss = -log_likelihood(self.model, scored, self.rule)
        if self.time_weight or self.type_weight:
            said = expect(self.model, scored.memory, COARSE)
            miss = said.mean - scored.wait
            kind = said.kinds.gather(-1, scored.kind.unsqueeze(-1)).squeeze(-1)
            cross = -kind.clamp(min=torch.finfo(kind.dtype).tiny).log()
            loss = loss + self.time_weight * miss.square() + self.type_weight * cross
        weight = scored.known * (torch.ones_like(loss) if batch.weight is None else batch.weight.to(loss).unsqueeze(1))
        return (torch.where(scored.known, loss, 0.0) * weight).sum(), weight.sum()

    def judge(self, batch: Any) -> dict[str, Tensor]:
        scored = intervals(self.model, batch)
        exact = IntegralRule("closed", self.rule.nodes)
        likelihood = log_likelihood(self.model, scored, exact)
        said = expect(self.model, scored.memory, FINE, median=True) if scored.wait.shape[1] else None
        judged = {"likelihood": likelihood, "count": scored.known}
        if said is None:
            judged |= {"squares": likelihood, "absolutes": likelihood, "right": likelihood}
        else:
            miss = said.mean - scored.wait
            assert said.median is not None
            by_median = said.median - scored.wait
            right = said.kinds.argmax(-1) == scored.kind
            judged |= {"squares": miss.square(), "absolutes": by_median.abs(), "right": right}
        return {name: torch.where(scored.known, x.double(), 0.0).sum(1) for name, x in judged.items()}

    @torch.no_grad()
    def calibrate(self, batches: Any) -> None:
        """Let the model choose parameters without gradients, such as its certainty, by the likelihood."""
        self.eval()
        scored: list[Intervals] = []

        def loss() -> float:
            if not scored:
                scored.extend(intervals(self.model, batch.to(self.device)) for batch in batches)
            return -sum(float(log_likelihood(self.model, one).sum()) for one in scored)

        self.model.calibrate(loss)

    def metrics(self, judged: Judged) -> dict[str, float]:
        """Per event: log-likelihood in nats, accuracy of the type at the expected time, and errors of the time.

        Times are in the data's unit (dates: seconds); the RMSE is that of the expected time, the MAE of the median.
        """
        return event_scores(judged, self.unit)


def event_scores(judged: Judged, unit: float = 1.0) -> dict[str, float]:
    """Metrics per event from sums for each sequence, whose times are in ``unit`` of the data's time."""
    events = float(judged["count"].sum())
    count = events or math.nan
    likelihood = float(judged["likelihood"].sum()) / count - math.log(unit)
    return {
        "nll": -likelihood,
        "log_likelihood": likelihood,
        "accuracy": float(judged["right"].sum()) / count,
        "rmse": unit * math.sqrt(float(judged["squares"].sum()) / count),
        "mae": unit * float(judged["absolutes"].sum()) / count,
        "events": events,
    }
