"""Completing an object that the native door has compiled and held: the second half of a compile step.

The native door (runtime/launcher/usdtbuild_cc.c) becomes this process when it has found a probe's name in an object:
`launcher.py --finish-step CODE RECEIVED HELD OBJECT [OPTIONS] -- COMPILER ARGS`. CODE is the compiler's exit code,
RECEIVED the number of a signal that came in the meantime or 0. The signals that end a step are
blocked when this begins.
"""

from __future__ import annotations

from ..compilers import CompilerLine, understand
from .complete import complete
from .settings import read_options
from .step import STEP_SIGNALS, Signals, find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` makes enums of the numbers


def finish(arguments: list[str]) -> int:
    """Carry out what the module's text says; return the exit code."""
    code, received, held, path, *own = arguments
    assembled = own[:1] == ["--assembler-step"]
    settings = read_options(own[assembled:])
    signals = Signals(int(received))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, STEP_SIGNALS)
    if int(code) and signals.left_behind(held):
        signals.die()
        return int(code)
    if assembled:
        settings.lto = "error"
        line, source = CompilerLine(settings.words), None
    else:
        line = understand(settings.words)
        source = next(source for source in line.sources if source.object == path)
    program = find_program(settings.words[0]) or settings.words[0]
    done = complete(settings, line, program, signals, held, path, source)
    signals.die()
    return int(code) if done else int(code) or 1
