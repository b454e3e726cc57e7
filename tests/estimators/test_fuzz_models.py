"""A stranger's model folder gives a model or a DataError, in bounded time and memory, whatever is in it."""

import json
import random
import resource
import shutil
import time
import warnings
from contextlib import suppress
from copy import deepcopy

import numpy as np
import pytest
import torch

from contiformer.backbones import BACKBONES, make_backbone
from contiformer.data import DataError
from contiformer.estimators import Learner
from tests.estimators.test_saved_models import ANSWERS, SAVED

#: Values that a whole number, a name or a table may be replaced by.
HOSTILE = [
    0, -1, 1, 2, 3, 64, 1000, 65_537, 999_999, 10_000_000, 2**31, 2**63, 10**30, 10**400, -(10**18), 0.5, -0.5, 1e300,
    float("inf"), float("nan"), True, False, None, "", "x", "\x1b[2J\x1b]0;owned\x07", "../../etc/passwd",
    "contiformer", [], {}, [[]], [1, 2, 3], ["a"] * 1000, {"a": {"b": None}}, [None] * 5,
    {"pairs of key and value": [[[], 1]]},
]  # fmt: skip
SECONDS, BYTES = 20.0, 2**31


def mutated(tree, draw):
    """The tree with one value, somewhere, replaced, removed or doubled."""
    places = []

    def walk(node):
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            walk(node[key])

    walk(tree)
    node, key = draw.choice(places)
    kind = draw.random()
    if kind < 0.1:
        del node[key]
    elif kind < 0.2 and isinstance(node[key], list):
        node[key] = node[key] * 2
    elif kind < 0.3 and isinstance(node[key], int | float):
        node[key] = node[key] * draw.choice([-1, 2, 10, 1000, 10**7])
    else:
        node[key] = deepcopy(draw.choice(HOSTILE))
    return tree


def damage(folder, draw):
    """Change one file of the folder."""
    name = draw.choices(["config.json", "model.safetensors", "metrics.json"], [8, 3, 1])[0]
    path = folder / name
    if name.endswith(".json") and draw.random() < 0.85:
        tree = json.loads(path.read_text())
        for _ in range(draw.choice([1, 1, 2, 4])):
            tree = mutated(tree, draw) if tree else tree
        path.write_text(json.dumps(tree))
        return
    data = bytearray(path.read_bytes())
    if draw.random() < 0.2:
        del data[draw.randrange(len(data)) :]
    # the header of the weights is at the beginning
    reach = min(len(data), draw.choice([16, 400, 4000]))
    for _ in range(draw.choice([1, 3, 20]) if reach else 0):
        data[draw.randrange(reach)] = draw.randrange(256)
    path.write_bytes(bytes(data))


def attempt(folder, name):
    """Load and ask: the library's errors only, in bounded time and memory."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(DataError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Learner.load(folder)
        assert model.run_dir is None
        with suppress(DataError, ValueError, FloatingPointError), np.errstate(all="ignore"):
            ANSWERS[name](model)
    assert time.perf_counter() - began < SECONDS
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < BYTES


def fuzz(count, seed, tmp_path):
    draw = random.Random(seed)
    names = sorted(ANSWERS)
    for number in range(count):
        name = names[number % len(names)]
        folder = tmp_path / "model"
        shutil.copytree(SAVED / name, folder)
        if not (folder / "metrics.json").exists():
            (folder / "metrics.json").write_text('{"validation": {"loss": 1.0}, "epochs": [3]}')
        damage(folder, draw)
        try:
            attempt(folder, name)
        except BaseException:
            shutil.copytree(folder, tmp_path / f"failed-{seed}-{number}")
            raise
        shutil.rmtree(folder)


@pytest.mark.no_array_checks
def test_mutated_model_folders(tmp_path):
    fuzz(40, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.no_array_checks
def test_a_thousand_mutated_model_folders(tmp_path):
    fuzz(1000, 1, tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("model", "backbone_options", "n_layers"), 10_000_000, "n_layers is 10000000.0, too large"),
        (("model", "backbone_options", "n_layers"), 900_000, "far larger model than the weights"),
        (("model", "backbone_options", "d_model"), 100_000, "far larger model than the weights|has the shape"),
        (("model", "backbone_options", "d_model"), 64, "the weight .* has the shape .* the configuration needs"),
        (("model", "inputs", "window"), 10**6, "the model is damaged"),
        (("members",), 10**9, "members is 1000000000, and there are weights of 2"),
        (("schema", "channels"), [3, None], "schema.channels must be"),
        (("scaling", "mean"), ["a", "b"], "scaling.mean must be"),
        (("scaling", "std"), [float("nan"), 1.0], "scaling.std must be"),
        (("parameters", "d_model"), "x", "d_model must be a whole number"),
        (("parameters", "d_model"), 10**400, "parameters.d_model is beyond 1e300, too large"),
    ],
)  # fmt: skip
def test_sizes_and_types_are_compared_with_the_weights_before_a_model_is_built(place, value, message, tmp_path):
    shutil.copytree(SAVED / "classifier", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    node = config
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    path.write_text(json.dumps(config))
    began = time.perf_counter()
    with pytest.raises(DataError, match=message) as caught:
        Learner.load(tmp_path / "model")
    assert str(tmp_path) in str(caught.value)
    assert time.perf_counter() - began < 5


def test_paths_never_come_from_a_model_folder(tmp_path):
    shutil.copytree(SAVED / "classifier", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["parameters"]["run_dir"] = str(tmp_path / "elsewhere")
    path.write_text(json.dumps(config))
    model = Learner.load(tmp_path / "model")
    assert model.run_dir is None
    model.run_dir = tmp_path / "mine"
    model.save(tmp_path / "again")
    assert "run_dir" not in json.loads((tmp_path / "again" / "config.json").read_text())["parameters"]


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_have_the_same_weights_when_built_without_memory(name):
    options = {"history": 12, "horizon": 4} if BACKBONES[name].fixed_window else {}
    with torch.device("meta"):
        empty = make_backbone(name, 3, d_model=16, **options).state_dict()
    whole = make_backbone(name, 3, d_model=16, **options).state_dict()
    assert {key: x.shape for key, x in empty.items()} == {key: x.shape for key, x in whole.items()}
