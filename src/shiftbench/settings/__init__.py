"""Settings and suites: what is evaluated under which name, against which reference."""
