"""The report as one page: what it says (JSON), and the file or the live viewer that shows it."""
