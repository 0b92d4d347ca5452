"""Grids of recipes that end in a study: the variants are trained, evaluated and compared."""
