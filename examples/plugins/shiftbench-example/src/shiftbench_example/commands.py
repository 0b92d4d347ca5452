"""The table of commands. `shiftbench --help` reads it, so this module imports nothing."""

COMMANDS = {"raw": ("shiftbench_example.raw_commands:app", "Inspect raw files.")}
