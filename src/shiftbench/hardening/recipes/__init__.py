"""Recipes of the papers, as TOML files."""
