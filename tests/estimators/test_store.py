"""Saving and loading of estimators, other formats, damaged folders, the hub."""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file

from contiformer import Classifier, Interpolator, Regressor
from contiformer.data import DataError
from contiformer.estimators import Estimator
from tests.estimators.problems import TINY, numbers

FILES = {"README.md", "config.json", "metrics.json", "model.safetensors"}


@pytest.fixture
def saved(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["classifier", "regressor", "interpolator"])
def test_loaded_models_give_the_same_answers(request, X, tmp_path, kind):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "deep" / "model")
    loaded = type(model).load(tmp_path / "deep" / "model", device="cpu")
    if kind == "interpolator":
        for a, b in zip(
            model.predict(X, at=[1.0, 30.0], return_std=True),
            loaded.predict(X, at=[1.0, 30.0], return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(np.stack(a), np.stack(b))
    else:
        np.testing.assert_array_equal(model.predict(X), loaded.predict(X))
    assert loaded.get_params() == model.get_params()
    assert loaded.metrics_ == model.metrics_
    assert loaded.schema_ == model.schema_
    assert type(Estimator.load(tmp_path / "deep" / "model")) is type(model)


def test_saved_folder_holds_no_pickles(saved, classifier):
    assert {path.name for path in saved.iterdir()} == FILES
    config = json.loads((saved / "config.json").read_text())
    assert config["format"] == 7
    assert config["estimator"] == "Classifier"
    assert json.loads((saved / "metrics.json").read_text())["validation"] == classifier.metrics_["validation"]
    assert all(name.startswith("member0.") for name in load_file(saved / "model.safetensors"))
    card = (saved / "README.md").read_text()
    for word in ("library_name: contiformer", "| channels | channel_0, channel_1 |", "| classes | a, b |", "accuracy"):
        assert word in card


def test_parameters_of_numpy_types_and_class_weights_are_restored(X, tmp_path):
    model = Classifier.from_options(class_weight={0: 1.0, 1: 2.0}, members=2, **{**TINY, "d_model": np.int64(8)})
    model.fit(X, [0, 1] * 6).save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.class_weight == {0: 1.0, 1: 2.0}
    assert loaded.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.fit(X, [0, 1] * 6).predict_proba(X), model.predict_proba(X))


def test_frame_size_is_restored(X, tmp_path):
    model = Regressor.from_options(frames=(1, 2), **TINY).fit(X, numbers(X))
    model.save(tmp_path)
    np.testing.assert_array_equal(Regressor.load(tmp_path).predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "there is no such folder"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: there is no such file"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: the configuration is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json: the configuration is damaged"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{"), "config.json"),
        (lambda folder: (folder / "metrics.json").write_text("{"), "the model is damaged"),
        (lambda folder: _cut(folder / "model.safetensors", 100), "the model is damaged"),
        (lambda folder: _cut(folder / "model.safetensors", 3), "the model is damaged"),
        (lambda folder: _set(folder, "format", 8), "in format 8, this version reads 7; upgrade contiformer"),
        (lambda folder: _set(folder, "format", 4), "in format 4, this version reads 7; train it again"),
        (lambda folder: _set(folder, "format", "7"), "in format 7"),
        (lambda folder: _set(folder, "estimator", "Oracle"), "a Oracle is saved here; upgrade"),
        (lambda folder: _set(folder, "members", 2), "the model is damaged"),
        (lambda folder: _set(folder, "members", "x"), "the model is damaged"),
        (lambda folder: _set(folder, "model", {}), "the model is damaged"),
        (lambda folder: _set(folder, "schema", None), "the model is damaged"),
        (lambda folder: _set(folder, "scaling", {}), "not a saved scaling"),
        (lambda folder: _set(folder, "parameters", 3), "the model is damaged"),
    ],
)
def test_damaged_folders_are_refused(saved, damage, message):
    damage(saved)
    with pytest.raises(DataError, match=message) as caught:
        Classifier.load(saved)
    assert "\n" not in str(caught.value)


def _cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def _set(folder, key, value):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))


def test_wrong_class_and_unknown_device_are_refused(saved):
    with pytest.raises(DataError, match=r"a Classifier is saved here; load it with Classifier\.load"):
        Interpolator.load(saved)
    with pytest.raises(ValueError, match="device must be one that this machine has, got 'warp'"):
        Classifier.load(saved, device="warp")


def test_saving_twice_replaces_the_folder(saved, classifier, X):
    classifier.save(saved)
    assert {path.name for path in saved.iterdir()} == FILES
    np.testing.assert_array_equal(Classifier.load(saved).predict(X), classifier.predict(X))


def test_a_finished_run_is_not_trained_again(X, y, tmp_path, classifier):
    first = Classifier.from_options(run_dir=tmp_path / "run", **TINY).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), classifier.predict_proba(X))
    assert {path.name for path in (tmp_path / "run").iterdir()} > FILES
    assert first.outcomes_[0].resumed == 0
    again = Classifier.from_options(run_dir=str(tmp_path / "run"), **TINY).fit(X, y)
    assert again.outcomes_[0].resumed == len(first.history_)
    assert again.history_ == first.history_
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))
    with pytest.raises(DataError, match=r"learning_rate 0\.004 instead of 0\.1"):
        Classifier.from_options(run_dir=tmp_path / "run", **{**TINY, "learning_rate": 0.1}).fit(X, y)
    loaded = Classifier.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict_proba(X), first.predict_proba(X))


def test_hub_without_huggingface_hub_says_what_to_install(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for ask in (classifier.push_to_hub, Classifier.from_pretrained):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'contiformer\[hub\]'"):
            ask("me/model")


def test_push_to_and_load_from_the_hub(classifier, X, tmp_path, monkeypatch):
    calls = []

    def upload_folder(repo_id, folder_path, **options):
        calls.append(("upload", repo_id, options))
        shutil.copytree(folder_path, tmp_path / repo_id)
        return "done"

    def snapshot_download(repo_id, allow_patterns, **options):
        calls.append(("download", repo_id, sorted(allow_patterns), options))
        return str(tmp_path / repo_id)

    fake = SimpleNamespace(
        create_repo=lambda repo_id, **options: calls.append(("create", repo_id, options)),
        upload_folder=upload_folder,
        snapshot_download=snapshot_download,
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    assert classifier.push_to_hub("me/model", private=True, commit_message="first") == "done"
    loaded = Classifier.from_pretrained("me/model", revision="main")
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))
    assert calls == [
        ("create", "me/model", {"exist_ok": True, "private": True}),
        ("upload", "me/model", {"commit_message": "first"}),
        ("download", "me/model", ["config.json", "metrics.json", "model.safetensors"], {"revision": "main"}),
    ]
