"""A trainer without a policy: one batch of 16 groups of a new run. It prints who ran them."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator

import rollyard


def problems() -> Iterator[dict[str, str]]:
    for left, right in itertools.product(range(10, 100), repeat=2):
        question, answer = f"{left}*{right}", str(left * right)
        yield {"data_source": "arithmetic", "question": question, "answer": answer}


def main() -> None:
    sampling = rollyard.Sampling(temperature=1.0, max_response_tokens=24)
    client = rollyard.Client(os.environ["ROLLYARD_URL"])
    name = os.environ["POD_NAME"]
    with client, client.run(problems(), run_id=name, group_size=4, sampling=sampling) as run:
        batch = run.rollout(16)
        results = [result for group in batch.groups for result in group.results]
        run.ack(batch)
        run.finish()
    told = {"groups": len(batch.groups), "doors": os.environ["PRORL_SERVER_URLS"].split("+")}
    print(json.dumps({**told, "servers": Counter(each.lease.server_id for each in results)}))


if __name__ == "__main__":
    main()
