"""Measurements of speed, memory and accuracy: ``python -m benchmarks``."""
