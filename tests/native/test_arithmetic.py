"""exp and tanh of the kernels at the ends of the number range, and without undefined behaviour."""

import math
import os
import shutil
import subprocess

import pytest
import torch

from contiformer.native import library as native
from contiformer.native import sources
from contiformer.native.rivals.neural_cde import MatrixNetwork, driven
from contiformer.native.rivals.spectral_mixture import spectral_mixture
from contiformer.nn import kernel
from contiformer.nn.rules import AttentionRule

with_kernels = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

LARGE = [200.0, 1e30, 3e38, math.inf]
PROGRAM = """
#include <stdio.h>
#include "rivals/products.h"
int main(void) {
    for (float x; scanf("%f", &x) == 1;) printf("%.9g %.9g\\n", exp_bounded(x), tanh_fast(x));
}
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """Compute exp_bounded and tanh_fast of some numbers in a program that stops at undefined behaviour."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("program") / "program"
    flags = ["-w", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    command = [compiler, *flags, f"-I{sources._FOLDER}", "-x", "c", "-", "-o", str(program), "-lm"]
    if subprocess.run(command, input="int main(void) { return 0; }", text=True, check=False).returncode:
        pytest.skip("the C compiler has no sanitizer for undefined behaviour")
    subprocess.run(command, input=PROGRAM, text=True, check=True)

    def compute(numbers):
        given = "\n".join(map(str, numbers))
        done = subprocess.run([program], input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return torch.tensor([list(map(float, line.split())) for line in done.stdout.splitlines()])

    return compute


def test_exp_and_tanh_are_defined_everywhere(sanitized):
    numbers = torch.linspace(-80, 80, 1001)
    exp, tanh = sanitized(numbers.tolist()).unbind(1)
    assert torch.allclose(exp, numbers.exp(), rtol=5e-6, atol=0)
    assert torch.allclose(tanh, numbers.tanh(), rtol=1e-6, atol=0)
    exp, tanh = sanitized([*LARGE, *(-x for x in LARGE)]).unbind(1)
    # exp is asked for numbers of at most 85 only
    assert bool((exp[4:] < 1e-37).all() and (exp[4:] > 0).all())
    assert tanh.tolist() == [1.0] * 4 + [-1.0] * 4
    assert bool(sanitized([math.nan, -math.nan]).isnan().all())


def state_after(bias):
    """Coordinates after one unit of time along dx/dt = tanh(bias / 2), from zero."""
    width = len(bias)
    affine = torch.cat([torch.zeros(2, width + 1, width), bias.expand(2, 1, width) / 2], 1)
    edges, times = torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    numbers, rule, levels = [torch.zeros(1, 1, dtype=torch.int32)] * 4, AttentionRule(), (kernel.Level(2, 1.0),)
    points = kernel.Points(times, torch.zeros(1, 1, 2, width), *numbers, torch.ones(1, dtype=torch.long))
    problem = kernel._Problem(
        points, times, edges, None, torch.ones(1, dtype=torch.long), rule, 1, None, "tanh", levels, 0
    )
    (series, _), _, _ = kernel._solve(problem, [torch.zeros(1, 1, width)] * 2 + [affine, None], keep=False)
    return series.sum(-2).flatten()


@with_kernels
def test_fields_saturate():
    bias = torch.tensor([*LARGE, *(-x for x in LARGE)])
    assert torch.allclose(state_after(bias), bias.sign())


@with_kernels
def test_fields_keep_nan():
    bias = torch.zeros(8)
    bias[2] = math.nan
    assert bool(state_after(bias)[2].isnan())


@with_kernels
@pytest.mark.parametrize(("bias", "slope"), [*((x, 1.0) for x in LARGE), *((-x, -1.0) for x in LARGE)])
def test_driven_states_saturate(bias, slope):
    network = MatrixNetwork((torch.zeros(8, 8),), (torch.full((8,), bias),), 1)
    states = driven(torch.zeros(1, 8), torch.ones(1, 3, 3, 1), torch.tensor([3]), network)
    assert torch.allclose(states[0, :, 0], slope * torch.arange(4.0))


@with_kernels
def test_driven_states_keep_nan():
    bias = torch.zeros(8)
    bias[2] = math.nan
    states = driven(
        torch.zeros(1, 8), torch.ones(1, 1, 3, 1), torch.tensor([1]), MatrixNetwork((torch.eye(8),), (bias,), 1)
    )
    assert bool(states[0, 1, 2].isnan())


@with_kernels
def test_spectral_mixture_with_no_second_times():
    points = torch.rand(2, 3, 4, 5, requires_grad=True)
    matrix = spectral_mixture(torch.rand(2, 5), torch.rand(2, 0), points, torch.rand(2, 3, 4, 0))
    assert matrix.shape == (2, 5, 0)
    (gradient,) = torch.autograd.grad(matrix.sum(), points)
    assert torch.equal(gradient, torch.zeros_like(points))
