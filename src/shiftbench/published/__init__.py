"""The papers' own numbers as data."""
