"""A trainer without a policy: it takes batches of groups, and writes down which server ran what.

Each line of the file that it adds to is a batch, as JSON: agent server -> results. A run that an
earlier process of the same name began is taken over.
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
    for number in itertools.count(10):
        yield {"data_source": "arithmetic", "question": f"{number}*7", "answer": str(number * 7)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--file", type=Path, required=True)
    flags = parser.parse_args()
    sampling = rollyard.Sampling(temperature=1.0, max_response_tokens=24)
    with (
        rollyard.Client(os.environ["ROLLYARD_URL"]) as client,
        client.run(problems(), run_id="slurm", group_size=GROUP_SIZE, sampling=sampling) as run,
    ):
        done = len(flags.file.read_text().splitlines()) if flags.file.exists() else 0
        for _ in range(done, flags.batches):
            batch = run.rollout(flags.groups)
            assert len(batch.groups) == flags.groups
            results = [result for group in batch.groups for result in group.results]
            counts = Counter(result.lease.server_id for result in results)
            with flags.file.open("a") as file:
                file.write(json.dumps(counts) + "\n")
            run.ack(batch)
        run.finish()


if __name__ == "__main__":
    main()
