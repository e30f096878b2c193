"""The traces of one session: every response once, behind exactly the prompt it was sampled after.

- Owns the tree of responses. A node goes on from another one if the client's conversation does, and
  its tokens go on from the other's too, unless they begin a prompt of their own.
- A node never changes. What was sampled is never made from text again; only messages that came
  since are rendered, behind the last stop token.
- A conversation that goes on from no response, or in which the client answers for the policy, is
  rendered as a whole. So is one that the chat template writes anew.
"""

from array import array
from collections.abc import Sequence as Sequential

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.conversation import Conversation
from agent_server.agents.trajectory import SequenceBuilder
from agent_server.gateway.echo import Echo, echoes
from llm_servers.generation import Generation
from rollyard.messages import ChatMessage, Sequence, TokenArray, ToolSchema, Trajectory


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place at which a response is to be sampled."""

    after: "TraceNode | None"
    """Response that the conversation goes on from; None at its beginning."""
    begins: bool
    """True if `given` is the whole prompt, False if it follows the tokens of `after`."""
    given: TokenArray
    """Tokens that the policy is given since then."""
    messages: tuple[ChatMessage, ...]
    """Messages since then."""
    echoes: tuple[Echo, ...]
    """`messages`, as they are told from others."""
    tools: tuple[ToolSchema, ...]

    def prompt(self) -> TokenArray:
        """The exact prompt."""
        tokens: TokenArray = array("i")
        for node in [] if self.begins else _trace(self.after):
            tokens += node.place.given
            tokens.extend(node.generation.token_ids)
        return tokens + self.given


class TraceNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One response, at its place."""

    number: int
    """Responses that were recorded before it."""
    place: Place
    generation: Generation
    message: ChatMessage
    """All that was sampled, as text."""
    echoes: tuple[Echo, ...]
    """The messages at its place and the response, as the client was told it."""
    followers: list["TraceNode"] = msgspec.field(default_factory=list)
    """Responses whose conversations go on from this one."""

    @property
    def ends_a_trace(self) -> bool:
        return all(follower.place.begins for follower in self.followers)


class Traces:
    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._nodes: list[TraceNode] = []
        self._roots: list[TraceNode] = []
        self.version = 0
        """The newest weight version that sampled a token; 0 before the first response."""

    def __len__(self) -> int:
        """Responses recorded so far."""
        return len(self._nodes)

    @property
    def last(self) -> TraceNode | None:
        """The last response that was recorded."""
        return self._nodes[-1] if self._nodes else None

    def place(self, messages: Sequential[ChatMessage], tools: Sequential[ToolSchema]) -> Place:
        """The place of the response to this conversation. Raises `InvalidMessage` for one that
        cannot be rendered."""
        told = tuple(tools)
        echoed = echoes(messages)
        known, after = self._find(echoed, told)
        new = tuple(messages[known:])
        if any(message.role == "assistant" for message in new):
            known, after, new = 0, None, tuple(messages)
        given, begins = self._given(after, new, told)
        return Place(
            after=after,
            begins=begins,
            given=array("i", given),
            messages=new,
            echoes=tuple(echoed[known:]),
            tools=told,
        )

    def add(
        self, place: Place, generation: Generation, message: ChatMessage, told: ChatMessage
    ) -> None:
        """Record the response that was sampled at this place: `message` is its text, and `told`
        what the client is told of it."""
        node = TraceNode(
            number=len(self._nodes),
            place=place,
            generation=generation,
            message=message,
            echoes=(*place.echoes, *echoes([told])),
        )
        self._nodes.append(node)
        self.version = max((self.version, *(span.version for span in generation.weight_spans)))
        siblings = self._roots if place.after is None else place.after.followers
        siblings.append(node)

    def trajectory(self, *, truncated: bool) -> Trajectory:
        """All traces, in the order of their last responses. Where several share a beginning, its
        responses are trained in the first of them, and given in the others."""
        trained: set[int] = set()
        ends = [node for node in self._nodes if node.ends_a_trace]
        *earlier, last = [_sequence(end, trained) for end in ends]
        return Trajectory(
            **last.fields(),
            messages=_conversation(ends[-1]).messages,
            truncated=truncated,
            earlier=tuple(Sequence(**each.fields()) for each in earlier),
        )

    def _find(
        self, echoed: Sequential[Echo], tools: tuple[ToolSchema, ...]
    ) -> tuple[int, TraceNode | None]:
        """The response that the conversation goes on from, and the number of messages up to it: the
        latest one in the conversation, and the newest of those that look alike."""
        best: tuple[int, int, TraceNode | None] = (0, -1, None)
        left = [(0, root) for root in self._roots if root.place.tools == tools]
        while left:
            start, node = left.pop()
            end = start + len(node.echoes)
            if end >= len(echoed) or not _begin_with(echoed[start:end], node.echoes):
                continue
            best = max(best, (end, node.number, node), key=lambda each: each[:2])
            left += [(end, follower) for follower in node.followers]
        return best[0], best[2]

    def _given(
        self,
        after: TraceNode | None,
        new: tuple[ChatMessage, ...],
        tools: tuple[ToolSchema, ...],
    ) -> tuple[Sequential[int], bool]:
        """The tokens that the policy is given, and whether they are a prompt of their own."""
        if after is None:
            return self._template.prompt(new, tools), True
        rewritten = self._template.rewritten(_conversation(after), new, tools)
        if rewritten is not None:
            return rewritten, True
        last = after.generation.token_ids[-1]
        return self._template.observation(new, after=last, tools=tools), False


def _begin_with(echoed: Sequential[Echo], known: Sequential[Echo]) -> bool:
    return all(one.same_as(other) for one, other in zip(known, echoed, strict=True))


def _trace(end: TraceNode | None) -> list[TraceNode]:
    """The responses whose tokens follow each other, up to this one."""
    nodes = []
    while end is not None:
        nodes.append(end)
        end = None if end.place.begins else end.place.after
    return nodes[::-1]


def _conversation(last: TraceNode) -> Conversation:
    """The conversation up to this response."""
    nodes, node = [last], last.place.after
    while node is not None:
        nodes.append(node)
        node = node.place.after
    messages: list[ChatMessage] = []
    prompted = 0
    for node in reversed(nodes):
        messages += node.place.messages
        prompted = len(messages) if node.place.begins else prompted
        messages.append(node.message)
    opening = len(nodes[-1].place.messages)
    return Conversation(messages=tuple(messages), opening=opening, prompted=prompted)


def _sequence(end: TraceNode, trained: set[int]) -> SequenceBuilder:
    """The trace that ends there. Its responses are `trained` from now on."""
    sequence = SequenceBuilder(())
    for node in _trace(end):
        sequence.add_given(node.place.given)
        if node.number in trained:
            sequence.add_given(node.generation.token_ids)
        else:
            sequence.add_sampled(node.generation)
            trained.add(node.number)
    return sequence
