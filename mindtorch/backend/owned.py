"""Files whose content is run (compiled kernels, pickles): only what nobody else could have written is used.

A file counts as this user's if it belongs to the user or to root and no other may write to it; so does its folder.  Who may write
to a folder above could exchange everything below it, so those have to be closed to others as well, or sticky as /tmp is.  What belongs to
whom is read off the path without symbolic links, and that path is used from there on.
"""
from __future__ import annotations

import os
import stat
from os import PathLike

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Foreign(PermissionError):
    """A file or folder that somebody else can write to."""


def _private_group(gid):
    """Whether a group holds this user alone, as a user's own group does where the umask is 002."""
    import grp
    import pwd
    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == me.pw_name and gid == me.pw_gid and set(group.gr_mem) <= {me.pw_name}


def _open_to(status):
    """Who else may write there, or None."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and not _private_group(status.st_gid):
        return f"group {status.st_gid}"
    return None


def _check_owner(path, status):
    if status.st_uid not in (0, os.geteuid()):
        raise Foreign(f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}")


def folder(path: str | PathLike[str], parents: bool = True, mode: int = 0o755) -> str:
    """The path of a folder of this user's without symbolic links; made if need be, never for others to write to, whatever the umask.

    A folder of the user's own that was open to others is closed.  Foreign if it is somebody else's or, with `parents`, if others can
    exchange it; OSError if it cannot be made.
    """
    path = os.path.realpath(os.path.expanduser(os.fspath(path)))
    missing, top = [], path
    while not os.path.lexists(top):
        missing.append(top)
        top = os.path.dirname(top)
    for name in reversed(missing):
        try:
            os.mkdir(name, mode if name == path else 0o755)
        except FileExistsError:
            pass        # another process was faster
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is no folder")
    _check_owner(path, status)
    who = _open_to(status)
    if who is not None:
        if status.st_uid != os.geteuid():
            raise Foreign(f"{who} may write to {path}")
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)
    below, above = path, os.path.dirname(path)
    while parents and above != below:
        status = os.stat(above)
        who = None if status.st_mode & stat.S_ISVTX else _open_to(status)
        if who is not None:
            raise Foreign(f"{who} may write to {above}, and so exchange {path}")
        below, above = above, os.path.dirname(above)
    return path


def read(path: str) -> bytes:
    """The bytes of a file of this user's; Foreign if somebody else could have written it, or it is no plain file."""
    f = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
    with open(f, "rb") as file:
        check(path, os.fstat(f))
        return file.read()


def check(path: str, status: os.stat_result | None = None) -> None:
    """Foreign if somebody else could have written a file, or if it is no plain file."""
    status = os.lstat(path) if status is None else status
    if not stat.S_ISREG(status.st_mode):
        raise Foreign(f"{path} is no plain file")
    _check_owner(path, status)
    who = _open_to(status)
    if who is not None:
        raise Foreign(f"{who} may write to {path}")


def write(path: str, data: bytes) -> None:
    """Writes a file whole: who reads it sees all of it or what was there before. It is never for others to write to."""
    part = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as f:
            f.write(data)
        os.replace(part, path)
    except BaseException:
        if os.path.lexists(part):
            os.unlink(part)
        raise
