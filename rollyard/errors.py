"""The tree of the errors that callers can tell apart, with the HTTP status of each. The message of
an error says what is wrong, and `fix` what to do next.

A package may refine one of them for itself. Elsewhere such an error is the one that it refines.

RollyardError
├── InvalidMessage         400
├── Unauthorized           401
├── Forbidden              403
├── NotFound               404
├── Conflict               409
│   ├── StaleAttempt
│   ├── Overtaken
│   └── TrainerReplaced
├── PromptsExhausted       410
├── TooLarge               413
├── GraderFailed           422
├── Unavailable            503
│   ├── AgentUnreachable
│   ├── LLMUnavailable
│   ├── OrchestratorUnavailable
│   └── QueueUnavailable
│       └── QueueDamaged
├── DeadlineExceeded       504
├── RunFailing             500
├── NeverOffered           500
├── WeightMismatch         500
└── LaunchError            500
    └── OtherStateVersion
"""


class RollyardError(Exception):
    """Base of all errors."""

    status = 500

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    @property
    def code(self) -> str:
        """Name of the error on the wire, which is one of `KINDS`."""
        return next(kind.__name__ for kind in type(self).__mro__ if kind.__name__ in KINDS)

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message


class InvalidMessage(RollyardError):
    """The peer sent something that cannot be used."""

    status = 400


class Unauthorized(RollyardError):
    """The caller showed no token, or an unknown one."""

    status = 401


class Forbidden(RollyardError):
    """The caller's token has a role that may not do this."""

    status = 403


class NotFound(RollyardError):
    """There is no such Run, Batch, Job or server."""

    status = 404


class Conflict(RollyardError):
    """The request contradicts what already exists."""

    status = 409


class StaleAttempt(Conflict):
    """The attempt has lost its Lease: clean up, do not retry."""


class Overtaken(Conflict):
    """The state has changed since it was read: read it again."""


class TrainerReplaced(Conflict):
    """Another trainer drives the Run now."""


class PromptsExhausted(RollyardError):
    """The dataloader ended before the Batch was complete."""

    status = 410


class TooLarge(RollyardError):
    """The body is beyond a limit: do not retry."""

    status = 413


class GraderFailed(RollyardError):
    """The grader cannot grade this task, on any machine."""

    status = 422


class Unavailable(RollyardError):
    """The call did not succeed now, and is worth retrying."""

    status = 503
    lasts = False
    """True if it is only worth that once somebody has changed something, such as a certificate."""


class AgentUnreachable(Unavailable):
    """The agent server cannot be reached."""


class LLMUnavailable(Unavailable):
    """An LLM server, or the control service of some, cannot be used now."""


class OrchestratorUnavailable(Unavailable):
    """The orchestrator cannot be reached."""


class QueueUnavailable(Unavailable):
    """Redis cannot be used now."""


class QueueDamaged(QueueUnavailable):
    """Redis refused one move alone, because its data are not as they were left."""


class DeadlineExceeded(RollyardError):
    """A wait took too long. The message names what was waited for."""

    status = 504


class RunFailing(RollyardError):
    """The Run's Groups die one after the other."""


class NeverOffered(RollyardError):
    """The Run's Jobs need an environment, or a tag, that no agent server has ever had."""


class WeightMismatch(RollyardError):
    """Trainer and LLM servers disagree about the weights."""


class LaunchError(RollyardError):
    """A process could not be started, or died."""


class OtherStateVersion(LaunchError):
    """Redis holds the state of another version of Rollyard."""


def _subclasses(kind: type[RollyardError]) -> list[type[RollyardError]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in _subclasses(child))]


KINDS: dict[str, type[RollyardError]] = {kind.__name__: kind for kind in _subclasses(RollyardError)}
"""Code on the wire -> class, so that a client raises what the server raised."""
