"""Data: what the models are trained and judged on."""
