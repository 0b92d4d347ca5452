"""One file a change of the tables, in the order of their names."""
