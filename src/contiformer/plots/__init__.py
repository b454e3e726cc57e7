"""Pictures of trained models: what ``contiformer plot`` draws, the figures they are drawn on, and pages of reports."""

from contiformer.plots.figures import BLUE, GREEN, GREY, INK, ORANGE, new_figure, quiet, save
from contiformer.plots.page import (
    Bars,
    Block,
    Entry,
    Figures,
    Findings,
    Fold,
    Heading,
    Picture,
    Sheet,
    Words,
    page_to_html,
    sheet_to_html,
)

__all__ = ["BLUE", "GREEN", "GREY", "INK", "ORANGE", "new_figure", "quiet", "save"]
__all__ += ["Bars", "Block", "Entry", "Figures", "Findings", "Fold", "Heading", "Picture", "Sheet", "Words"]
__all__ += ["page_to_html", "sheet_to_html"]
