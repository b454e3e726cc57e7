"""Check an installed wheel: the kernels are there, and compute what PyTorch computes."""

import torch

import contiformer
from contiformer.machine import compiled_kernels
from contiformer.nn import ContinuousAttention

assert compiled_kernels(), "the wheel has no compiled kernels, or they were compiled from other sources"
# at a fixed degree: what is refined under degree="auto" differs between the two
attention, x, times = ContinuousAttention(16, 2, degree=7), torch.randn(2, 9, 16), torch.rand(2, 9).sort().values
found = attention(x, times)
with contiformer.use_kernels(False):
    torch.testing.assert_close(found, attention(x, times), atol=1e-5, rtol=1e-4)
print(contiformer.__file__)
