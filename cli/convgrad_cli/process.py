"""What the process as a whole has to know: its exit statuses, and facts that decide among them."""

from __future__ import annotations

FAILED, USAGE = 1, 2
#: 128 and the number of the signal, as shells have it.
HUNG_UP, INTERRUPTED, BROKEN_PIPE, TERMINATED = 129, 130, 141, 143


class Process:
    """Facts that parts of the program tell `main`.

    Parameters
    ----------
    closed : names of standard streams that were not open

    Attributes
    ----------
    debug : bool
        Whether tracebacks are wanted.
    streams_array : bool
        Whether the array goes where a reader can leave before its end: then that is a failure.
    """

    def __init__(self, closed: frozenset[str] = frozenset()) -> None:
        self.closed = closed
        self.debug = False
        self.streams_array = False
