"""The Python environment that vLLM runs in, apart from ours; in a checkout it is `.venv-llm`."""

import subprocess
import sys
from pathlib import Path

from llm_servers.vllm_server import check_python
from rollyard.errors import LaunchError

ASK_SECONDS = 30.0
"""Time for the interpreter to answer: a fraction of a second, several on a busy machine."""

_CHECKOUT = Path(__file__).parent.parent
DEFAULT_LLM_PYTHON = (
    _CHECKOUT / ".venv-llm" / "bin" / "python"
    if (_CHECKOUT / "Makefile").exists()
    else Path(sys.executable)
)
"""The interpreter that `make environments` makes for vLLM; ours if there is no checkout."""
_WHERE = "from importlib.util import find_spec; print(find_spec('vllm').origin)"


def find_vllm(python: Path) -> str:
    """Path of the vLLM package of the interpreter `python`. Raises `LaunchError` if it has
    none."""
    fix = "make it with `make environments` in a checkout, or name another with --llm-python"
    try:
        check_python(python)
        answer = subprocess.run(
            [python, "-c", _WHERE], capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        )
    except (LaunchError, OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise LaunchError(f"there is no vLLM environment at {python}", fix=fix) from error
    where = answer.stdout.strip()
    if not where.endswith(".py"):
        raise LaunchError(f"{python} is not a Python interpreter", fix=fix)
    return where
