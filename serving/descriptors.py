"""The system's limit on open files, which also limits connections."""

import resource

import structlog

MAX_CONNECTIONS = 8192
OTHER_FILES = 1024
"""Files that every service has open beside its callers' connections: own calls and logs."""
MAX_FILES = 65_536
"""Limit where it may be chosen: a busy Slot of an agent server has up to a dozen files open."""

log = structlog.get_logger()


def allow_connections() -> int:
    """Raise this process's soft limit on open files as far as allowed and useful. Returns the
    number of connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MAX_CONNECTIONS + OTHER_FILES
    limit = MAX_FILES if hard == unlimited else min(MAX_FILES, hard)
    if soft != unlimited and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit >= wanted:
        return MAX_CONNECTIONS
    connections = max(limit - OTHER_FILES, limit // 2)
    log.warning(
        "few_open_files",
        open_files=limit,
        connections=connections,
        fix=f"raise the hard limit of open files to {wanted}: `ulimit -Hn`, LimitNOFILE=",
    )
    return connections
