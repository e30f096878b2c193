"""`rollyard show`: trajectories for people, with what the policy sampled in another colour.

The text of tokens needs the tokenizer of the served model. It is read from the model's directory
if this machine has it; otherwise token ids are shown.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from tokenizers import Tokenizer

from launch.output import Answer, not_empty, printable
from rollyard.api import OrchestratorAPI
from rollyard.messages import Grade, JobView, JobViews, LLMNode, Result, Sequence, Trajectory

Name = Annotated[
    str,
    typer.Argument(
        help="A job <run>/<group>/<member>, or a group <run>/<group>.", callback=not_empty
    ),
]
Limit = Annotated[int, typer.Option(help="Maximum members of a group.", min=1, max=1000)]

Decode = Callable[[Iterable[int]], str]
SAMPLED, GIVEN, HEADING = "green", "dim", "bold"


def show_command(orchestrator: OrchestratorAPI, name: Name, limit: Limit = 16) -> Answer:
    """Show the trajectory of a job: messages, tokens, turns, weights, reward and times."""
    found = orchestrator.trajectories(name, limit=limit)
    return found, _described(found, orchestrator)


def _described(found: JobViews, orchestrator: OrchestratorAPI) -> Iterator[Text]:
    decode = decoder(orchestrator.status().llm_nodes)
    for view in found.jobs:
        yield described(view, decode)


def decoder(nodes: Iterable[LLMNode]) -> Decode:
    """The decoder of the first model whose tokenizer is on this machine; else of ids as digits."""
    for node in nodes:
        file = Path(node.model) / "tokenizer.json"
        if file.is_file():
            tokenizer = Tokenizer.from_file(str(file))
            return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
    return ids_as_text


def ids_as_text(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))


def described(view: JobView, decode: Decode) -> Text:
    """A Job's history and trajectory as coloured text, which ends with an empty line."""
    text = Text()
    text.append(view.job.job_id, style=HEADING)
    text.append(f"  {printable(view.reason)}\n")
    for attempt in view.job.attempts:
        reason = f": {printable(attempt.reason)}" if attempt.reason else ""
        where = f"attempt {attempt.attempt} on {attempt.server_id}"
        text.append(f"  {where}, {attempt.outcome}{reason}\n")
    if view.result is not None and view.result.trajectory is not None:
        text.append(f"  {_times(view.result)}\n")
        if view.result.grade is not None:
            text.append(f"  {graded(view.result.grade)}\n")
        for line, style in _lines(view.result.trajectory, decode):
            text.append(printable(line) + "\n", style=style)
    return text


def _times(result: Result) -> str:
    spent = result.timings
    return (
        f"init {spent.init_seconds:.2f} s, run {spent.run_seconds:.2f} s, "
        f"eval {spent.eval_seconds:.2f} s, parked {spent.parked_seconds:.2f} s"
    )


def graded(grade: Grade) -> str:
    """A grade in one line: its reward, components, metrics and reason."""
    named = (*grade.components.items(), *grade.metrics.items())
    figures = "".join(f", {name} {value:g}" for name, value in named)
    reason = f": {printable(grade.reason)}" if grade.reason else ""
    return f"reward {grade.reward:g}{figures}{reason}"


def _lines(trajectory: Trajectory, decode: Decode) -> Iterator[tuple[str, str]]:
    """(line, style) pairs: the messages, then the tokens by stretches given or sampled."""
    for message in trajectory.messages:
        yield f"\n{message.role}:", HEADING
        yield message.content, SAMPLED if message.role == "assistant" else ""
    turns = 0
    for sequence in trajectory.sequences:
        ends_here = sequence is trajectory
        cut = ", cut off by a limit" if ends_here and trajectory.truncated else ""
        then = "" if ends_here else ", then the chat template rewrote the conversation"
        tokens, sampled = len(sequence.token_ids), sum(sequence.loss_mask)
        yield f"\n{tokens} tokens, {sampled} of them sampled{cut}{then}:", HEADING
        yield from _of_sequence(sequence, turns, decode)
        turns += len(sequence.turns)


def _of_sequence(
    sequence: Sequence, turns_before: int, decode: Decode
) -> Iterator[tuple[str, str]]:
    for start, end, is_sampled in stretches(sequence.loss_mask):
        told = _of_sampled(sequence, start, end, turns_before) if is_sampled else "given"
        yield f"[{start}:{end}] {told}", HEADING
        yield decode(sequence.token_ids[start:end]), SAMPLED if is_sampled else GIVEN


def stretches(mask: "array[int]") -> Iterator[tuple[int, int, bool]]:
    """(start, end, value) of each maximal run of equal entries, half open."""
    start = 0
    for value, run in groupby(mask):
        end = start + sum(1 for _ in run)
        yield start, end, bool(value)
        start = end


def _of_sampled(sequence: Sequence, start: int, end: int, turns_before: int) -> str:
    ending = ", ".join(
        f"turn {number} ({turn.finish_reason})"
        for number, turn in enumerate(sequence.turns, turns_before + 1)
        if turn.start < end and start < turn.end
    )
    weights = ", ".join(
        f"{max(span.start, start)}:{min(span.end, end)} by weights {span.version}"
        f"{' (assumed)' if span.assumed else ''}"
        for span in sequence.weight_spans
        if span.start < end and start < span.end
    )
    mean = sum(sequence.logprobs[start:end]) / (end - start)
    return f"sampled in {ending}; {weights}; mean logprob {mean:.3f}"
