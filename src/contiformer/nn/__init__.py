"""Torch modules."""

from contiformer.nn.attention import ContinuousAttention
from contiformer.nn.fields import ConcatField, LinearField

__all__ = ["ConcatField", "ContinuousAttention", "LinearField"]
