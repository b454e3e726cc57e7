"""The queue of a model: batches, order, overload, deadlines, and requests that fail."""

import asyncio
import threading
import warnings

import httpx
import pytest

from contiformer.serving import Limits, create_app
from contiformer.serving.batching import InferenceQueue, collecting
from contiformer.serving.errors import ServingError
from contiformer.serving.metrics import Metrics
from tests.serving.conftest import URL
from tests.serving.problems import of


class Work:
    """Doubles numbers, in calls that are recorded; waits for ``go`` in the first one."""

    def __init__(self):
        self.calls, self.go, self.begun = [], threading.Event(), threading.Event()

    def __call__(self, items):
        self.calls.append(list(items))
        self.begun.set()
        assert self.go.wait(10)
        if "bad" in items:
            raise ValueError("bad item")
        if "odd" in items:
            warnings.warn("odd item", stacklevel=1)
        return [2 * item for item in items]


def queue(**limits):
    return InferenceQueue("m", Limits(**limits), Metrics())


async def behind_another(waiting, work, requests):
    """The outcome of requests that came while the first one was computed."""
    loop = asyncio.get_running_loop()
    first = loop.create_task(waiting.ask("other", [0], work))
    await asyncio.to_thread(work.begun.wait, 10)
    later = [loop.create_task(waiting.ask(key, items, work)) for key, items in requests]
    await asyncio.sleep(0)
    work.go.set()
    assert await first == ([0], [])
    return await asyncio.gather(*later, return_exceptions=True)


def test_waiting_requests_with_the_same_question_are_one_call():
    work, waiting = Work(), queue()
    requests = [("a", [1, 2]), ("b", [10]), ("a", [3]), ("a", [1])]
    found = asyncio.run(behind_another(waiting, work, requests))
    assert found == [([2, 4], []), ([20], []), ([6], []), ([2], [])]
    assert work.calls == [[0], [1, 2, 3, 1], [10]]
    assert 'contiformer_batch_series_count{model="m"} 3' in waiting.metrics.text()


def test_batches_have_a_largest_size():
    work = Work()
    found = asyncio.run(
        behind_another(queue(batch=3), work, [("a", [n, n]) for n in range(3)] + [("a", list(range(9)))])
    )
    assert [len(call) for call in work.calls] == [1, 2, 2, 2, 9]
    assert found[3] == ([2 * n for n in range(9)], [])


def test_a_bad_request_fails_alone():
    work = Work()
    found = asyncio.run(behind_another(queue(), work, [("a", [1]), ("a", ["bad"]), ("a", [3])]))
    assert found[0] == ([2], [])
    assert isinstance(found[1], ValueError)
    assert found[2] == ([6], [])


def test_warnings_go_to_the_request_that_caused_them():
    work = Work()
    with collecting():
        found = asyncio.run(behind_another(queue(), work, [("a", [1]), ("a", ["odd"]), ("a", [3])]))
    assert found == [([2], []), (["oddodd"], ["odd item"]), ([6], [])]


def test_too_many_waiting_requests_are_refused_at_once():
    work = Work()
    found = asyncio.run(behind_another(queue(queue=2), work, [("a", [n]) for n in range(4)]))
    assert found[:2] == [([0], []), ([2], [])]
    for error in found[2:]:
        assert isinstance(error, ServingError)
        assert (error.status, error.retry_after) == (503, 1)


def test_requests_after_their_deadline_are_given_up_and_not_computed():
    work, waiting = Work(), queue(deadline=0.05)

    async def late():
        tasks = [asyncio.create_task(waiting.ask(n, [n], work)) for n in range(3)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        work.go.set()
        # the next one comes through
        return found, await waiting.run(lambda: "done")

    found, after = asyncio.run(late())
    assert [error.status for error in found] == [504] * 3
    assert after == "done"
    assert work.calls == [[0]]


def test_calls_of_their_own_run_in_turn():
    waiting = queue()

    async def several():
        return await asyncio.gather(*(waiting.run(lambda n=n: (n, threading.current_thread().name)) for n in range(5)))

    found = asyncio.run(several())
    assert [n for n, _ in found] == list(range(5))
    assert len({name for _, name in found}) == 1


def test_panics_do_not_end_the_thread():
    waiting = queue()

    class Panic(BaseException):
        pass

    def panic():
        raise Panic

    async def both():
        with pytest.raises(Panic):
            await waiting.run(panic)
        return await waiting.run(lambda: 1)

    assert asyncio.run(both()) == 1


def test_concurrent_requests_get_the_answers_of_single_ones(runs, rows):
    """Ids collide, questions differ, and one request of the batch is bad: every answer is as if it came alone."""
    app = create_app(list(runs.values()))
    requests = []
    for n in range(24):
        one = [{**row, "who": "same"} for row in of(rows, who=f"p{n % 5}")]
        if n % 6 == 3:
            one[3]["x"] = 1e30
        path = ("/predict?model=curves", "/at?model=curves", "/predict?model=sizes")[n % 3]
        requests.append((path, {"records": one} | ({"at": [1.0, n / 10]} if path.startswith("/at") else {})))

    async def answered():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as client:
            alone = [await client.post(path, json=body) for path, body in requests]
            together = await asyncio.gather(*(client.post(path, json=body) for path, body in requests))
        return alone, together

    alone, together = asyncio.run(answered())
    assert {one.status_code for one in alone} == {200, 422}
    for one, other in zip(alone, together, strict=True):
        assert one.status_code == other.status_code
        if one.status_code == 200:
            assert flat(other.json()) == pytest.approx(flat(one.json()), rel=1e-5, abs=1e-6)
        else:
            assert one.json() == other.json()
    # fewer calls than requests: some were put together
    text = app.state.metrics.text()
    calls = sum(
        int(line.split()[-1]) for line in text.splitlines() if line.startswith("contiformer_batch_series_count")
    )
    assert calls < 2 * len(requests)


def flat(tree):
    if isinstance(tree, dict):
        return [x for name in sorted(tree) for x in flat(tree[name])]
    return [x for item in tree for x in flat(item)] if isinstance(tree, list) else [tree] if tree != str(tree) else []
