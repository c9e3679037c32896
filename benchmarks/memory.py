"""Keeps the host's memory from call to call."""

import ctypes
import platform


_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""Numbers of options in glibc's `malloc.h`."""


def keep_memory() -> bool:
    """Has this process keep the memory that it has once been given.

    glibc returns large buffers to the system when they are freed, and the next call
    gets pages that have to be filled with zeros first. In a training the buffers of one
    update serve the next, but a program that is called by itself asks for all of its
    buffers at every call. What is asked for here holds for everything in the process,
    and has to be said before the threads of JAX start.

    **Returns:**

    Whether it was done: `False` where the C library is not glibc, as on macOS and
    Windows, and where it refuses.
    """
    name, _ = platform.libc_ver()
    if name != "glibc":
        return False
    set_option = ctypes.CDLL(None).mallopt
    options = {
        # Large buffers come out of the heap, which is returned from its end alone,
        _MMAP_MAX: 0,
        # and not before so much of it is free.
        _TRIM_THRESHOLD: 2**31 - 1,
        # Other threads would have heaps of their own, which are returned earlier.
        _ARENA_MAX: 1,
    }
    return all([set_option(option, value) == 1 for option, value in options.items()])
