"""Scores for people and papers: tables, figures and the HTML report."""
