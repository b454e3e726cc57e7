"""Experiments: every table and figure of the paper, each with its recipe and the paper's numbers beside ours."""
