"""The workspace on disk: predictions, dataset records, provenance."""
