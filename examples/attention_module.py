"""Continuous-time attention as a PyTorch module, compiled and exported."""

import torch

from contiformer.nn import ContinuousAttention

attention = ContinuousAttention(32, 4, degree=7)
x, times, asked = torch.randn(8, 20, 32), torch.rand(8, 20).sort().values, torch.rand(8, 5)
print("at the observations", tuple(attention(x, times).shape))
print("at other times", tuple(attention(x, times, asked).shape))

program = torch.export.export(attention.eval(), (x, times, asked))
with torch.no_grad():
    difference = (program.module()(x, times, asked) - attention(x, times, asked)).abs().max()
print("largest difference of the exported graph", float(difference))
