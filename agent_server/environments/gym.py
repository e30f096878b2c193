"""Environments of Gymnasium whose actions are discrete, or texts: FrozenLake and its like.

A row names the environment, its arguments and its seed:
`{"data_source": "gym", "env_id": "FrozenLake-v1", "kwargs": {"is_slippery": false}, "seed": 7}`.
All members of a Group see the same luck. The policy takes one action a response: the last one that
its text names. The reward is the episode's return. An episode that did not end earns no more than
if it went on with its last action: where every step costs something, to stop would pay.
"""

import copy
import re
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, SupportsFloat

from agent_server.environments.protocol import (
    EnvironmentFailed,
    Observation,
    Response,
)
from agent_server.sandbox.protocol import Sandbox
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, Grade, Prompt

NAMED_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
"""Names of the actions, in the order of their numbers, by the name of the environment."""

MAX_STEPS = 100
"""Actions after which an episode ends, where neither the row nor the environment says."""

_DEFAULT = "FrozenLake-v1"
_FIX = 'a row is {"data_source": "gym", "env_id": "FrozenLake-v1", "seed": 7, "kwargs": {}}'
_HERE = re.compile("\x1b\\[4[0-9]m(.)\x1b\\[0m")
_ESCAPE = re.compile("\x1b\\[[0-9;]*m")
_MAX_SEARCHED = 20_000


class Gym:
    def __init__(self) -> None:
        self._world: Any = None
        self._words: tuple[str, ...] = ()
        """What each action is called; empty if an action is a text of the policy's."""
        self._done = False
        self._last: Any = None
        """The policy's last action; at first any that the environment takes."""
        self._return = 0.0
        self._steps = 0

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        instance = prompt.instance
        env_id = instance.get("env_id", _DEFAULT)
        self._world = _made(env_id, instance.get("kwargs", {}), instance.get("max_steps"))
        self._words = _words_of(env_id, self._world.action_space)
        seed = instance.get("seed", 0)
        if not isinstance(seed, int) or seed < 0:
            raise InvalidMessage(f"seed must be a whole number from 0, got {seed!r}", fix=_FIX)
        seen, _ = self._world.reset(seed=seed)
        self._world.action_space.seed(seed)
        self._last = self._world.action_space.sample()
        rules = instance.get("question", f"You act in {env_id}, step by step.")
        text = f"{rules}\n{self._actions()}\n\n{self._shown(seen)}"
        return (ChatMessage(role="user", content=text),)

    def step(self, response: Response) -> Observation:
        action = self._action(response.content)
        if action is None:
            return _says(f"That names no action. {self._actions()}")
        self._last, seen = action, self._act(action)
        return _says(self._shown(seen)) if not self._done else Observation(done=True)

    def solve(self) -> None:
        for action in _search(self._world):
            self._act(action)

    def grade(self) -> Grade:
        threshold = self._world.spec.reward_threshold
        components = {"return": self._return}
        metrics = {"steps": float(self._steps), "ended": float(self._done)}
        if threshold is not None:
            metrics["success"] = float(self._return >= threshold)
        ended = "ended" if self._done else "was cut off"
        reason = f"the episode {ended} after {self._steps} steps with return {self._return:g}"
        reward = min(self._return, self._played_out())
        return Grade(reward=reward, components=components, metrics=metrics, reason=reason)

    def _played_out(self) -> float:
        """The return of the episode if it went on with its last action."""
        total, over = self._return, self._done
        while not over:  # the environment was made with a limit of its steps
            _, reward, terminated, truncated, _ = self._world.step(self._last)
            total, over = total + float(reward), terminated or truncated
        return total

    def _actions(self) -> str:
        if not self._words:
            return "Your whole answer is your action."
        return f"Answer with one action: {', '.join(self._words)}."

    def _action(self, text: str) -> Any:
        """The action that the text names last; None if it names none."""
        if not self._words:
            return text if self._world.action_space.contains(text) else None
        numbers = {word.lower(): number for number, word in enumerate(self._words)}
        numbers |= {str(number): number for number in range(len(self._words))}
        for word in reversed(re.findall(r"\w+", text.lower())):
            if word in numbers:
                return numbers[word] + int(self._world.action_space.start)
        return None

    def _act(self, action: Any) -> Any:
        reward: SupportsFloat
        seen, reward, terminated, truncated, _ = self._world.step(action)
        self._return += float(reward)
        self._steps += 1
        self._done = bool(terminated or truncated)
        return seen

    def _shown(self, seen: Any) -> str:
        """The state as the environment draws it in text, else its observation."""
        if self._world.render_mode is None:
            return f"Observation: {seen}"
        drawn = _HERE.sub(r"[\1]", str(self._world.render()))
        return _ESCAPE.sub("", drawn).strip()


def _says(text: str) -> Observation:
    return Observation(messages=(ChatMessage(role="user", content=text),))


def _made(env_id: object, kwargs: object, max_steps: object) -> Any:
    """The environment of the row, drawn as text where it can be. Raises `InvalidMessage`."""
    # Imported here: it takes as long as all else of a server that may have no such row.
    import gymnasium

    # A colon would import a module of the row's choice.
    if not isinstance(env_id, str) or ":" in env_id or not isinstance(kwargs, dict):
        raise InvalidMessage(f"no environment can be made of {env_id!r} with {kwargs!r}", fix=_FIX)
    if max_steps is not None and not (isinstance(max_steps, int) and max_steps > 0):
        raise InvalidMessage(
            f"max_steps must be a whole number from 1, got {max_steps!r}", fix=_FIX
        )
    try:
        spec = gymnasium.spec(env_id)
        steps = max_steps or spec.max_episode_steps or MAX_STEPS
        world: Any = gymnasium.make(spec, max_episode_steps=steps, **kwargs)
        if "ansi" in world.metadata.get("render_modes", ()):
            world = gymnasium.make(spec, max_episode_steps=steps, render_mode="ansi", **kwargs)
    except (gymnasium.error.Error, TypeError, ValueError, AssertionError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidMessage(f"Gymnasium cannot make {env_id!r}: {reason}", fix=_FIX) from error
    spaces = gymnasium.spaces
    if not isinstance(world.action_space, spaces.Discrete | spaces.Text):
        raise InvalidMessage(
            f"the actions of {env_id!r} are {world.action_space}: the text of a policy can name "
            "discrete ones, or be one",
            fix="wrap it in an environment of your own that reads actions from text",
        )
    return world


def _words_of(env_id: str, actions: Any) -> tuple[str, ...]:
    count = getattr(actions, "n", None)
    if count is None:
        return ()
    named = NAMED_ACTIONS.get(env_id.partition("-")[0], ())
    return named if len(named) == count else tuple(map(str, range(count)))


def _search(world: Any) -> tuple[Any, ...]:
    """The actions of a shortest episode with a positive return, found breadth first.

    Copies of the environment share its luck, which does not depend on what was done before: one
    copy of each state at each depth is enough. Raises `EnvironmentFailed`.
    """
    first = int(getattr(world.action_space, "start", 0))
    actions = range(first, first + int(getattr(world.action_space, "n", 0)))
    waiting: deque[tuple[Any, float, tuple[Any, ...]]] = deque([(world, 0.0, ())])
    known: set[Hashable] = set()
    while waiting and len(known) < _MAX_SEARCHED:
        state, so_far, taken = waiting.popleft()
        for action in actions:
            branch = copy.deepcopy(state)
            seen, reward, terminated, truncated, _ = branch.step(action)
            total, path = so_far + float(reward), (*taken, action)
            if terminated and total > 0:
                return path
            if terminated or truncated or (len(path), str(seen)) in known:
                continue
            known.add((len(path), str(seen)))
            waiting.append((branch, total, path))
    raise EnvironmentFailed(
        "no episode with a positive return was found",
        fix="give the row another seed, or more max_steps",
    )
