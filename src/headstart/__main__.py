"""The command line, as ``python -m headstart``."""

from headstart.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
