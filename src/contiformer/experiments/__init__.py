"""Experiments: recipes on the models and the data."""
