"""What became of one task: a grade, or a failure. It crosses Redis as JSON."""

from rollyard.errors import KINDS, RollyardError, Unavailable
from rollyard.messages import Failure, Grade, Message, check


class TaskOutcome(Message, frozen=True, omit_defaults=True):
    grade: Grade | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        check((self.grade is None) != (self.failure is None), "an outcome is a grade or a failure")

    def given(self) -> Grade:
        """The grade. Raises the failure."""
        if self.grade is not None:
            return self.grade
        assert self.failure is not None
        raise KINDS.get(self.failure.code, Unavailable)(self.failure.message, fix=self.failure.fix)


def failed(error: RollyardError) -> TaskOutcome:
    return TaskOutcome(failure=Failure(code=error.code, message=error.message, fix=error.fix))
