"""The `tenon` command: looks at operators and plugins, checks an installation, runs programs.

Programs start as soon as Python does: what other commands import is imported for them alone.
"""

from __future__ import annotations

import os
import sys


def command_conform(arguments: list[str]) -> int:
    """Becomes the program that came with the package, which reads its own arguments."""
    from tenon._plugin import native

    program = str(native.PACKAGE / "tenon-conform")
    try:
        os.execv(program, [program, *arguments])
    except OSError as err:
        print(f"tenon: {program} cannot be run: {err}; reinstall tenon", file=sys.stderr)
    return 2


def command_launch(words: list[str]) -> int:
    """Starts a program in several processes."""
    from tenon.distributed import run

    run.main(words, "tenon launch")
    return 0


def command_run(words: list[str]) -> int:
    """Runs a program, whose words are its own from the first on."""
    from tenon._command import run

    if not words:
        raise SystemExit("tenon run: which program? tenon run FILE | -m MODULE | -c TEXT | -")
    program, *args = words
    module, text = program == "-m", program == "-c"
    if module or text:
        if not args:
            raise SystemExit(f"tenon run: {program} needs an argument")
        program, *args = args
    run.run(program, args, module, text)
    return 0


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    first, words = arguments[:1], arguments[1:]
    if first == ["conform"]:
        return command_conform(words)
    if first == ["launch"]:
        return command_launch(words)
    if first == ["run"] and words[:1] not in (["-h"], ["--help"]):
        return command_run(words)
    from tenon._command import commands

    return commands.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
