"""Compiled inner loops. Imported only when a corruption runs, so that the package itself stays light."""
