"""What decided how a model was trained."""

from __future__ import annotations

from typing import Any

from contiformer.estimators.learner import Learner

#: Parameters that do not decide what is learned.
ELSEWHERE = ("run_dir", "verbose", "num_workers", "accelerator", "devices", "num_nodes")


def configuration(model: Learner) -> dict[str, Any]:
    """All parameters of a fitted model that decide what is learned, for JSON.

    Options of the backbone are those it was made with, which a task may choose where the user does not.
    """
    parameters = {**model.get_params(deep=False), "backbone_options": model.config_["backbone_options"]}
    return {name: value for name, value in parameters.items() if name not in ELSEWHERE}
