"""Translation of pip's settings to uv's, for a shell: `eval "$(python launch/pip_settings.py)"`.

uv reads none of pip's files and variables, and these are often the only place that says where
packages come from: a mirror, its certificate, a folder of wheels. Variables of uv that are set
already stay as they are. It needs nothing but Python and its pip.
"""

import ast
import os
import shlex
import subprocess
import sys

_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
_SECTIONS = ("global", "install", ":env:")  # in rising precedence for `pip install`


def uv_variables(listing: str) -> dict[str, str]:
    """uv's variables for `listing`, the output of `pip config list`."""
    told = [line.partition("=") for line in listing.splitlines()]
    settings = {key: ast.literal_eval(value) for key, _, value in told}
    variables = {}
    for section in _SECTIONS:
        for name, variable in _VARIABLES.items():
            words = settings.get(f"{section}.{name}", "").split()
            if words:
                variables[variable] = ("," if name == "find-links" else " ").join(words)
    return variables


def main() -> None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    for variable, value in uv_variables(listing).items():
        if variable not in os.environ:
            print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
