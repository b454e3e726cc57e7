"""Models of this format load and give the answers they gave when they were saved."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contiformer.estimators import Learner

SAVED = Path(__file__).parent / "saved"
AT = [1.0, 2.5]


def patients():
    return pd.read_csv(SAVED / "patients.csv")


def grid():
    return [
        (np.arange(float(len(values))), np.array(values)) for values in json.loads((SAVED / "grid.json").read_text())
    ]


def of_orders(model):
    orders = pd.read_csv(SAVED / "orders.csv")
    return model.log_likelihood(orders)[orders["user"].unique()]


ANSWERS = {
    "classifier": lambda model: model.predict_proba(patients()),
    "classifier-tst": lambda model: model.predict_proba(patients()),
    "regressor": lambda model: model.predict(patients()),
    "regressor-targets": lambda model: model.predict(patients(), at=AT)[["ph"]],
    "interpolator": lambda model: model.predict(patients(), at=AT)[["pulse", "ph"]],
    "forecaster": lambda model: model.predict(grid()),
    "forecaster-published": lambda model: model.predict(grid()),
    "events": of_orders,
    "events-rmtpp": of_orders,
    "events-thp": of_orders,
}


def test_every_saved_model_is_tested():
    assert {path.name for path in SAVED.iterdir() if path.is_dir()} == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_saved_models_give_the_same_answers(name):
    expected = json.loads((SAVED / name / "expected.json").read_text())
    if isinstance(expected, dict):
        expected = expected["log_likelihood"]
    model = Learner.load(SAVED / name)
    np.testing.assert_allclose(np.asarray(ANSWERS[name](model)), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_the_configuration_tells_all_training_options(tmp_path):
    Learner.load(SAVED / "classifier").save(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())["training_options"]
    assert told["learning_rate"] == 4e-3
    assert told["seed"] == 1
