"""Imports pytest into a Python that was started without `site`, from the packages that it has.

Where the repository is installed among them, `site` would let its code in first.
"""

import site
import sys
from pathlib import Path

_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_OWN = Path(sys.executable).parents[1] / "lib" / _VERSION / "site-packages"
sys.path += [str(_OWN)] if _OWN.is_dir() else site.getsitepackages()

import pytest  # noqa: E402, F401
