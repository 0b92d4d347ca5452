"""The workspace on disk: predictions, data set records, provenance."""
