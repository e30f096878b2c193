"""The system's limit of open files, which is also one of connections."""

import resource

import structlog

MAX_CONNECTIONS = 8192
OTHER_FILES = 1024
"""What a service has open beside the connections of its callers: its own calls, logs, sandboxes."""

log = structlog.get_logger()


def allow_connections() -> int:
    """Raise this process's limit of open files to what it may have; how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MAX_CONNECTIONS + OTHER_FILES
    limit = wanted if hard == unlimited else min(wanted, hard)
    if soft != unlimited and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == wanted:
        return MAX_CONNECTIONS
    connections = max(limit - OTHER_FILES, limit // 2)
    log.warning(
        "few_open_files",
        open_files=limit,
        connections=connections,
        fix=f"raise the hard limit of open files to {wanted}: `ulimit -Hn`, LimitNOFILE=",
    )
    return connections
