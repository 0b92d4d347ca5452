"""Frozen sets in the layouts that others read: class folders, WebDataset shards, Hugging Face tables."""
