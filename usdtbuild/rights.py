"""The rights that a command works with: whom root works for, and how rights are given up for good.

A trace has two processes. The worker keeps the right to trace. The front, and whatever else parses, formats or writes,
gives its rights up first (docs/security.md).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import pwd
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .errors import InputError, UsageError, reason
from .text import one_line

# <linux/prctl.h>, <linux/capability.h>
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 38, 47, 4
_CAPABILITY_VERSION = 0x20080522
# Numbers of users that nobody has: less than 2^31, and more than what systemd, containers and directory services hand
# out (https://systemd.io/UIDS-GIDS; sssd's end at 2,000,200,000). With its own number added, each process has one.
_ALONE = 0x7A00_0000
_CURE = "--user root keeps root's rights"


class User(NamedTuple):
    """Whose rights suffice."""

    uid: int
    gid: int
    name: str
    home: str

    def environment(self) -> dict[str, str]:
        """Return the variables that say whose a program is."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def become(self) -> None:
        """Let this process be the user's, with all groups of his. Raises OSError."""
        os.initgroups(self.name, self.gid)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


def chosen(name: str) -> User | None:
    """Return the user whose rights suffice: the one called `name`, else who has called sudo. Raises UsageError.

    None: nobody is known, or it is root, so rights stay as they are.
    """
    if os.geteuid():
        if name:
            raise UsageError("--user: only root can run as another user")
        return None
    sudo = os.environ.get("SUDO_UID", "")
    if not (name or sudo):
        return None
    number = name or sudo
    try:
        entry = pwd.getpwuid(int(number)) if number.isdecimal() else pwd.getpwnam(number)
    except (KeyError, OverflowError):
        raise UsageError(f"{'--user' if name else 'SUDO_UID'}: there is no user {one_line(number)}") from None
    return User(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir) if entry.pw_uid else None


def nobody(kept: Callable[[str], None] | None = None) -> User | None:
    """Return a user who has no rights, for root; None where he can't be one who runs us: `kept` is told why.

    He is in the group of `nobody`, and has no other processes than ours, so nobody else may slow these down. Where
    there are no numbers for that, in a container perhaps, he is `nobody`.
    """
    if os.geteuid():
        return None
    try:
        entry = pwd.getpwnam("nobody")
        user = User(_ALONE + os.getpid(), entry.pw_gid, entry.pw_name, entry.pw_dir)
        try:
            _check_reach(user)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            user = user._replace(uid=entry.pw_uid)
            _check_reach(user)
    except (KeyError, InputError, OSError) as error:
        if kept is not None:
            kept(f"{error.where} {error.what}" if isinstance(error, InputError) else str(error))
        return None
    return user


def least(name: str, kept: Callable[[str], None]) -> User | None:
    """Return the user whose rights suffice to read: who is `chosen`, else for root `nobody`. Raises UsageError."""
    user = chosen(name)
    return user if user is not None or name else nobody(kept)


def can_be_given_up(user: User | None) -> bool:
    """Whether this process has rights that `give_up` takes from it."""
    return user is not None or (os.geteuid() != 0 and bool(effective()))


def effective() -> int:
    """Return the capabilities of this process, a bit each."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return int(next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0"), 16)


def give_up(user: User | None, *, alone: bool = False) -> None:
    """Give up, for good, what `user` hasn't got: root's user and groups, all capabilities, and those that programs
    give. Without a user only capabilities of one who isn't root go. Raises InputError.

    `alone`: the user's other processes can't send this one signals, set its limits or trace it.
    """
    if not can_be_given_up(user):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if user is not None:
            _check_reach(user)
            os.setgroups([])
            os.setresgid(user.gid, user.gid, user.gid)
            _become(user.uid, _ALONE + os.getpid() if alone else user.uid)
        _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
        header, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
        _check(libc.capset(header, none))
    except OSError as error:
        why = f"{reason(error)}, which takes CAP_SETUID and CAP_SETGID"
        raise InputError("rights", f"can't be given up: {why}", _CURE) from None


def _become(uid: int, real: int) -> None:
    """Use files as one user does, and be another's, who may send signals: kill(2), prlimit(2). Raises OSError."""
    try:
        os.setresuid(real, uid, real)
    except OSError as error:
        if error.errno != errno.EINVAL or real == uid:
            raise
        os.setresuid(uid, uid, uid)  # a container that hasn't got this number


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _check_reach(user: User) -> None:
    """Raise InputError if the user can't read Python's files and ours, of which more are read later. Raises OSError."""
    folders = [path for path in (str(Path(__file__).parent), *sys.path) if os.path.exists(path)]  # noqa: PTH110
    if closed := _closed(user, tuple(folders)):
        raise InputError(closed, f"can't be read by the user {user.name}, and usdtbuild needs it", _CURE)


@functools.cache
def _closed(user: User, folders: tuple[str, ...]) -> str:
    """Return the first of some folders that a user can't read, or nothing. Raises OSError.

    A child looks. We keep our rights all the time: whatever interrupts us, as a thread's stop does, needs them.
    """
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        code = errno.EPERM
        try:
            os.setgroups([])
            os.setegid(user.gid)
            os.seteuid(user.uid)
            closed = (one for one in folders if not os.access(one, os.R_OK, effective_ids=True))
            os.write(sink, os.fsencode(next(closed, "")))
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    os.close(sink)
    try:
        with open(source, "rb") as file:  # noqa: PTH123 - a descriptor
            told = file.read()
    finally:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        code = max(code, errno.EPERM)
        raise OSError(code, os.strerror(code))
    return os.fsdecode(told)


def with_way_out(error: InputError) -> InputError:
    """Return an error of rights that were given up, with what keeps them."""
    if "permission denied" in error.what and not error.cure:
        return InputError(error.where, error.what, _CURE)
    return error
