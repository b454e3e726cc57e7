"""A trained estimator as a folder: safetensors, JSON and a model card."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from contiformer import __version__
from contiformer.data.conversion import plain
from contiformer.data.errors import DataError
from contiformer.data.files import read_text, write_atomically, write_text
from contiformer.estimators.input_checks import check_parameters
from contiformer.estimators.model_card import model_card
from contiformer.estimators.size_checks import (
    Sizes,
    check_arguments,
    check_fields,
    check_numbers,
    check_sizes,
    weight_sizes,
)
from contiformer.tasks.base import SeriesTask
from contiformer.training.options import TrainingOptions

if TYPE_CHECKING:
    from contiformer.estimators.learner import Learner

#: Of the folder; another one is refused.
FORMAT = 7
_PAIRS = "pairs of key and value"
#: Training options, which decide no size, and "training", which holds them.
OPTION_NAMES = {"training", *(field.name for field in fields(TrainingOptions))}


def save(estimator: Learner, folder: Path) -> None:
    """Write the folder; the configuration goes first and comes last, so that a folder with one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").unlink(missing_ok=True)
    tensors = {
        f"member{n}.{name}": x.detach().cpu().contiguous().clone()
        for n, task in enumerate(estimator.tasks_)
        for name, x in task.state_dict().items()
    }
    model = folder / "model.safetensors"
    try:
        with write_atomically(model) as partial:
            save_file(tensors, partial)
    except SafetensorError as error:
        raise OSError(f"{model} could not be written: {error}") from error
    write_text(folder / "metrics.json", json.dumps(estimator.metrics_, indent=1, default=plain))
    write_text(folder / "README.md", model_card(estimator))
    write_text(folder / "config.json", json.dumps(config_of(estimator), indent=1, default=plain))


def config_of(estimator: Learner) -> dict[str, Any]:
    """Everything but the weights."""
    return {
        "format": FORMAT,
        "contiformer": __version__,
        "estimator": type(estimator).__name__,
        "parameters": plain_parameters(estimator),
        # for the record: with the defaults of the version that trained
        "training_options": estimator.training_options().set_options(),
        **estimator._description(),
        "members": len(estimator.tasks_),
        "model": estimator.config_,
    }


def plain_parameters(estimator: Learner) -> dict[str, Any]:
    """The parameters for JSON."""
    given = estimator.get_params(deep=False)
    # a folder of this machine, which no other should write to
    given.pop("run_dir")
    return {name: _written(value) for name, value in given.items()}


def _written(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, TrainingOptions):
        return value.set_options()
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        # JSON would make words of them
        return {_PAIRS: [[plain(key), _written(item)] for key, item in value.items()]}
    return value


def _read_back(value: Any) -> Any:
    return dict(value[_PAIRS]) if isinstance(value, Mapping) and set(value) == {_PAIRS} else value


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a saved model, checked."""
    path = folder / "config.json"
    if not path.is_file():
        what = "there is no such folder" if not folder.is_dir() else "no model is saved here (there is no config.json)"
        raise DataError(what, file=folder, remedy="pass the folder that save() or `contiformer train` wrote")
    try:
        config = json.loads(read_text(path))
        version = config["format"]
        if not isinstance(config, Mapping):
            raise TypeError(f"it is a {type(config).__name__}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"the configuration is damaged ({type(error).__name__}: {error})",
            file=path,
            remedy="train or copy it again",
        ) from None
    if version != FORMAT or isinstance(version, bool):
        older = isinstance(version, int) and version < FORMAT
        raise DataError(
            f"the model was saved by contiformer {config.get('contiformer')!s:.40} in format {version!s:.40}, this "
            f"version reads {FORMAT}",
            file=path,
            remedy="train it again" if older else "upgrade contiformer",
        )
    return dict(config)


def load(folder: Path, kind: type[Learner], device: str) -> Learner:
    """Read the folder. ``kind`` may be the base class: any estimator then."""
    from contiformer.estimators import ESTIMATORS  # noqa: PLC0415

    place = _existing(device)
    config = read_config(folder)
    name = config.get("estimator")
    found = ESTIMATORS.get(str(name))
    if found is None or not issubclass(found, kind):
        remedy = "upgrade contiformer" if found is None and name != "Blend" else f"load it with {name}.load"
        raise DataError(f"a {name} is saved here", file=folder, remedy=remedy)
    path = folder / "model.safetensors"
    try:
        sizes = weight_sizes(path)
        estimator = _described(found, config, sizes)
        members = _by_member(sizes)
        if config["members"] != len(members):
            raise DataError(f"members is {config['members']!r:.40}, and there are weights of {len(members)}")
        for own in members:
            if own != members[0] or own is members[0]:
                empty = check_sizes(lambda: estimator._new_task(0), own)
                check_arguments(type(empty), config["model"]["task"], "model.task")
                if isinstance(empty, SeriesTask):
                    check_arguments(type(empty.backbone), config["model"]["backbone_options"], "model.backbone_options")
                    check_fields(empty.inputs.options, "model.inputs")
        for weights in _by_member(load_file(path)):
            task = estimator._new_task(0)
            task.load_state_dict(weights)
            task.eval()
            estimator.tasks_.append(task.to(place))
        estimator.metrics_ = _read_metrics(folder / "metrics.json")
        estimator._after_loading()
    except DataError as error:
        if error.file is not None:
            raise
        raise DataError(f"the model is damaged ({error})", file=folder, remedy="train or copy it again") from None
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy="copy the whole folder") from None
    except (
        SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        RuntimeError,
        AttributeError,
        AssertionError,
        MemoryError,
    ) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"the model is damaged ({first})", file=folder, remedy="train or copy it again") from None
    return estimator


def _described(kind: type[Learner], config: Mapping[str, Any], sizes: Sizes) -> Learner:
    """The estimator without its weights, its parameters and statistics checked. No path comes from the file."""
    known = {name.removeprefix("training__") for name in kind().get_params()} - {"run_dir"}
    own = {name: _read_back(x) for name, x in config["parameters"].items() if name in known}
    check_numbers({name: x for name, x in own.items() if name not in OPTION_NAMES}, sizes, "parameters")
    check_numbers(config["model"], sizes, "model")
    estimator = kind.from_options(**own)
    check_parameters(estimator)
    estimator._forget()
    estimator._describe_again(config)
    for name, thing in vars(estimator).items():
        if name.endswith("_") and is_dataclass(thing):
            check_fields(thing, name.rstrip("_"))
    estimator.config_ = config["model"]
    return estimator


def _by_member(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of ``member0.``, ``member1.`` and so on, without the prefix."""
    found: dict[str, dict[str, Any]] = {}
    for name, x in named.items():
        member, _, inner = name.partition(".")
        found.setdefault(member, {})[inner] = x
    try:
        return [found.pop(f"member{n}") for n in range(len(found))]
    except KeyError as error:
        raise DataError(f"there are no weights of {error}, but of {next(iter(found))!r:.40}") from None


def _read_metrics(path: Path) -> dict[str, Any]:
    metrics = json.loads(read_text(path)) if path.is_file() else {}
    if not isinstance(metrics, dict):
        raise DataError("this is no table of metrics", file=path, remedy="remove it: the model can do without")
    return metrics


def _existing(device: str) -> torch.device:
    try:
        return torch.zeros(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"device must be one that this machine has, got {device!r} ({first})") from None


def push(estimator: Learner, repo_id: str, **options: Any) -> Any:
    """Upload what :func:`save` writes."""
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        save(estimator, Path(folder))
        hub.create_repo(repo_id, exist_ok=True, private=options.pop("private", None))
        return hub.upload_folder(repo_id=repo_id, folder_path=folder, **options)


def pull(repo_id: str, **options: Any) -> Path:
    """Download the three files of a model, and nothing else."""
    files = ["model.safetensors", "config.json", "metrics.json"]
    return Path(_hub().snapshot_download(repo_id, allow_patterns=files, **options))


def _hub() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the Hugging Face hub needs huggingface_hub, which is an extra: pip install 'contiformer[hub]'"
        ) from None
    return huggingface_hub
