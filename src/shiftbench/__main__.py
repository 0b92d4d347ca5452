"""``python -m shiftbench``, where the command is not on the path."""

from shiftbench.cli import main

if __name__ == "__main__":
    main()
