"""The queue of a model: one inference at a time, requests with the same question in one batch; and their warnings."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from contiformer.serving.errors import ServingError
from contiformer.serving.limits import Limits
from contiformer.serving.metrics import Metrics

T = TypeVar("T")
#: Answers of a job, one for each of its items, and the warnings that came with them.
Answered = tuple[list[Any], list[str]]
_CALLS = threading.local()


@dataclass(eq=False)
class _Job:
    answer: Callable[[list[Any]], list[Any]]
    items: list[Any]
    #: Jobs with equal keys are put together; None: with no other.
    key: Any
    done: asyncio.Future[Answered] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class InferenceQueue:
    """Runs inference in a thread of its own, so that the server goes on answering.

    While a batch is computed, new requests wait; those that ask the same go into the next batch together. Nobody waits
    for others to come.

    Args:
        name: of the model.
        limits: of waiting requests, of series in a batch, and of time.
        metrics: that are counted.
    """

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name, self.limits, self.metrics = name, limits, metrics
        self._waiting: deque[_Job] = deque()
        self._working: asyncio.Task[None] | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"inference-{name}")

    def __len__(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """A call that is put together with no other, in its turn.

        Raises:
            ServingError: 503 where too many wait, 504 after the deadline.
        """
        answers, _ = await self._submit(lambda items: [function(*items)], list(arguments), None)
        found: T = answers[0]
        return found

    async def ask(self, key: Any, items: Sequence[Any], answer: Callable[[list[Any]], list[Any]]) -> Answered:
        """An answer for each item, and warnings.

        Args:
            key: of the question; items of other requests with an equal key may be answered in the same call.
            items: series, with everything that differs between them.
            answer: a function from any items to their answers.

        Raises:
            ServingError: 503 where too many wait, 504 after the deadline.
        """
        return await self._submit(answer, list(items), key)

    async def _submit(self, answer: Callable[[list[Any]], list[Any]], items: list[Any], key: Any) -> Answered:
        if len(self._waiting) >= self.limits.queue:
            raise ServingError(503, f"{len(self._waiting)} requests are waiting for this model", retry_after=1)
        job = _Job(answer, items, key)
        self._waiting.append(job)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())
        try:
            return await asyncio.wait_for(job.done, self.limits.deadline)
        except TimeoutError:
            raise ServingError(
                504, f"no answer within {self.limits.deadline:g} seconds: send fewer series or times"
            ) from None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._next_batch()
            if not batch:
                continue
            self.metrics.batches.observe(sum(len(job.items) for job in batch), model=self.name)
            results = await loop.run_in_executor(self._executor, partial(_answer_all, batch))
            for job, result in zip(batch, results, strict=True):
                if job.done.done():
                    continue
                if isinstance(result, BaseException):
                    job.done.set_exception(result)
                else:
                    job.done.set_result(result)

    def _next_batch(self) -> list[_Job]:
        """The first job that somebody still waits for, and others with its key as long as they fit."""
        batch: list[_Job] = []
        others: deque[_Job] = deque()
        size = 0
        while self._waiting:
            job = self._waiting.popleft()
            if job.done.done():
                continue
            fits = size + len(job.items) <= self.limits.batch
            if not batch or (job.key is not None and job.key == batch[0].key and fits):
                batch.append(job)
                size += len(job.items)
            else:
                others.append(job)
        self._waiting = others
        return batch

    def close(self) -> None:
        """End the thread when it has nothing more to do."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _answer_all(batch: list[_Job]) -> list[Answered | BaseException]:
    """For each job its answers or its error; where a batch fails or warns, every job is answered by itself."""
    if len(batch) == 1:
        return [_answer_one(batch[0])]
    items = [item for job in batch for item in job.items]
    try:
        with collected() as warned:
            answers = batch[0].answer(items)
    except Exception:
        return [_answer_one(job) for job in batch]
    if warned:
        return [_answer_one(job) for job in batch]
    parts: list[Answered | BaseException] = []
    start = 0
    for job in batch:
        parts.append((answers[start : start + len(job.items)], []))
        start += len(job.items)
    return parts


def _answer_one(job: _Job) -> Answered | BaseException:
    try:
        with collected() as warned:
            return job.answer(job.items), warned
    except BaseException as error:
        # also a panic of a compiled library: it belongs to this request, not to the thread
        return error


@contextmanager
def collected() -> Iterator[list[str]]:
    """The warnings of this thread within the block, in one line each, where :func:`collecting` is on."""
    outer = getattr(_CALLS, "texts", None)
    texts: list[str] = []
    _CALLS.texts = texts
    try:
        yield texts
    finally:
        _CALLS.texts = outer


@contextmanager
def collecting() -> Iterator[None]:
    """Give warnings to the call that they come from, and print none: they may hold data."""

    def keep(message: Warning | str, *_: Any, **__: Any) -> None:
        texts = getattr(_CALLS, "texts", None)
        text = " ".join(str(message).split())
        if texts is not None and text not in texts:
            texts.append(text)

    with warnings.catch_warnings():
        # every time, not once: another client has not seen it
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = keep
        yield
