"""The wire forms in which LLM servers take a Turn, one a file, the first of which are preferred."""

from llm_servers.dialects.prorl import PRORL
from llm_servers.dialects.protocol import LLMDialect
from llm_servers.dialects.sglang import SGLANG
from llm_servers.dialects.vllm_completions import VLLM_COMPLETIONS
from llm_servers.dialects.vllm_tokens import VLLM_TOKENS

# The two forms of `/generate` refuse each other's fields. Completions come last: SGLang has that
# route, too, but gives no token ids there.
DIALECTS: tuple[LLMDialect, ...] = (VLLM_TOKENS, SGLANG, PRORL, VLLM_COMPLETIONS)
