"""Compilers, exporters and function transforms, for attention, a layer and a whole model with a fixed degree."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.func import functional_call, vmap

from contiformer import ContiFormer
from contiformer.nn import ContinuousAttention
from contiformer.nn.layer import ContiFormerLayer
from tests.problems import largest

pytestmark = [
    # tracing the tracers makes them several times slower
    pytest.mark.no_cover,
    pytest.mark.no_array_checks,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
WIDTH, HEADS = 8, 2
OPTIONS = [{}, {"causal": True}, {"interpolation": "cubic"}, {"rule": "gauss"}]
#: Tracing takes seconds each.
SOME = [("attention", {}), ("attention", {"interpolation": "cubic"}), ("layer", {"causal": True}), ("model", {})]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(map(str, o.values())) or "default")
SEQUENCES = {0: Dim("batch"), 1: Dim("observations", min=3)}
QUERIES = {0: Dim("batch"), 1: Dim("queries")}


class Model(torch.nn.Module):
    """The model with positional arguments only."""

    def __init__(self, **options):
        super().__init__()
        self.model = ContiFormer(WIDTH, WIDTH, HEADS, n_layers=2, **options)

    def forward(self, x, times, queries=None, mask=None):
        observed = None if mask is None else mask[..., None].expand_as(x)
        return self.model(x, times, observed, queries)


def make(kind, **options):
    torch.manual_seed(0)
    options = {"degree": 7} | options
    if kind == "model":
        return Model(**options).eval()
    return {"attention": ContinuousAttention, "layer": ContiFormerLayer}[kind](WIDTH, HEADS, **options).eval()


every_kind = pytest.mark.parametrize("kind", ["attention", "layer", "model"])


def inputs(batch, obs, queries):
    torch.manual_seed(batch)
    times = torch.rand(batch, obs).sort().values
    return torch.randn(batch, obs, WIDTH), times, torch.rand(batch, queries), torch.rand(batch, obs) < 0.8


@pytest.mark.parametrize(("kind", "options"), SOME, ids=str)
def test_compiled_without_graph_breaks(kind, options):
    module = make(kind, **options)
    given = inputs(3, 6, 4) if kind != "attention" else inputs(3, 6, 4)[:2]
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, expected = (
        (out, *torch.autograd.grad(out.sin().sum(), list(module.parameters())))
        for out in (compiled(*given), module(*given))
    )
    for one, other in zip(found, expected, strict=True):
        assert largest(one - other) < 1e-4 * (1 + largest(other))


@pytest.mark.parametrize(("kind", "options"), SOME, ids=str)
def test_exported_with_dynamic_shapes(kind, options):
    module = make(kind, **options)
    shapes = (SEQUENCES, SEQUENCES, QUERIES, SEQUENCES)
    exported = torch.export.export(module, inputs(3, 6, 4), dynamic_shapes=shapes).module()
    for sizes in ((3, 6, 4), (2, 11, 7)):
        given = inputs(*sizes)
        assert largest(exported(*given) - module(*given)) < 1e-5


@pytest.mark.parametrize(
    ("kind", "options"),
    [("attention", {}), ("model", {}), pytest.param("layer", {"causal": True}, marks=pytest.mark.slow)],
)
def test_onnx_file_gives_the_same_answers(kind, options, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    module = make(kind, **options)
    shapes = (SEQUENCES, SEQUENCES, QUERIES, SEQUENCES)
    program = torch.onnx.export(module, inputs(3, 6, 4), dynamo=True, dynamic_shapes=shapes, optimize=False)
    program.save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    given = inputs(2, 11, 7)
    names = [entry.name for entry in session.get_inputs()]
    (found,) = session.run(None, {name: part.numpy() for name, part in zip(names, given, strict=True)})
    assert largest(torch.tensor(found) - module(*given)) < 1e-5


@every_option
@every_kind
def test_vmap_over_sequences(kind, options):
    module = make(kind, **options)
    given = inputs(3, 6, 4)
    found = vmap(lambda *parts: module(*(part[None] for part in parts))[0])(*given)
    assert largest(found - module(*given)) < 1e-5


@every_kind
def test_vmap_over_parameters(kind):
    modules = [make(kind), make(kind)]
    with torch.no_grad():
        for parameter in modules[1].parameters():
            parameter.mul_(0.5)
    states = [dict(module.named_parameters()) for module in modules]
    stacked = {name: torch.stack([state[name] for state in states]).detach() for name in states[0]}
    given = inputs(3, 6, 4)
    found = vmap(lambda state: functional_call(modules[0], state, given))(stacked)
    assert largest(found - torch.stack([module(*given) for module in modules])) < 1e-5


def fake_device():
    """CUDA; or, where PyTorch was built without it and cannot even slice a fake tensor there, meta."""
    try:
        torch.empty(2, device="cuda")[1:]
    except RuntimeError:
        return "meta"
    return "cuda"


@every_option
@every_kind
def test_runs_on_a_fake_accelerator(kind, options):
    """No value is read back to the host, and no tensor made on it."""
    module = make(kind, **options)
    shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
    given = inputs(3, 6, 4)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        device = fake_device()
        state = {name: torch.empty(shape, device=device) for name, shape in shapes.items()}
        fakes = [torch.empty(part.shape, dtype=part.dtype, device=device) for part in given]
        out = functional_call(module, state, tuple(fakes))
    assert out.device.type == device
    assert out.shape == (3, 4, WIDTH)


@pytest.mark.parametrize("causal", [False, True])
def test_automatic_degree_is_fixed_while_compiling(causal):
    module = make("attention", degree="auto", causal=causal)
    given = inputs(3, 6, 4)
    torch._dynamo.reset()
    found = torch.compile(module, fullgraph=True, backend="aot_eager")(*given)
    assert largest(found - make("attention", degree=11 if causal else 7, causal=causal)(*given)) < 1e-5
