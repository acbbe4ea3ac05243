"""`make demo`: build sample_projects/cmake-hello with CMake and watch its probes fire, each step shown as a command.

As root bpftrace does the watching; as a user gdb, which stops at each probe and is slow, but shows the same probes and
arguments. Every line that starts with `$` can be repeated by hand. Not a test: tests/projects checks the same sample.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = Path("sample_projects/cmake-hello")
BUILD = Path("build/demo")
TOOLS = Path(sys.executable).parent  # .venv/bin
SEARCH = os.pathsep.join((str(TOOLS), os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
PROGRAM = [f"./{BUILD}/hello", "Ada", "Grace", "Barbara"]
# What each probe says: binary, provider:probe, and a format with what stands in it ("s" for a string).
PROBES = (
    ("hello", "hello:start", "start        people=%d first=%s", "ds"),
    ("hello", "hello:greet__begin", "greet-begin  name=%s", "s"),
    ("hello", "hello:greet__done", "greet-done   name=%s number=%d length=%lu", "sdd"),
    ("libjournal.so", "journal:append", "append       line=%s lines=%d", "sd"),
    ("hello", "hello:finish", "finish       greetings=%d characters=%lu", "dd"),
)
EXPECTED = ("start        people=3 first=Ada", "greet-done   name=Grace number=2 length=13")


def main() -> int:
    """Run the demonstration; return 0 if probes were seen firing."""
    os.chdir(ROOT)
    os.environ["PATH"] = SEARCH
    usdtbuild = str(TOOLS / "usdtbuild")
    say("1. Build the sample with CMake. Its CMakeLists.txt has one line for each provider file and each target.")
    package = subprocess.run([usdtbuild, "--cmake-dir"], capture_output=True, text=True, check=True).stdout.strip()
    shutil.rmtree(BUILD, ignore_errors=True)
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=SEARCH) else []
    show("cmake", "-S", SAMPLE, "-B", BUILD, *generator, f"-DUSDTBuild_DIR={package}", quiet=True)
    show("cmake", "--build", BUILD)

    say("2. What a tracer can see in it, and whether all is well.")
    show(usdtbuild, "list", BUILD / "hello", BUILD / "libjournal.so")
    show(usdtbuild, "verify", BUILD / "hello", BUILD / "libjournal.so")

    say("3. The probes fire, with their arguments.")
    fired = watch_with_bpftrace() if os.geteuid() == 0 else watch_with_gdb()
    if not fired:
        return 1
    say("What next")
    print(f"  Look at {SAMPLE}/CMakeLists.txt, hello.d and greeting.c, or copy the folder: it is a template.")
    print("  docs/cmake.md goes from a project of your own to its first hit; docs/index.md lists everything else.")
    return 0


def watch_with_bpftrace() -> bool:
    """Attach bpftrace to every probe of the sample, run it, and show what bpftrace printed."""
    if not shutil.which("bpftrace", path=SEARCH):
        print("bpftrace is missing, so gdb does it.")
        return watch_with_gdb()
    print("bpftrace comes first and attaches to the files, which takes it a second or two; then the program runs.")
    script = ""
    for binary, probe, text, kinds in PROBES:
        arguments = ", ".join(f"str(arg{i})" if kind == "s" else f"arg{i}" for i, kind in enumerate(kinds))
        script += f'usdt:./{BUILD}/{binary}:{probe} {{ printf("{text}\\n", {arguments}); }}\n'
    print(f"$ {shlex.join(['bpftrace', '-e', script])}\n$ {shlex.join(PROGRAM)}", flush=True)
    return judge("bpftrace", *run_under_bpftrace(script))


def run_under_bpftrace(script: str) -> tuple[str, str]:
    """Attach to the files, run the program, and return what the tracer printed on stdout and stderr.

    Not with `bpftrace -c`, which looks for probes in the new process, where the shared library isn't loaded yet.
    """
    # The interval is attached last: its first tick says that the probes are in place, and the last but one that what
    # they said has been printed.
    command = ["bpftrace", "-q", "-B", "none", "-e", script + 'interval:ms:100 { printf("tick\\n"); }']
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdout is not None
        seen, ticks = "", 0
        for line in tracer.stdout:
            if line == "tick\n":
                ticks += 1
                if ticks == 1:
                    subprocess.run(PROGRAM, stdin=subprocess.DEVNULL, check=True)
                elif ticks == 4:
                    break
            else:
                seen += line
        tracer.terminate()
        return seen, tracer.communicate()[1]


def watch_with_gdb() -> bool:
    """The same with gdb, which needs no rights over other people's processes."""
    if not shutil.which("gdb", path=SEARCH):
        print("There is no gdb here: install it to see the probes fire without being root.", file=sys.stderr)
        return False
    print("Without root gdb does the watching. As root, bpftrace and perf see the same probes a hundred times cheaper,")
    print("in processes that run already, and in all processes at once: try `sudo make demo`.")
    lines = ["set debuginfod enabled off", "set startup-with-shell off", "set breakpoint pending on"]
    for _, probe, text, kinds in PROBES:
        arguments = ", ".join(f"{'(char *)' * (kind == 's')}$_probe_arg{i}" for i, kind in enumerate(kinds))
        lines += [f"break -probe-stap {probe}", "commands", "silent", f'printf "{text}\\n", {arguments}']
        lines += ["continue", "end"]
    script = BUILD / "probes.gdb"
    script.write_text("\n".join([*lines, "run"]) + "\n")
    command = ["gdb", "-q", "-batch", "-nx", "-x", str(script), "--args", *PROGRAM]
    print(f"$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    return judge("gdb", done.stdout, done.stderr)


def judge(tracer: str, output: str, errors: str) -> bool:
    """Show what a tracer said, and tell whether it saw what it had to see."""
    for line in output.splitlines():
        if line and not line.startswith(("Breakpoint ", "[", "Using host libthread_db")):
            print(f"  {line}")
    if all(line in output for line in EXPECTED):
        return True
    print(errors, file=sys.stderr)
    print(f"{tracer} did not see the probes fire.", file=sys.stderr)
    return False


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}", flush=True)


def show(*words: object, quiet: bool = False) -> None:
    """Print a command, then run it; `quiet` shows its output only if it fails."""
    command = [str(word) for word in words]
    shown = ["usdtbuild" if word == str(TOOLS / "usdtbuild") else word for word in command]
    print(f"$ {shlex.join(shown)}", flush=True)
    done = subprocess.run(command, capture_output=quiet, text=True, check=False)
    if done.returncode != 0:
        print((done.stdout or "") + (done.stderr or ""), file=sys.stderr)
        raise SystemExit(f"The command failed with exit code {done.returncode}.")


if __name__ == "__main__":
    sys.exit(main())
