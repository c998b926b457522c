"""A result as a page to show to a colleague."""

from urna.report.page import page

__all__ = ["page"]
