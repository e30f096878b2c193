"""The tree of the errors that callers can tell apart, with the HTTP status of each. The message of
an error says what is wrong, and `fix` what to do next.

A package may refine one of them for itself. Elsewhere such an error is the one that it refines.

RollyardError
├── InvalidMessage         400  the peer sent something we cannot use
├── Unauthorized           401  no token, or an unknown one
├── Forbidden              403  a token whose role may not do this
├── NotFound               404  no such run, batch, server
├── Conflict               409  contradicts what already exists
│   ├── StaleAttempt            the Lease was lost: clean up, do not retry
│   ├── Overtaken               the state changed since it was read: read it again
│   └── TrainerReplaced         another trainer drives the Run now
├── PromptsExhausted       410  the dataloader ended before the Batch was met
├── TooLarge               413  a body beyond the limit: do not retry
├── Unavailable            503  worth retrying
│   ├── AgentUnreachable
│   ├── LLMUnavailable
│   ├── OrchestratorUnavailable
│   └── QueueUnavailable
│       └── QueueDamaged        this move alone is refused: its data are not as we left them
├── DeadlineExceeded       504  a wait timed out; the message names what was waited for
├── RunFailing             500  the Run's Groups die one after the other
├── WeightMismatch         500  trainer and LLM servers disagree about the weights
└── LaunchError            500  a process could not be started or died
    └── OtherStateVersion       Redis holds the state of another version of Rollyard
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
    status = 400


class Unauthorized(RollyardError):
    status = 401


class Forbidden(RollyardError):
    status = 403


class NotFound(RollyardError):
    status = 404


class Conflict(RollyardError):
    status = 409


class StaleAttempt(Conflict):
    pass


class Overtaken(Conflict):
    pass


class TrainerReplaced(Conflict):
    pass


class PromptsExhausted(RollyardError):
    status = 410


class TooLarge(RollyardError):
    status = 413


class Unavailable(RollyardError):
    status = 503


class AgentUnreachable(Unavailable):
    pass


class LLMUnavailable(Unavailable):
    pass


class OrchestratorUnavailable(Unavailable):
    pass


class QueueUnavailable(Unavailable):
    pass


class QueueDamaged(QueueUnavailable):
    pass


class DeadlineExceeded(RollyardError):
    status = 504


class RunFailing(RollyardError):
    pass


class WeightMismatch(RollyardError):
    pass


class LaunchError(RollyardError):
    pass


class OtherStateVersion(LaunchError):
    pass


def _subclasses(kind: type[RollyardError]) -> list[type[RollyardError]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in _subclasses(child))]


KINDS: dict[str, type[RollyardError]] = {kind.__name__: kind for kind in _subclasses(RollyardError)}
"""Code on the wire -> class, so that a client raises what the server raised."""
