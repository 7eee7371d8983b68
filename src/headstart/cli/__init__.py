"""The ``headstart`` command: options, progress and output for what the library does.

No logic lives here; experiments are in :mod:`headstart.lab`, logs in :mod:`headstart.fleet`.
"""

from __future__ import annotations

import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:  # pragma: no cover - only without the extra
    sys.exit("The headstart command needs the lab extra: pip install 'headstart[lab]'")

import headstart
from headstart.cli import experiments, logs
from headstart.cli.check import check
from headstart.cli.screen import Interrupted, replace_unencodable
from headstart.errors import HeadstartError, visible

__all__ = ["app", "main"]

app = typer.Typer(
    name="headstart",
    help="Meta-learned contextual bandits: experiments, and priors from logs.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def show_version(value: bool) -> None:
    """Print the version and exit, if ``--version`` is given."""
    if value:
        print(f"headstart {headstart.__version__}")
        raise typer.Exit


VERSION = typer.Option(
    "--version", callback=show_version, is_eager=True, help="Show the version and exit."
)


@app.callback()
def common(version: Annotated[bool, VERSION] = False) -> None:
    """Options that precede a command."""


for command in (
    experiments.reproduce,
    experiments.compare,
    experiments.report,
    logs.fit,
    logs.evaluate,
    experiments.worlds,
    experiments.policies,
    check,
):
    app.command()(command)


def main() -> None:
    """Run the command; an error of the library prints one line and exits with 2."""
    replace_unencodable()
    try:
        code = app(standalone_mode=False)
    except HeadstartError as error:
        print(visible(f"headstart: {error}"), file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        sys.exit(f"headstart: {error.name} is missing: pip install 'headstart[lab]'")
    except Interrupted as stop:
        print(visible(f"headstart: interrupted; {stop}"), file=sys.stderr)
        sys.exit(130)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        # Typer vendors Click, whose error classes cannot be imported.
        if not hasattr(error, "show"):
            raise
        error.show()
        code = getattr(error, "exit_code", 2)
    if code == 130:
        print("headstart: interrupted; finished results are kept.", file=sys.stderr)
    sys.exit(code or 0)
