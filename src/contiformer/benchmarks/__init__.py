"""Measurements of speed and memory; the command ``contiformer bench`` runs them."""
