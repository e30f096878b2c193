"""The system's limit on open files, which also limits connections."""

import resource

import structlog

MAX_CONNECTIONS = 8192
OTHER_FILES = 1024
"""Files that a service has open beside its callers' connections: own calls, logs, sandboxes."""

log = structlog.get_logger()


def allow_connections() -> int:
    """Raise this process's soft limit on open files as far as needed and allowed. Returns the
    number of connections that fit."""
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
