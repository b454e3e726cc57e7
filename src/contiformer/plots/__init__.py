"""Pictures of trained models: what ``contiformer plot`` draws, and the figures they are drawn on."""

from contiformer.plots.figures import BLUE, GREEN, GREY, INK, ORANGE, new_figure, quiet, save

__all__ = ["BLUE", "GREEN", "GREY", "INK", "ORANGE", "new_figure", "quiet", "save"]
