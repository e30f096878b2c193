"""A trainer without a policy: it takes batches of groups, and writes down which server ran what.

- Each line of the file that it adds to is a batch: its id, the prompts of its groups, and agent
  server -> results. A batch that is delivered again after a restart has its line already.
- Beside it is the state of the feed: a run that an earlier process began is gone on with, and no
  row is fed twice.
- It goes on until there is a file `enough`, and then leaves what became of the run's groups.
"""

import argparse
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import rollyard

GROUP_SIZE = 4


def problems() -> Iterator[dict[str, str]]:
    """All products of two numbers of two digits, of which the demo's policy solves about half."""
    for left, right in itertools.product(range(10, 100), repeat=2):
        question, answer = f"{left}*{right}", str(left * right)
        yield {"data_source": "arithmetic", "question": question, "answer": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--directory", type=Path, required=True)
    flags = parser.parse_args()
    flags.directory.mkdir(exist_ok=True)
    sampling = rollyard.Sampling(temperature=1.0, max_response_tokens=24)
    with (
        rollyard.Client(os.environ["ROLLYARD_URL"]) as client,
        client.run(problems(), run_id="slurm", group_size=GROUP_SIZE, sampling=sampling) as run,
    ):
        state = flags.directory / "state"
        if state.exists():
            run.load_state_dict(json.loads(state.read_text()))
        while not (flags.directory / "enough").exists():
            write_whole(state, json.dumps(run.state_dict()))  # before the first row, too
            take_batch(run, flags.groups, flags.directory / "batches")
        write_whole(flags.directory / "counters", json.dumps(what_became(run.status())))
        run.finish()


def take_batch(run: rollyard.TrainingRun, groups: int, file: Path) -> None:
    """Take a batch, write it down unless it is there, and acknowledge it."""
    batch = run.rollout(groups)
    assert len(batch.groups) == groups
    results = [result for group in batch.groups for result in group.results]
    line = {
        "batch": batch.batch_id,
        "prompts": [group.prompt.prompt_id for group in batch.groups],
        "questions": [group.prompt.instance["question"] for group in batch.groups],
        "servers": Counter(result.lease.server_id for result in results),
    }
    known = [json.loads(each)["batch"] for each in lines_of(file)]
    if batch.batch_id not in known:
        with file.open("a") as adding:
            adding.write(json.dumps(line) + "\n")
    run.ack(batch)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def what_became(status: rollyard.RunStatus) -> dict[str, int]:
    """Counts of the run's groups."""
    counted = ("groups_fed", "groups_kept", "groups_filtered", "groups_dead", "jobs_dead")
    counts = {name: getattr(status.counters, name) for name in counted}
    return {"open_groups": status.open_groups, **counts}


def write_whole(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".new")
    beside.write_text(text)
    beside.replace(file)


if __name__ == "__main__":
    main()
