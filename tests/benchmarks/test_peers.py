"""The benchmark of peers, without a peer."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers.entrants import sums
from benchmarks.peers.match import Match, judged
from benchmarks.peers.running import EntrantLine, Running
from benchmarks.peers.services import Entrant
from benchmarks.peers.workload import MODEL, script, write_replies
from llm_servers.scripted.replies import read_replies
from llm_servers.scripted.script import Script, ScriptSettings, Vocabulary

SECONDS = 60.0


def test_the_policy_solves_every_question_in_ten_turns(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    write_replies(path, 3)
    vocabulary = Vocabulary.load(MODEL)
    policy = Script(vocabulary, ScriptSettings(replies=read_replies(path)))
    for question in range(3):
        conversation = f"<|im_start|>user\n{sums.text(question)}<|im_end|>\n"
        for _ in range(sums.TURNS):
            conversation += "<|im_start|>assistant\n"
            tokens = policy.response(vocabulary.encode(conversation), "greedy")
            said = vocabulary.decode(tokens).removesuffix("<|im_end|>")
            conversation += f"{said}<|im_end|>\n<|im_start|>tool\n0<|im_end|>\n"
        assert sums.reward(question, said) == 1.0
        assert sums.reward(question, "The sum is 0.") == 0.0


def test_the_ideal_is_that_of_slots_which_are_never_idle() -> None:
    alone = Match(questions=2, slots=1, token_seconds=0.1).ideal_seconds
    at_once = Match(questions=2, slots=2 * sums.SAMPLES, token_seconds=0.1).ideal_seconds
    longest = max(sum(map(tokens_of, script(question))) for question in range(2)) / 10
    assert at_once == pytest.approx(longest)
    assert longest * sums.SAMPLES < alone <= longest * 2 * sums.SAMPLES


def tokens_of(said: str) -> int:
    return len(Vocabulary.load(MODEL).encode(said)) + 1


@pytest.mark.parametrize(
    ("delivered", "lost", "wrong", "again"),
    [
        ([(0, 1.0)] * 8 + [(1, 1.0)] * 8, 0, 0, 0),
        ([(0, 1.0)] * 8 + [(1, 1.0)] * 5, 3, 0, 0),
        ([(0, 1.0)] * 9 + [(1, 1.0)] * 7, 1, 0, 1),
        ([(0, 1.0)] * 8 + [(1, 1.0)] * 6 + [(1, 0.0)] * 2, 0, 2, 0),
        ([], 16, 0, 0),
    ],
)
def test_what_was_delivered_is_counted_by_question(
    delivered: Sequence[tuple[int, float]], lost: int, wrong: int, again: int
) -> None:
    counted = judged(delivered, Match(questions=2, slots=4, token_seconds=0))
    assert counted == {"lost": lost, "scored_wrongly": wrong, "delivered_again": again}


def test_an_entrant_is_heard_loses_a_worker_and_is_ended_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    service = Entrant("talking", "tests.benchmarks.talking_entrant")
    place = ("--directory", str(tmp_path), "--llm", "none", "--questions", "1", "--slots", "1")
    with Running(service, place, tmp_path) as running:
        ready = running.line(SECONDS)
        assert ready == EntrantLine(named="time.sleep")
        running.begin()
        assert running.line(SECONDS) == EntrantLine(question=0, reward=1.0)
        assert running.line(SECONDS) == EntrantLine(question=0, failed="no answer")
        running.kill_worker(ready)
        assert running.line(SECONDS) == EntrantLine(question=0, failed="the worker ended with -9")
        assert running.seconds_computed() > 0
        assert running.last_words() == "packages talk, too"
        running.begin()
        assert running.line(SECONDS) is None
        assert running.has_ended()
