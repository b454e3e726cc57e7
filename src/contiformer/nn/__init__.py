"""Torch modules."""

from contiformer.nn.attention import ContinuousAttention
from contiformer.nn.clock import Clock, TimeEncoding
from contiformer.nn.fields import ConcatField, LinearField
from contiformer.nn.layer import ContiFormerLayer

__all__ = ["Clock", "ConcatField", "ContiFormerLayer", "ContinuousAttention", "LinearField", "TimeEncoding"]
