"""Sampling strategies: which candidates make the test set, given what annotators said."""
