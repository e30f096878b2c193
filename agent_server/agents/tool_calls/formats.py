"""The tool-call formats that every agent server knows, and the choice of one for its model."""

from collections.abc import Mapping
from types import MappingProxyType

import structlog

from agent_server.agents.tool_calls.bare import Bare
from agent_server.agents.tool_calls.deepseek import DeepSeek
from agent_server.agents.tool_calls.glm import GLM
from agent_server.agents.tool_calls.hermes import Hermes
from agent_server.agents.tool_calls.kimi import Kimi
from agent_server.agents.tool_calls.llama3 import Llama3
from agent_server.agents.tool_calls.mistral import Mistral
from agent_server.agents.tool_calls.protocol import ToolCallFormat
from agent_server.agents.tool_calls.pythonic import Pythonic
from agent_server.agents.tool_calls.qwen3_coder import Qwen3Coder
from rollyard.errors import LaunchError

# In the order in which chat templates are matched: other calls stand in the tags of hermes, too.
OUR_FORMATS: Mapping[str, ToolCallFormat] = MappingProxyType(
    {
        "deepseek": DeepSeek(),
        "mistral": Mistral(),
        "kimi": Kimi(),
        "qwen3_coder": Qwen3Coder(),
        "glm": GLM(),
        "pythonic": Pythonic(),
        "llama3_json": Llama3(),
        "hermes": Hermes(),
        "bare": Bare(),
    }
)
DEFAULT_FORMAT = "hermes"
"""Format for a model whose chat template mentions none."""


log = structlog.get_logger()


def choose_format(formats: Mapping[str, ToolCallFormat], named: str, chat_template: str) -> str:
    """The name of the format `named`, or else of the first that the chat template matches. Raises
    `LaunchError` for a name that is not known."""
    if named and named not in formats:
        raise LaunchError(
            f"there is no tool-call format {named!r}", fix=f"name one of: {', '.join(formats)}"
        )
    matching = [name for name, each in formats.items() if each.matches(chat_template)]
    chosen = named or next(iter(matching), DEFAULT_FORMAT)
    if named or matching or "tools" not in chat_template:
        log.info("tool_calls", format=chosen)
    else:  # the model was trained for tools, and its calls may be read as none
        log.warning("tool_calls_unknown", format=chosen, fix="name one with --tool-calls")
    return chosen
