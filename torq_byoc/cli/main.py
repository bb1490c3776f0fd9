"""``torq``: the command group.  Sub-commands are imported when they are called, so ``--help`` is quick."""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module

import click

from torq_byoc.errors import InternalError, TorqError

COMMANDS: dict[str, str] = {
    "bench": "NPU cycles, bytes and utilisation against the CPU baseline.",
    "compile": "Compile an ONNX model into a .torq container.",
    "demo": "The whole path on the embedded model, in under a minute.",
    "doctor": "Check this machine: versions, compiler, reference kernels.",
    "inspect": "Layers, memory, disassembly of a .torq container.",
    "ops": "What maps to the NPU, what to the CPU, and why.",
    "run": "Run a .torq container on the simulator.",
}
"""Sub-commands (module ``torq_byoc.cli.<name>``) with the line that ``torq --help`` shows."""


class LazyGroup(click.Group):
    """Imports a sub-command's module only when it is invoked."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command object; its module must define ``command``."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"torq_byoc.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table above instead of importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torq-byoc", prog_name="torq")
def torq() -> None:
    """Compiler and simulator for Torq-class NPUs."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns every failure into one message and the exit code of the contract."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        result = torq.main(args=arguments, prog_name="torq", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except TorqError as error:
        return _fail(error, arguments)
    except click.ClickException as error:
        usage = TorqError(error.format_message(), where="command line", remedy="see torq COMMAND --help")
        return _fail(usage, arguments)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _fail(TorqError("the machine has too little memory for this", remedy="use a smaller model"), arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: everything else is a defect of ours
        return _fail(_internal(error, arguments), arguments)


def _internal(error: Exception, arguments: list[str]) -> InternalError:
    """An internal error that names the repro bundle it wrote."""
    from torq_byoc.cli.repro import write_bundle

    bundle = write_bundle(arguments, traceback.format_exc())
    return InternalError(
        f"internal error: {type(error).__name__}: {error}",
        where=" ".join(["torq", *arguments]),
        remedy=f"report it with {bundle}",
    )


def _fail(error: TorqError, arguments: list[str]) -> int:
    if "--json" in arguments:
        click.echo(json.dumps(error.to_json(), indent=2, default=str))
    else:
        click.echo(f"error: {error.render()}", err=True)
    return error.exit_code
