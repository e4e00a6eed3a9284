"""`python -m tidegate`: replaces this process by the program."""

import os
import sys

from tidegate import BinaryNotFoundError, find_binary


def main() -> None:
    """Replace this process by the program."""
    try:
        binary = find_binary()
    except BinaryNotFoundError as error:
        sys.exit(str(error))
    os.execv(binary, [str(binary), *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
