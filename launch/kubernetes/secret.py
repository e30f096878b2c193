"""The Secret of a fleet: fresh tokens, and Redis's password.

It is printed by a command of its own and by no other, so that manifests can be kept and shown.
"""

import secrets

from launch.fleet import REDIS_PASSWORD, TOKENS
from launch.kubernetes.pods import Yaml
from rollyard.tokens import Role

SUBMIT = "submit"
"""Key of what a trainer needs, and nothing else."""


def secret(name: str, namespace: str) -> Yaml:
    """The Secret, with secrets that nobody has had before."""
    lines = {role: f"{role} {secrets.token_urlsafe(32)}\n" for role in Role}
    data = {
        TOKENS: "".join(lines.values()),
        SUBMIT: lines[Role.SUBMIT],
        REDIS_PASSWORD: secrets.token_urlsafe(32) + "\n",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "stringData": data,
    }
