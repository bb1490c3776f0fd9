"""``torq``: the command group.  Sub-commands are imported when they are called, so ``--help`` is quick."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from torq_byoc import __version__
from torq_byoc.cli.streams import accept_all_text, outlast_readers, output_problem, settle, unwritable
from torq_byoc.errors import CommandLineError, EnvironmentProblem, InternalError, TorqError, require_known

COMMANDS: dict[str, str] = {
    "bench": "NPU cycles, bytes and utilisation against the CPU baseline.",
    "check": "May this model be shipped: accuracy on the NPU, layer by layer.",
    "compile": "Compile an ONNX model into a .torq container.",
    "demo": "The whole path on the embedded model, in under a minute.",
    "doctor": "Check this machine: versions, compiler, reference kernels.",
    "inspect": "Layers, memory, disassembly of a .torq container.",
    "ops": "What maps to the NPU, what to the CPU, and why.",
    "quantize": "Quantize a float ONNX model into standard QDQ ONNX.",
    "run": "Run a .torq container on the simulator.",
    "tune": "Search for better schedules, and keep what is found.",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names.

        Raises:
            CommandLineError: there is no such command; names the nearest one.
        """
        name = args[0]
        if not name.startswith("-"):
            require_known(
                CommandLineError, "command", [name], sorted(COMMANDS), where="torq", otherwise="; see torq --help"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table above instead of importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torq")
@click.pass_context
def torq(context: click.Context) -> None:
    """Compiler and simulator for Torq-class NPUs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns every failure into one message and the exit code of the contract."""
    arguments = sys.argv[1:] if arguments is None else arguments
    outlast_readers()
    code = _run(arguments)
    settle()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    if sys.stdout is None:
        return _fail(unwritable("it is closed"), as_json=False)
    accept_all_text(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            result = torq.main(args=arguments, prog_name="torq", standalone_mode=False)
        if as_json and hasattr(result, "data"):
            _print_json(result.data)
        sys.stdout.flush()
        return getattr(result, "exit_code", result if isinstance(result, int) else 0)
    except InternalError as error:
        return _fail(_internal(error, arguments), as_json)
    except TorqError as error:
        return _fail(error, as_json)
    except click.ClickException as error:
        return _fail(_usage(error), as_json)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except MemoryError:
        problem = EnvironmentProblem("the machine has too little memory for this", remedy="use a smaller model")
        return _fail(problem, as_json)
    except OSError as error:
        return _fail(output_problem(error) or _internal(error, arguments), as_json)
    except Exception as error:  # noqa: BLE001 - the last line of defence: everything else is a defect of ours
        return _fail(_internal(error, arguments), as_json)


def _usage(error: click.ClickException) -> CommandLineError:
    """A complaint of click in our form."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "torq"
    return CommandLineError(error.format_message(), where=command, remedy=f"see {command} --help")


def _internal(error: Exception, arguments: list[str]) -> InternalError:
    """A defect of ours as an error that names the repro bundle it wrote."""
    from torq_byoc.cli.repro import write_bundle

    command, trace = " ".join(["torq", *arguments]), traceback.format_exc()
    known = error if isinstance(error, InternalError) else None
    details = dict(known.details) if known else {}
    try:
        remedy = f"report it with {write_bundle(arguments, trace)}"
    except OSError as problem:
        remedy = f"report it with the command and the model; no bundle could be written: {problem.strerror}"
        details["trace"] = trace
    return InternalError(
        known.what if known else f"internal error: {type(error).__name__}: {error}",
        where=known.where or command if known else command,
        why=known.why if known else "",
        remedy=remedy,
        details=details,
    )


def _print_json(data: Mapping[str, Any]) -> None:
    click.echo(json.dumps(data, indent=2, sort_keys=True, allow_nan=False))


def _fail(error: TorqError, as_json: bool) -> int:
    """Tell of a failure where it is looked for; where that cannot be written, tell that on stderr."""
    try:
        if as_json:
            click.echo(json.dumps(error.to_json(), indent=2, default=str))
            return error.exit_code
    except OSError as problem:
        error = output_problem(problem) or error
    with contextlib.suppress(OSError):
        click.echo(f"error: {error.render()}", err=True)
    return error.exit_code
