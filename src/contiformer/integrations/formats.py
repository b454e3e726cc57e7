"""File formats of exported graphs, ONNX and PyTorch's own pt2: from a traced graph to a file, and to a function."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, ClassVar, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

#: The key of the description in ``metadata_props`` of ONNX, and the extra file of pt2 that holds it.
ONNX_KEY, PT2_FILE = "contiformer", "contiformer.json"
#: Doublings in a running maximum: series of up to 2^16 points.
_DOUBLINGS = 16

Arrays = Mapping[str, NDArray[Any]]
Runner = Callable[[Arrays], dict[str, NDArray[Any]]]


class _Extreme(NamedTuple):
    """Like the result of ``cummax``; nothing in a graph asks for the indices."""

    values: Tensor


def _running(pick: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], _Extreme]:
    def running(x: Tensor, dim: int) -> _Extreme:
        """Running maximum or minimum, by doubling how far each entry looks back."""
        place = torch.arange(x.shape[dim], device=x.device)
        for power in range(_DOUBLINGS):
            x = pick(x, x.index_select(dim, (place - 2**power).clamp(min=0)))
        return _Extreme(x)

    return running


def _search(known: Tensor, asked: Tensor, *, right: bool = False) -> Tensor:
    """The number of sorted numbers before each number, by comparisons."""
    known, asked = known.unsqueeze(-2), asked.unsqueeze(-1)
    return (known <= asked if right else known < asked).sum(-1)


class PlainOperators(TorchFunctionMode):
    """Replaces operators that ONNX does not have by others while a graph is traced."""

    replaced: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.Tensor.cummax: _running(torch.maximum),
        torch.Tensor.cummin: _running(torch.minimum),
        torch.searchsorted: _search,
    }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator or what stands for it."""
        return self.replaced.get(func, func)(*args, **(kwargs or {}))


def trace(
    graph: nn.Module, example: Mapping[str, Tensor], shapes: Mapping[str, Any], mode: AbstractContextManager[Any]
) -> Any:
    """The graph as :func:`torch.export.export` sees it, with free dimensions."""
    with _quiet(), torch.no_grad(), mode:
        return torch.export.export(graph, (), dict(example), dynamic_shapes=dict(shapes), strict=False)


class Pt2:
    """``torch.export.save`` and ``torch.export.load``."""

    def tracing(self) -> AbstractContextManager[Any]:
        """Nothing is replaced."""
        return nullcontext()

    def convert(self, traced: Any, outputs: tuple[str, ...]) -> Any:
        """The traced program itself, without the places in the source that made it."""
        for node in traced.graph.nodes:
            for name in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):
                node.meta.pop(name, None)
        return traced

    def write(self, program: Any, metadata: Mapping[str, Any]) -> bytes:
        """A pt2 archive with the description as an extra file."""
        buffer = io.BytesIO()
        with _quiet():
            torch.export.save(program, buffer, extra_files={PT2_FILE: json.dumps(metadata, indent=1)})
        return buffer.getvalue()

    def run(self, contents: bytes) -> Runner:
        """Through ``torch.export.load``."""
        with _quiet():
            module = torch.export.load(io.BytesIO(contents)).module()

        def answer(given: Arrays) -> dict[str, NDArray[Any]]:
            with torch.no_grad():
                said = module(**{name: torch.from_numpy(x) for name, x in given.items()})
            return {name: x.numpy() for name, x in said.items()}

        return answer


class Onnx:
    """``torch.onnx.export`` and onnxruntime."""

    def __init__(self) -> None:
        try:
            import onnx  # noqa: F401, PLC0415
            import onnxruntime  # noqa: F401, PLC0415
            import onnxscript  # noqa: F401, PLC0415
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"export to ONNX needs {error.name}, which is an extra: pip install 'contiformer[export]' "
                "(export to .pt2 needs none)"
            ) from None

    def tracing(self) -> AbstractContextManager[Any]:
        """Operators that ONNX has."""
        return PlainOperators()

    def convert(self, traced: Any, outputs: tuple[str, ...]) -> Any:
        """An ONNX program, with the names of the outputs."""
        with _quiet(), torch.no_grad():
            # onnxruntime optimises a graph when it loads it
            program = torch.onnx.export(traced, dynamo=True, optimize=False, verbose=False)
        assert program is not None
        graph = program.model.graph
        for node in graph:
            node.metadata_props.clear()
        for value in (value for node in graph for value in node.outputs):
            value.metadata_props.clear()
            if value.name in outputs:
                # an operator of that name, such as the mean
                value.name = f"inner_{value.name}"
        for value, name in zip(graph.outputs, outputs, strict=True):
            value.name = name
        return program

    def write(self, program: Any, metadata: Mapping[str, Any]) -> bytes:
        """The model with the description under its key in ``metadata_props``."""
        model = program.model
        model.producer_name, model.producer_version = "contiformer", str(metadata["contiformer"])
        model.metadata_props[ONNX_KEY] = json.dumps({**metadata, "opset": model.opset_imports.get("")})
        return program.model_proto.SerializeToString()

    def run(self, contents: bytes) -> Runner:
        """Through onnxruntime on the CPU."""
        import onnxruntime  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])
        names = [entry.name for entry in session.get_outputs()]

        def answer(given: Arrays) -> dict[str, NDArray[Any]]:
            return dict(zip(names, session.run(None, dict(given)), strict=True))

        return answer


FORMATS: dict[str, type[Onnx] | type[Pt2]] = {"onnx": Onnx, "pt2": Pt2}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the remarks of the exporters, which print whole graphs for their developers."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
