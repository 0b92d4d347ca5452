"""Scores for people and papers: tables, figures and the HTML report.

Modules here read stored results, ask the metrics and studies for numbers, and lay them out: ``table`` is the one kind
of table (terminal, Markdown, CSV, LaTeX, JSON), ``figures`` draws for papers, ``page`` writes the report. Nothing here
runs a model or decides how a number is computed; a number that a figure shows is also in a table.
"""
