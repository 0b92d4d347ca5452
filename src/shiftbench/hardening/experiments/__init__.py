"""Grids of recipes that end in a study: the variants are trained, evaluated and compared.

``base`` reads an experiment from its TOML file, ``run`` trains and evaluates, ``study`` computes what the papers asked,
``report`` makes tables of it. A protocol of a paper is a TOML file here, not code.
"""
