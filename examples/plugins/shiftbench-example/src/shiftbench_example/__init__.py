"""An example of a plug-in: a corruption, a metric, a kind of dataset and a command."""
