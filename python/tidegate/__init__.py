"""Tidegate, an HTTP forward proxy that keeps a fleet of crawlers polite.

The package carries the program. `tidegate` on the command line and `python -m tidegate` run it.
"""

from tidegate._binary import BinaryNotFoundError, find_binary

__all__ = ["BinaryNotFoundError", "find_binary"]
