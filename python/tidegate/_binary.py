"""Finds the program that this package installed."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


class BinaryNotFoundError(FileNotFoundError):
    """There is no `tidegate` program on this machine."""


def find_binary() -> Path:
    """Return the path of the `tidegate` program.

    `TIDEGATE_BIN` comes first, then the scripts folder of this Python environment, the user's
    scripts folder, the folder beside a `pip install --target`, and `PATH`.
    """
    named = os.environ.get("TIDEGATE_BIN")
    if named:
        return Path(named)
    name = "tidegate" + (sysconfig.get_config_var("EXE") or "")
    user_scheme = (
        sysconfig.get_preferred_scheme("user")
        if sys.version_info >= (3, 10)
        else (f"{os.name}_user")
    )
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=user_scheme),
        str(Path(__file__).parent.parent / "bin"),
    ]
    for folder in folders:
        candidate = Path(folder) / name
        if candidate.is_file():
            return candidate
    found = shutil.which(name)
    if found:
        return Path(found)
    raise BinaryNotFoundError(
        "no tidegate program found: run `pip install tidegate`, or set TIDEGATE_BIN to its path"
    )
