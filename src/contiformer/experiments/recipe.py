"""What decided how a model was trained."""

from __future__ import annotations

from typing import Any

from contiformer.estimators.learner import Learner

#: Parameters that do not decide what is learned.
ELSEWHERE = ("run_dir", "verbose", "num_workers", "accelerator", "devices", "num_nodes")


def configuration(model: Learner) -> dict[str, Any]:
    """All parameters that decide what is learned, for JSON."""
    parameters = model.get_params(deep=False)
    return {name: value for name, value in parameters.items() if name not in ELSEWHERE}
