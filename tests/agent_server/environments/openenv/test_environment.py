"""The environment whose world is an OpenEnv server's: what the policy sees, does and earns."""

from typing import Any

import pytest

from agent_server.environments.in_thread import InThread
from agent_server.environments.openenv.environment import OpenEnv
from agent_server.environments.protocol import EnvironmentFailed, Opening, Response
from rollyard.errors import Unavailable
from rollyard.messages import Prompt, ToolCall
from tests.agent_server.environments.openenv.conftest import OpenEnvServer, StartOpenEnv
from tests.agent_server.fakes import SandboxOfNothing, said


def begun(server: OpenEnvServer, **fields: Any) -> tuple[InThread, Opening]:
    episode = InThread(OpenEnv)
    prompt = Prompt(prompt_id="row", instance=server.row(**fields))
    return episode, episode.start(prompt, SandboxOfNothing())


def calling(name: str, **arguments: Any) -> Response:
    return Response(text="...", calls=(ToolCall(call_id="1", name=name, arguments=arguments),))


@pytest.fixture(scope="module")
def treasure(start_openenv: StartOpenEnv) -> OpenEnvServer:
    return start_openenv("treasure")


@pytest.fixture(scope="module")
def tools(start_openenv: StartOpenEnv) -> OpenEnvServer:
    return start_openenv("tools")


def test_an_action_of_one_text_is_the_response(guess: OpenEnvServer) -> None:
    episode, opening = begun(guess, question="Guess.", reset={"seed": 6}, observation="prompt")
    assert opening.messages[0].content == "Guess.\n\nWhich number from 1 to 9?"
    assert not opening.tools
    (hint,) = episode.step(said("5")).messages
    assert hint.content == "higher"
    assert episode.step(said("6")).done
    episode.close()


def test_the_reward_is_the_sum_of_what_the_server_gave(guess: OpenEnvServer) -> None:
    episode, _ = begun(guess)
    episode.step(said("5"))
    episode.step(said("4"))
    grade = episode.grade()
    assert (grade.reward, grade.components) == (1.0, {"return": 1.0})
    assert grade.metrics == {"moves": 2.0, "steps": 2.0, "ended": 1.0}
    assert grade.reason == "the episode ended after 2 steps with return 1"
    episode.close()


def test_an_episode_that_was_cut_off_has_earned_what_it_has(guess: OpenEnvServer) -> None:
    episode, _ = begun(guess)
    episode.step(said("5"))
    grade = episode.grade()
    assert (grade.reward, grade.metrics["ended"]) == (0.0, 0.0)
    episode.close()


def test_all_of_an_observation_is_shown_where_the_row_names_no_part(guess: OpenEnvServer) -> None:
    episode, opening = begun(guess)
    assert opening.messages[0].content == '{"prompt": "Which number from 1 to 9?", "left": 3}'
    episode.close()


def test_an_action_that_the_server_refuses_is_told_and_costs_no_step(guess: OpenEnvServer) -> None:
    episode, _ = begun(guess)
    (told,) = episode.step(said("hm")).messages
    assert told.content == "error: that is no valid action: message: is no number"
    assert episode.grade().metrics["steps"] == 0.0
    episode.close()


def test_an_action_of_several_fields_is_a_call(treasure: OpenEnvServer) -> None:
    episode, opening = begun(treasure)
    (act,) = opening.tools
    assert (act.name, list(act.parameters["properties"])) == ("act", ["row", "column"])
    (answer,) = episode.step(calling("act", row=1, column=2)).messages
    assert (answer.role, answer.tool_call_id, answer.content) == ("tool", "1", "?")
    assert episode.step(calling("act", row=4, column=4)).done
    assert episode.grade().reward == 1.5
    episode.close()


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("act", {"row": "one", "column": 2}, "must be of the type integer"),
        ("act", {"row": 1}, "lacks 'column'"),
        ("reset", {}, "no such tool"),
    ],
)
def test_a_call_that_cannot_be_is_told_and_never_sent(
    treasure: OpenEnvServer, name: str, arguments: dict[str, Any], reason: str
) -> None:
    episode, _ = begun(treasure)
    (answer,) = episode.step(calling(name, **arguments)).messages
    assert reason in answer.content
    assert episode.grade().metrics["steps"] == 0.0
    episode.close()


def test_the_policy_is_offered_the_tools_of_an_mcp_environment(tools: OpenEnvServer) -> None:
    episode, opening = begun(tools, question="Add three to four.")
    assert opening.messages[0].content == "Add three to four."
    assert [tool.name for tool in opening.tools] == ["add_three", "submit", "broken", "wrong"]
    (answer,) = episode.step(calling("add_three", a=4)).messages
    assert answer.content == "7"
    (answer,) = episode.step(calling("wrong")).messages
    assert answer.content == "error: division by zero"
    assert episode.step(calling("submit", a=7)).done
    assert episode.grade().reward == 1.0
    episode.close()


def test_a_response_without_a_call_ends_an_episode_of_tools(tools: OpenEnvServer) -> None:
    episode, _ = begun(tools)
    assert episode.step(said("I give up.")).done
    assert episode.grade().reward == 0.0
    episode.close()


def test_a_call_that_could_not_be_read_is_answered(tools: OpenEnvServer) -> None:
    episode, _ = begun(tools)
    observation = episode.step(Response(text="{", malformed=("no JSON",)))
    assert [message.content for message in observation.messages] == ["error: no JSON"]
    assert not observation.done
    episode.close()


def test_calls_behind_the_end_of_the_episode_are_not_made(tools: OpenEnvServer) -> None:
    episode, _ = begun(tools)
    calls = calling("submit", a=7).calls + calling("broken").calls
    assert episode.step(Response(text="...", calls=calls)).done
    episode.close()


def test_a_tool_that_cannot_be_reached_is_no_mistake_of_the_policy(tools: OpenEnvServer) -> None:
    episode, _ = begun(tools)
    with pytest.raises(Unavailable, match="no route"):
        episode.step(calling("broken"))
    episode.close()


@pytest.mark.parametrize(
    ("word", "kind", "reason"),
    [
        ("crash", EnvironmentFailed, "EXECUTION_ERROR: the board is gone"),
        ("hang", Unavailable, "no answer in 0.3 s"),
        ("leave", Unavailable, "closed it with 1011 going home"),
        ("nonsense", EnvironmentFailed, "no answer of an OpenEnv server"),
    ],
)
def test_a_failure_of_the_server_is_no_mistake_of_the_policy(
    guess: OpenEnvServer, word: str, kind: type[Exception], reason: str
) -> None:
    episode, _ = begun(guess, seconds=0.3 if word == "hang" else 20)
    with pytest.raises(kind, match=reason):
        episode.step(said(word))
    episode.close()


def test_a_server_that_died_fails_the_episode(start_openenv: StartOpenEnv) -> None:
    server = start_openenv("guess")
    episode, _ = begun(server)
    server.die()
    with pytest.raises(Unavailable, match="the WebSocket with"):
        episode.step(said("4"))
    with pytest.raises(Unavailable, match=server.url):
        begun(server)
    episode.close()


def test_a_full_server_is_asked_later(start_openenv: StartOpenEnv) -> None:
    server = start_openenv("guess", sessions=1)
    first, _ = begun(server)
    with pytest.raises(Unavailable, match="CAPACITY_REACHED"):
        begun(server)
    first.close()


def test_an_episode_without_any_reward_is_not_scored(start_openenv: StartOpenEnv) -> None:
    episode, _ = begun(start_openenv("unrewarded"))
    assert episode.step(said("4")).done
    with pytest.raises(EnvironmentFailed, match="gave it no reward"):
        episode.grade()
    episode.close()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"url": "ftp://somewhere"}, "is not the URL of a service"),
        ({"seconds": 0}, "seconds must be positive"),
        ({"reset": 7}, "Expected `object`"),
        ({"observation": "board"}, "no 'board', but prompt, left"),
        ({"reset": {"size": 7}}, "EXECUTION_ERROR"),
    ],
)
def test_a_row_that_cannot_be_is_refused(
    guess: OpenEnvServer, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        begun(guess, **fields)
