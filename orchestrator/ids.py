"""Ids of Jobs, Groups and Slots, composed and parsed here and in `queues/scripts/_ids.lua`.

- A Job is `<run>/<group>/<member>`, its Group `<run>/<group>`; no name has a slash in it.
- A Slot is `<server>#<index>`.
"""

import re


def job_id(run_id: str, group_id: str, member: int) -> str:
    return f"{run_id}/{group_id}/{member}"


def is_job_id(name: str) -> bool:
    return re.fullmatch(r"[^/]+/[^/]+/\d+", name) is not None


def run_of(name: str) -> str:
    """The Run of a Job or a Group."""
    return name.split("/", 1)[0]


def group_of(name: str) -> str:
    """The Group's part of the name of a Job or a Group."""
    return name.split("/")[1]


def group_and_member(job: str) -> tuple[str, int]:
    _, group_id, member = job.split("/")
    return group_id, int(member)


def names_run(name: str) -> bool:
    """Whether `name` is neither that of a Job nor that of a Group."""
    return "/" not in name


def names_group(name: str) -> bool:
    return name.count("/") == 1


def server_of(slot: str) -> str:
    return slot.rsplit("#", 1)[0]
