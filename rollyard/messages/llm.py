"""LLM servers as agent servers find them, and the logprobs that they report."""

from enum import StrEnum
from typing import Annotated

from rollyard.messages.base import URL, Message, Positive, Url, check, check_url, described


class LogprobKind(StrEnum):
    """The distribution whose logprobs an LLM server reports."""

    SAMPLED = "sampled"
    """The one sampled from: at the Run's temperature, truncated to the nucleus of `top_p`."""
    TEMPERED = "tempered"
    """The one at the Run's temperature, not truncated."""
    MODEL = "model"
    """The model's own, at temperature 1 and not truncated."""


class LLMEndpoint(Message, frozen=True):
    """An LLM server as an agent server found it when it asked."""

    url: str
    dialect: str
    """The wire form in which it is asked, see `llm_servers.dialects`."""
    logprobs: LogprobKind


_OfUrls = described(minProperties=1, propertyNames={"pattern": f"^{URL.pattern}$"})


class LLMServersToAsk(Message, frozen=True):
    """The order to an agent server to ask these LLM servers, and no others, from now on."""

    proxies: Annotated[dict[Url, Positive], _OfUrls]
    """URLs of proxies of ours, which are shown the token of the services, with the number of LLM
    servers for which each counts."""
    gone: tuple[Url, ...] = ()
    """Those of the others that are lost: nothing under way there will be answered."""

    def __post_init__(self) -> None:
        check(bool(self.proxies), "an agent server needs an LLM server to ask")
        check(min(self.proxies.values()) > 0, "a proxy counts for at least one LLM server")
        for url in (*self.proxies, *self.gone):
            check_url(url)
