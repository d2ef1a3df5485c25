"""Files whose content is executed (compiled kernels, pickles): only files that no other user could
have written are used.

A file counts as this user's if the user or root owns it and no one else may write to it; the same
holds for its directory. A user who may write to a parent directory could replace everything below
it, so parents must also be closed to others, or sticky like /tmp. Ownership is checked on the path
with symbolic links resolved, and that path is used from then on.
"""
from __future__ import annotations

import os
import stat
from os import PathLike

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class InsecurePathError(PermissionError):
    """A file or directory is writable by other users."""


def _private_group(gid):
    """True if a group contains only this user, like the per-user group of systems with umask 002.
    """
    import grp
    import pwd
    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == me.pw_name and gid == me.pw_gid and set(group.gr_mem) <= {me.pw_name}


def _open_to(status):
    """Describes which other users may write to a file; None if there are none."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and not _private_group(status.st_gid):
        return f"group {status.st_gid}"
    return None


def _check_owner(path, status):
    if status.st_uid not in (0, os.geteuid()):
        raise InsecurePathError(f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}")


def secure_dir(path: str | PathLike[str], parents: bool = True, mode: int = 0o755) -> str:
    """Returns the path, without symbolic links, of a directory that belongs to this user.

    Creates it if it does not exist, never writable by others, whatever the umask. A directory of
    the user that is open to others is closed. Foreign if it belongs to another user or, with
    `parents`, if others can replace it; OSError if it cannot be created.
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
            pass  # another process created it first
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is not a directory")
    _check_owner(path, status)
    who = _open_to(status)
    if who is not None:
        if status.st_uid != os.geteuid():
            raise InsecurePathError(f"{who} may write to {path}")
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)
    below, above = path, os.path.dirname(path)
    while parents and above != below:
        status = os.stat(above)
        who = None if status.st_mode & stat.S_ISVTX else _open_to(status)
        if who is not None:
            raise InsecurePathError(f"{who} may write to {above}, and could replace {path}")
        below, above = above, os.path.dirname(above)
    return path


def read(path: str) -> bytes:
    """Returns the bytes of a file of this user; Foreign if another user could have written it, or
    if it is not a regular file."""
    f = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
    with open(f, "rb") as file:
        check(path, os.fstat(f))
        return file.read()


def check(path: str, status: os.stat_result | None = None) -> None:
    """Raises Foreign if another user could have written a file, or if it is not a regular file."""
    status = os.lstat(path) if status is None else status
    if not stat.S_ISREG(status.st_mode):
        raise InsecurePathError(f"{path} is not a regular file")
    _check_owner(path, status)
    who = _open_to(status)
    if who is not None:
        raise InsecurePathError(f"{who} may write to {path}")


def write(path: str, data: bytes) -> None:
    """Writes a file atomically: a reader sees either the new or the previous content. The file is
    never writable by others."""
    part = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as f:
            f.write(data)
        os.replace(part, path)
    except BaseException:
        if os.path.lexists(part):
            os.unlink(part)
        raise
