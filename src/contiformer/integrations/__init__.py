"""Trained estimators in other systems: files for other runtimes."""
