"""The Python environment that vLLM runs in: another one than ours, in a checkout `.venv-llm`."""

import subprocess
import sys
from pathlib import Path

from llm_servers.vllm_server import check_python
from rollyard.errors import LaunchError

ASK_SECONDS = 30.0
"""A Python starts in a fraction of a second, on a busy machine in several."""

_CHECKOUT = Path(__file__).parent.parent
DEFAULT_LLM_PYTHON = (
    _CHECKOUT / ".venv-llm" / "bin" / "python"
    if (_CHECKOUT / "Makefile").exists()
    else Path(sys.executable)
)
"""The one that `make environments` gives vLLM; ours where there is no checkout."""
_WHERE = "from importlib.util import find_spec; print(find_spec('vllm').origin)"


def find_vllm(python: Path) -> str:
    """Where the interpreter `python` has vLLM. Raises `LaunchError` if it has none."""
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
