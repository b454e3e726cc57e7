"""Explanations of estimators on series: occlusion, integrated gradients, attention weights; and backbone states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from contiformer.data.batch import Batch
from contiformer.data.errors import did_you_mean
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.explanation import Explanation, Hidden, Method
from contiformer.estimators.tables import TABLES, ColumnRoles, Form, frame_functions, names_of, query_times
from contiformer.estimators.values import asking
from contiformer.nn.local_features import fill_channels
from contiformer.paths.quadrature import gauss_legendre
from contiformer.tasks.at_times import ValueTask
from contiformer.tasks.classification import Classification
from contiformer.tasks.pooling import Pooling
from contiformer.training.options import EVALUATION_BATCH

if TYPE_CHECKING:
    from contiformer.estimators.base import Estimator
    from contiformer.tasks.base import SeriesTask

#: Parts of a series that are hidden one at a time, at most.
MOST_PARTS = 512
#: Nodes of the integral over the path of integrated gradients, doubled until the sum is right to the tolerance.
NODES, MOST_NODES, TOLERANCE = 32, 512, 5e-4


@dataclass(frozen=True)
class Question:
    """The number that is explained.

    Attributes:
        answer: from a batch and the positions of its series to that number [B], differentiable.
        unit: of it.
        asked: the scaled series, with the query time as target where answers have one.
        targets: class or channel of each series.
        at: the query time of each series.
    """

    answer: Callable[[Batch, NDArray[np.int64]], Tensor]
    unit: str
    asked: SeriesSet
    targets: list[Any]
    at: list[float] | None = None


def check_method(method: str, hide: str) -> None:
    """Reject unknown names."""
    for name, value, known in (("method", method, get_args(Method)), ("hide", hide, get_args(Hidden))):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}; {did_you_mean(value, known)}")


def explain_series(
    estimator: Estimator,
    X: Any,
    method: Method,
    *,
    target: Any,
    at: Any,
    hide: Hidden,
    most_parts: int,
    member: int | None,
) -> Explanation:
    """See :meth:`contiformer.estimators.base.Estimator.explain`."""
    check_method(method, hide)
    if member is not None and not 0 <= member < len(estimator.tasks_):
        raise ValueError(f"member must be from 0 to {len(estimator.tasks_) - 1}, got {member}")
    if method == "attention":
        if target is not None:
            raise ValueError("attention weights do not depend on a target: leave target out, or use method='occlusion'")
        return _attention(estimator, X, at, member or 0)
    if most_parts < 1:
        raise ValueError(f"most_parts must be 1 or more, got {most_parts}")
    whole, _, form = estimator._read(X)
    bare = estimator._visible(whole)
    tasks = estimator.tasks_ if member is None else [estimator.tasks_[member]]
    question = _question(estimator, tasks, bare, form, target, at)
    work = _gradients if method == "gradients" else _occlusion
    return Explanation(
        method=method,
        unit=question.unit,
        targets=question.targets,
        at=question.at,
        **work(estimator, bare, question, hide, most_parts),
        **_shown(bare, form, estimator.columns_, X),
    )


def _shown(bare: SeriesSet, form: Form, columns: ColumnRoles, X: Any) -> dict[str, Any]:
    """The observations and the form of the tables, for an :class:`Explanation`."""
    id, time = columns.id if form in TABLES else columns.id or "id", columns.time or "time"
    return {
        "ids": names_of(bare),
        "points": [one.times for one in bare],
        "values": [one.values for one in bare],
        "channel_names": bare.channels,
        "channel_units": bare.schema.units,
        "dates": bare.schema.dates,
        "names": (id, time, "channel"),
        "frame": lambda table: as_frame(table, form, columns, time, bare.schema.kind, X),
    }


def as_frame(table: dict[str, Any], form: str, columns: ColumnRoles, time: str, kind: Any, X: Any) -> Any:
    """Columns as a DataFrame: of pandas where X was, with its types of ids and times; of polars otherwise."""
    frames = frame_functions()
    frame = frames.event_frame(table, (time,), kind)
    like = X if time in table and form in TABLES else None
    if form == "pandas":
        return frames.as_pandas(frame, columns, like)
    return frames.typed(frame, columns, like)


def _question(estimator: Any, tasks: list[Any], bare: SeriesSet, form: Form, target: Any, at: Any) -> Question:
    scaled = estimator.scaling_.apply(bare)
    if isinstance(tasks[0], ValueTask):
        name, k = one_of(estimator._outputs, target, "channel")
        times = estimator._explained_times(at, bare, form)
        asked = asking(bare, scaled, times, len(estimator._outputs), estimator.scaling_)
        zero = estimator._undo(np.zeros(len(estimator._outputs)))[k]
        unit = estimator._undo(np.ones(len(estimator._outputs)))[k] - zero

        def value(batch: Batch, _: NDArray[np.int64]) -> Tensor:
            said = [task.head.location(task(batch, batch.target_times))[:, 0, k] for task in tasks]
            return torch.stack(said).double().mean(0) * unit + zero

        return Question(value, f"predicted {name}", asked, [name] * len(bare), [float(one[0]) for one in times])
    if at is not None:
        raise ValueError("leave out at: this model gives one answer for each series")
    if estimator.task_name != "classification":
        if target is not None:
            raise ValueError("leave out target: this model predicts one number")
        label = estimator.columns_.label or "prediction"

        def number(batch: Batch, _: NDArray[np.int64]) -> Tensor:
            return torch.stack([task.values(batch) for task in tasks]).mean(0)

        return Question(number, f"predicted {label}", scaled, [label] * len(bare))
    classes = estimator.classes_.tolist()
    if target is None:
        chosen = estimator._probabilities(scaled).argmax(1) if len(scaled) else np.zeros(0, np.int64)
        unit = "log-odds of the predicted class"
    else:
        name, k = one_of(classes, target, "class")
        chosen, unit = np.full(len(bare), k), f"log-odds of {name!r}"

    def log_odds(batch: Batch, which: NDArray[np.int64]) -> Tensor:
        logs = [(task(batch) / task.temperature).double().log_softmax(-1) for task in tasks]
        # of the mean probability of the members; its factor 1 / members cancels
        log = torch.stack(logs).logsumexp(0)
        own = torch.as_tensor(chosen[which], device=log.device)[:, None]
        return log.gather(1, own).squeeze(1) - log.scatter(1, own, -torch.inf).logsumexp(1)

    return Question(log_odds, unit, scaled, [classes[k] for k in chosen])


def one_of(known: Any, target: Any, what: str) -> tuple[Any, int]:
    """The target and its number; without one, the only one there is."""
    names = list(known)
    if target is None and len(names) == 1:
        target = names[0]
    if target is None:
        raise ValueError(f"target must name the {what} to explain, one of {', '.join(map(str, names))}")
    # a table of true and false has them in lower case
    found = [
        n
        for n, name in enumerate(names)
        if name == target or str(name) == str(target) or (isinstance(name, bool) and str(name).lower() == target)
    ]
    if not found:
        raise ValueError(f"there is no {what} {target!r}; {did_you_mean(str(target), map(str, names))}")
    return names[found[0]], found[0]


# Occlusion


def parts_of(observed: Bool[np.ndarray, "points channels"], hide: Hidden, most: int) -> tuple[NDArray[np.int64], int]:
    """The number of the part that each observation is hidden with [N, C], -1 where there is none; and its size.

    A part is one observation (``hide="time"``: all channels at one time); where there are more than ``most``, as many
    consecutive observations of a channel (times) as make them that few.
    """
    if hide == "time":
        seen = observed.any(1)
        size = -(-int(seen.sum()) // most) or 1
        return np.where(observed, ((seen.cumsum() - 1) // size)[:, None], -1), size
    counts = observed.sum(0)
    size = int(counts.max(initial=1)) if hide == "channel" else 1
    while size < counts.max(initial=1) and (-(-counts // size)).sum() > max(most, (counts > 0).sum()):
        size += max(1, size // 8)
    within = (observed.cumsum(0) - 1) // max(size, 1)
    start = np.concatenate([[0], np.cumsum(-(-counts // max(size, 1)))[:-1]])
    return np.where(observed, start + within, -1), size


@torch.no_grad()
def _occlusion(
    estimator: Estimator, bare: SeriesSet, question: Question, hide: Hidden, most_parts: int
) -> dict[str, Any]:
    attributions, by_channel, ends, sizes, cost = [], [], [], [], 0
    channels = len(bare.channels)
    first = 0
    for batch in estimator._batches(question.asked):
        every = [parts_of(bare[first + n].observed, hide, most_parts) for n in range(len(batch))]
        for (part, size), said in zip(every, _hidden(estimator, question, batch, first, every), strict=True):
            own, less, lacking, nothing = said[0], said[1 : -1 - channels], said[-1 - channels : -1], said[-1]
            number = part.max(1, keepdims=True, initial=-1) if hide == "time" else part
            alike = np.bincount(number[number >= 0], minlength=len(less))
            # the last entry is for what was not observed
            attributions.append(np.append((own - less) / np.maximum(alike, 1), np.nan)[number])
            by_channel.append(own - lacking)
            ends.append((own, nothing))
            sizes.append(size)
            cost += len(said)
        first += len(batch)
    wide = [n for n, size in enumerate(sizes) if size > 1 and hide != "channel"]
    notes: tuple[str, ...] = ()
    if wide:
        what = "times" if hide == "time" else "observations of a channel"
        notes = (
            f"{len(wide)} of {len(bare)} series have more than {most_parts} parts, {names_of(bare)[wide[0]]} the first:"
            f" windows of up to {max(sizes)} consecutive {what} were hidden together and share the change equally",
        )
    return {
        "attributions": attributions,
        "channel_attributions": None if hide == "time" else np.array(by_channel).reshape(len(bare), channels),
        "answers": np.array([own for own, _ in ends]),
        "references": np.array([nothing for _, nothing in ends]),
        "evaluations": cost,
        "notes": notes,
    }


def _hidden(
    estimator: Estimator, question: Question, batch: Batch, first: int, every: list[tuple[NDArray[np.int64], int]]
) -> list[NDArray[np.float64]]:
    """The answers for copies of each series: as it is, without each part, without each channel, without everything."""
    channels = batch.values.shape[-1]
    parts = torch.full(batch.values.shape, -1)
    for n, (part, _) in enumerate(every):
        parts[n, : len(part)] = torch.as_tensor(part)
    count = parts.flatten(1).amax(1) + 1 if parts.numel() else torch.zeros(len(batch), dtype=torch.int64)
    copies_of = (count + channels + 2).tolist()
    series = torch.arange(len(batch)).repeat_interleave(torch.tensor(copies_of))
    number = torch.cat([torch.arange(n) for n in copies_of]) - 1
    capable = estimator._capabilities().missing
    said = []
    for some, k in zip(series.split(EVALUATION_BATCH), number[:, None, None].split(EVALUATION_BATCH), strict=True):
        copies, after = _copies(batch, some), k - count[some][:, None, None]
        left = (parts[some] != k) & (torch.arange(channels) != after) & (after != channels)
        left = copies.observed & left.to(copies.observed.device)
        # a backbone that has to see everything sees the line between the neighbours in place of what is hidden
        seen = copies.values if capable else fill_channels(copies.values, copies.times, left)
        kept = left if capable else copies.observed
        shown = replace(copies, values=torch.where(kept, seen, 0.0), observed=kept)
        said.append(question.answer(shown, first + some.numpy()).double().cpu())
    return np.split(torch.cat(said).numpy(), np.cumsum(copies_of)[:-1])


def _copies(batch: Batch, which: Int[Tensor, " copies"]) -> Batch:
    there = which.to(batch.times.device)
    ids = tuple(batch.ids[n] for n in which.tolist())
    return replace(batch._map(lambda tensor: tensor[there]), ids=ids)


# Integrated gradients


def _gradients(estimator: Estimator, bare: SeriesSet, question: Question, hide: Hidden, _: int) -> dict[str, Any]:
    if hide != "observation":
        raise ValueError(f"hide must be 'observation' for gradients, which hide nothing, got {hide!r}")
    if any(isinstance(task, Classification) and task.beside is not None for task in estimator.tasks_):
        raise ValueError("a model beside the network has no gradients: use method='occlusion', or beside=None")
    attributions: list[NDArray[np.float64]] = []
    answers, references, gaps, cost, first = [], [], [], 0, 0
    for batch in estimator._batches(question.asked):
        with torch.no_grad():
            rows = np.arange(first, first + len(batch))
            ends = [question.answer(replace(batch, values=batch.values * share), rows).double() for share in (1, 0)]
        total = torch.zeros_like(batch.values, dtype=torch.float64)
        open_, nodes = torch.arange(len(batch)), NODES
        gap = torch.zeros(len(batch), dtype=torch.float64)
        while len(open_):
            total[open_] = _path_integral(question, batch, first, open_, nodes)
            cost += nodes * len(open_)
            wanted = (ends[0] - ends[1]).cpu()
            gap = (total.sum((1, 2)).cpu() - wanted).abs()
            open_ = open_[(gap > TOLERANCE * wanted.abs().clamp(min=1))[open_]]
            nodes *= 2
            if nodes > MOST_NODES:
                break
        observed, lengths = batch.observed.cpu().numpy(), batch.lengths.tolist()
        filled = np.where(observed, total.cpu().numpy(), np.nan)
        attributions += [one[:count] for one, count in zip(filled, lengths, strict=True)]
        answers.append(ends[0].cpu().numpy())
        references.append(ends[1].cpu().numpy())
        gaps.append(gap.numpy())
        cost, first = cost + 2 * len(batch), first + len(batch)
    joined = [np.concatenate(part) if part else np.zeros(0) for part in (answers, references, gaps)]
    worst = float(joined[2].max(initial=0.0))
    scale = np.maximum(1, np.abs(joined[0] - joined[1]))
    note = f"attributions sum to the change of the answer up to {worst:.2g}: the answer is not smooth on the way"
    return {
        "attributions": attributions,
        "channel_attributions": np.array([np.nansum(one, 0) for one in attributions]).reshape(len(bare), -1),
        "answers": joined[0],
        "references": joined[1],
        "evaluations": cost,
        "notes": (note,) if bool((joined[2] > 2 * TOLERANCE * scale).any()) else (),
    }


def _path_integral(question: Question, batch: Batch, first: int, which: Int[Tensor, " some"], nodes: int) -> Tensor:
    """``x ∫_0^1 ∂f/∂x (s x) ds`` of some series: the baseline, the training means, is 0 in scaled values."""
    shares, weights = (torch.as_tensor(part) for part in gauss_legendre(nodes))
    series, at = which.repeat_interleave(nodes), torch.arange(nodes).repeat(len(which))
    place = torch.arange(len(which)).repeat_interleave(nodes)
    total = torch.zeros(len(which), *batch.values.shape[1:], dtype=torch.float64, device=batch.values.device)
    for rows in torch.arange(len(series)).split(EVALUATION_BATCH):
        copies = _copies(batch, series[rows])
        share = shares[at[rows]].to(copies.values)[:, None, None]
        values = (copies.values * share).requires_grad_()
        with torch.enable_grad():
            answer = question.answer(replace(copies, values=values), first + series[rows].numpy())
            if not answer.requires_grad:
                raise ValueError("this model has no gradients: use method='occlusion'")
            (slope,) = torch.autograd.grad(answer.sum(), values)
        weight = weights[at[rows]].to(total)[:, None, None]
        total.index_add_(0, place[rows].to(total.device), slope.double() * copies.values.double() * weight)
    return total


# Attention and states


@torch.no_grad()
def states(
    estimator: Estimator, X: Any, at: Any = None, member: int = 0
) -> tuple[list[NDArray[np.float32]], SeriesSet, list[NDArray[np.float64]], Form]:
    """States of a member's backbone [Q, d_model] of each series, with the series, the times and the form of X."""
    found: list[NDArray[np.float32]] = []
    task, asked, bare, times, form = _asked(estimator, X, at, member)
    for batch in estimator._batches(asked):
        assert batch.target_lengths is not None
        out = task.states(batch, batch.target_times).float().cpu().numpy()
        found += [one[:count] for one, count in zip(out, batch.target_lengths.tolist(), strict=True)]
    return found, bare, times, form


@torch.no_grad()
def _attention(estimator: Estimator, X: Any, at: Any, member: int) -> Explanation:
    """Attention weights of a member's backbone at the query times ``at``, by default the times of each series."""
    task, asked, bare, times, form = _asked(estimator, X, at, member)
    pooling = getattr(task.head, "pooling", None)
    weights, pooled = [], []
    for batch in estimator._batches(asked):
        assert batch.target_lengths is not None
        lengths, counts = batch.lengths.tolist(), batch.target_lengths.tolist()
        shown = task.inputs(batch)
        found = task.backbone.attention_weights(shown, batch.target_times)
        if found is None:
            problem = f"the backbone {estimator.config_['backbone']!r} has no continuous attention to explain"
            raise ValueError(f"{problem}: use method='occlusion' or 'gradients', or embed()")
        weights += [x[:, :q, :n] for x, q, n in zip(found.float().cpu().numpy(), counts, lengths, strict=True)]
        if isinstance(pooling, Pooling):
            shares = pooling.weights(task.backbone(shown), shown.observed.any(-1)).float().cpu().numpy()
            pooled += [one[:, :n] for one, n in zip(shares, lengths, strict=True)]
    return Explanation(
        method="attention",
        unit="attention weight",
        attributions=[one.mean((0, 1))[:, None] if one.size else np.zeros((one.shape[2], 1)) for one in weights],
        weights=weights,
        query_times=times,
        pooling=pooled if isinstance(pooling, Pooling) else None,
        evaluations=len(bare),
        **_shown(bare, form, estimator.columns_, X),
    )


def _asked(
    estimator: Estimator, X: Any, at: Any, member: int
) -> tuple[SeriesTask, Any, SeriesSet, list[NDArray[np.float64]], Form]:
    bare, scaled, form = estimator._read(X)
    if not 0 <= member < len(estimator.tasks_):
        raise ValueError(f"member must be from 0 to {len(estimator.tasks_) - 1}, got {member}")
    estimator._check_states()
    times = query_times(at, bare, form, estimator.columns_, estimator.schema_.kind)
    return estimator.tasks_[member], asking(bare, scaled, times, 1, estimator.scaling_), bare, times, form
