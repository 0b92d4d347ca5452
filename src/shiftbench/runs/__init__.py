"""Runs: plan which results (classifier x setting) a suite asks for, compute the missing ones block by block, and read
the stored predictions back as results.

``plan`` and ``compute`` hold the steps, ``execute`` puts them together, ``results`` is what comes out. This package
knows data, models, settings, metrics and the store. Tables, figures and pages belong to ``reports``, and nothing here
depends on them, on the public functions of ``api`` or on the command line.
"""
