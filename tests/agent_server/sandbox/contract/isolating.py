"""The providers that isolate their sandboxes, as far as this machine has them."""

from agent_server.sandbox.containers import CONTAINERS, why_not_here
from agent_server.sandbox.settings import BUBBLEWRAP

ISOLATING = (BUBBLEWRAP, *(name for name in CONTAINERS if not why_not_here(name)))
