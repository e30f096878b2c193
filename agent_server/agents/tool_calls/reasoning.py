"""The reasoning of a response, which stands before all else that the policy wrote."""

REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""Texts that open reasoning, each with the one that closes it."""


def opens_reasoning(prompt: str) -> bool:
    """True if the prompt ends with a tag that opens reasoning, which some templates write."""
    return prompt.rstrip().endswith(tuple(opening for opening, _ in REASONING_TAGS))


def split_reasoning(text: str, *, opened: bool) -> tuple[str, str]:
    """The reasoning, without its tags, and the rest; `opened` if the prompt opens the reasoning.
    Reasoning that is not closed has no rest."""
    stripped = text.lstrip()
    for opening, closing in REASONING_TAGS:
        if stripped.startswith(opening):
            reasoning, _, rest = stripped.removeprefix(opening).partition(closing)
            return reasoning.strip(), rest
    if not opened:
        return "", text
    closings = [closing for _, closing in REASONING_TAGS if closing in text]
    if not closings:
        return text.strip(), ""
    reasoning, _, rest = text.partition(min(closings, key=text.index))
    return reasoning.strip(), rest
