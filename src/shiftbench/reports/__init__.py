"""Scores for people and papers: terminal tables, Markdown, CSV, LaTeX, JSON."""

from shiftbench.reports.tables import ResultTable

__all__ = ["ResultTable"]
