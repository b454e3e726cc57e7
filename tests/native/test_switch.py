"""Switching the kernels on and off within one process."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from contiformer import use_kernels
from contiformer.native import library as native
from contiformer.native import made_for
from contiformer.native.dispatch import usable
from contiformer.nn import ContinuousAttention

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")


def on():
    answers = {made_for(torch.zeros(1)), usable(torch.zeros(1), torch.zeros(2)), made_for()}
    assert len(answers) == 1
    return answers.pop()


@pytest.fixture
def called(monkeypatch):
    """Names of all kernels that run."""
    names, compiled = [], native.kernels()

    class Counted:
        def __getattr__(self, name):
            names.append(name)
            return getattr(compiled, name)

    counted = Counted()
    monkeypatch.setattr(native, "kernels", lambda: counted)
    return names


def test_kernels_run_only_while_they_are_on(called):
    attention, x, times = ContinuousAttention(16, 2), torch.randn(2, 9, 16), torch.rand(2, 9).sort().values
    with use_kernels(False):
        expected = attention(x, times)
        assert called == []
    found = attention(x, times)
    assert called
    assert torch.allclose(found, expected, atol=1e-5)


def test_forward_pass_may_be_switched_apart_from_its_backward_pass():
    torch.manual_seed(0)
    attention, times = ContinuousAttention(16, 2, degree=7), torch.rand(2, 9).sort().values
    x = torch.randn(2, 9, 16, requires_grad=True)
    gradients = []
    for forward, backward in ((True, True), (True, False), (False, True)):
        with use_kernels(forward):
            total = attention(x, times).square().sum()
        with use_kernels(backward):
            gradients.append(torch.autograd.grad(total, x)[0])
    for other in gradients[1:]:
        assert torch.allclose(gradients[0], other, atol=1e-4, rtol=1e-4)


def test_call_switches_for_good():
    use_kernels(False)
    assert not on()
    use_kernels(True)
    assert on()


def test_nested_contexts_restore():
    with use_kernels(False):
        with use_kernels(True):
            assert on()
            with use_kernels(False):
                assert not on()
            assert on()
        assert not on()
    assert on()


def test_errors_restore():
    with pytest.raises(KeyError), use_kernels(False):
        raise KeyError
    assert on()


def test_decorated_functions_run_switched_every_time():
    @use_kernels(False)
    def inside(error):
        assert not on()
        if error:
            raise KeyError
        return "result"

    assert on()
    for _ in range(2):
        assert inside(error=False) == "result"
        assert on()
    with pytest.raises(KeyError):
        inside(error=True)
    assert on()


def test_environment_decides_whenever_nothing_was_chosen(monkeypatch):
    monkeypatch.setattr(use_kernels, "_chosen", None)
    monkeypatch.delenv("CONTIFORMER_NATIVE", raising=False)
    assert on()
    monkeypatch.setenv("CONTIFORMER_NATIVE", "0")
    assert not on()
    with use_kernels(True):
        assert on()
    assert not on()
    monkeypatch.setenv("CONTIFORMER_NATIVE", "1")
    assert on()


def test_all_threads_share_the_switch():
    with ThreadPoolExecutor(1) as pool, use_kernels(False):
        assert not pool.submit(on).result()


@pytest.mark.parametrize("wrong", [None, 0, "0", print])
@pytest.mark.no_array_checks
def test_other_arguments_are_rejected(wrong):
    with pytest.raises(TypeError, match="takes True or False"):
        use_kernels(wrong)
    assert on()


@pytest.mark.parametrize("tensor", [torch.zeros(1, dtype=torch.float64), torch.zeros(1, device="meta")])
def test_other_tensors_are_left_to_torch(tensor):
    assert not made_for(tensor)
    assert not made_for(torch.zeros(1), tensor)
