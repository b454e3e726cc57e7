"""Mutated requests, the same ones in every run: never a 500, always JSON, and the server goes on."""

import json
import random

import pytest

from contiformer.serving.errors import Problem
from contiformer.serving.messages import AtAnswers, PredictAnswers
from tests.serving.problems import days, orders

#: Cells that have broken parsers before.
CELLS = (
    *(
        None,
        True,
        False,
        0,
        -0.0,
        1e-320,
        1e308,
        -1e308,
        2**63,
        -(2**63),
        10**30,
        0.1,
        "",
        " ",
        "0",
        "nan",
        "inf",
        "-1",
    ),
    *(
        "1e5",
        "2024-01-01",
        "2024-13-01",
        "24:00",
        "01:30",
        "9999-12-31T23:59:59Z",
        "0001-01-01",
        "\x00",
        "\ud800",
        "é" * 50,
    ),
    *(
        "a" * 5000,
        "<b>",
        "'; --",
        "=1+1",
        [],
        {},
        [[]],
        {"a": [1]},
        "NULL",
        "True",
        "\u0661",
        "1_000",
        "0x10",
        "\u202e",
    ),
)
KEYS = ("records", "at", "quantiles", "who", "t", "x", "<script>", "", "\x00", "id", "__proto__")


def mutated(draw, tree):
    """The tree with something in it replaced, removed or repeated."""
    if isinstance(tree, dict) and tree and draw.random() < 0.8:
        key = draw.choice(list(tree))
        what = draw.random()
        if what < 0.1:
            return {name: x for name, x in tree.items() if name != key}
        if what < 0.2:
            return {**tree, draw.choice(KEYS): draw.choice(CELLS)}
        return {**tree, key: mutated(draw, tree[key])}
    if isinstance(tree, list) and tree and draw.random() < 0.9:
        at = draw.randrange(len(tree))
        if draw.random() < 0.1:
            return [*tree, *tree[at:]]
        return [mutated(draw, item) if n == at else item for n, item in enumerate(tree)]
    return draw.choice(CELLS)


@pytest.mark.parametrize("model", ["classes", "sizes", "targets", "curves", "loads", "orders", "plain"])
def test_mutated_records(client, model, rows):
    draw = random.Random(f"fuzz {model}")
    good = {"orders": orders(2, 5), "loads": days(1, 16)}.get(model, rows[:12])
    at = {"loads": ["2024-01-01T16:00:00"], "orders": [60.0]}.get(model, [0.5, 3.0])
    statuses = set()
    for n in range(120):
        path, answers, body = "/predict", PredictAnswers, {"records": good}
        if n % 2:
            path, answers, body = "/at", AtAnswers, {"records": good, "at": at, "quantiles": None}
        for _ in range(draw.randint(1, 3)):
            body = mutated(draw, body)
        raw = json.dumps(body).encode()
        if draw.random() < 0.1:
            cut = draw.randrange(len(raw) + 1)
            raw = raw[:cut] + bytes(draw.randrange(256) for _ in range(draw.randint(0, 3))) + raw[cut + 1 :]
        found = client.post(path, params={"model": model}, content=raw, headers={"Content-Type": "application/json"})
        statuses.add(found.status_code)
        assert found.status_code in (200, 422), (raw, found.text)
        said = json.loads(found.text, parse_constant=pytest.fail)
        (answers if found.status_code == 200 else Problem).model_validate(said)
    assert statuses == {200, 422} or model == "plain"


@pytest.mark.parametrize("model", ["classes", "loads", "orders"])
def test_mutated_csv(client, model):
    draw = random.Random(f"csv {model}")
    rows = {
        "classes": "who,t,x,<script>\na,0,1,2\na,1.5,,3\nb,0,1,2\n",
        "loads": "meter,date,load\n" + "".join(f"1,2024-01-01T{n:02d}:00:00,{n}.5\n" for n in range(12)),
        "orders": "user,hour,action\na,0.5,buy\na,1.5,sell\n",
    }[model].encode()
    parts = [
        b",",
        b"\n",
        b'"',
        b"\r",
        b"\x00",
        b"\xff",
        b"nan",
        b"inf",
        b"1e999",
        b"#",
        b";",
        b"\xef\xbb\xbf",
        b"NA",
        b"-",
    ]
    for _ in range(150):
        body = bytearray(rows)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(body))
            body[at : at + draw.randint(0, 3)] = draw.choice(parts)
        found = client.post(
            "/predict", params={"model": model}, content=bytes(body), headers={"Content-Type": "text/csv"}
        )
        assert found.status_code in (200, 422), (bytes(body), found.text)


def test_mutated_streams(client):
    draw = random.Random(1)
    for n in range(150):
        body = mutated(draw, {"time": float(n), "type": "buy"})
        found = client.post(
            "/events/fuzz", json=None, content=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        assert found.status_code in (200, 422), (body, found.text)
        word = draw.choice([cell for cell in CELLS if isinstance(cell, str) and cell != "\ud800"])
        for path, name in (("/events/fuzz", "within"), ("/events/fuzz/intensity", "at")):
            assert client.get(path, params={name: word}).status_code in (200, 404, 422), word
