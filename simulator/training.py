"""One training run on the virtual clock: the sampler between simulated queues and trainer.

- The sampler handles every event once, in order, as the collector would pass it on.
- The trainer requests up to `ahead` Batches, trains on them in order, raises the weight version
  after each, acknowledges it and requests the next one.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from orchestrator.events import (
    AnyEvent,
    AttemptEnded,
    BatchAcknowledged,
    BatchRequested,
    Ending,
    JobDied,
    PromptFed,
    ResultAccepted,
    Tried,
)
from orchestrator.ids import group_and_member, job_id
from orchestrator.sampling.decisions import Deliver, Remember
from orchestrator.sampling.sampler import Sampler, prompts_wanted
from orchestrator.sampling.state import SamplerState
from rollyard.errors import PromptsExhausted
from simulator.clock import Clock
from simulator.dataset import Draw, SimulatedDataset, Try
from simulator.outcome import TrainingOutcome, TrainingStep
from simulator.plan import Plan
from simulator.policies import RUN, SamplingPolicy
from simulator.queues import SimulatedQueues, SlotWatcher
from simulator.tasks import SimulatedTasks
from simulator.work import Occupation, OwnPace, Timer, Work

_MAX_FRUITLESS = 20_000
"""Prompts fed for one Batch after which the simulation gives up: the dataset cannot be trained
on."""


def simulate(
    dataset: SimulatedDataset,
    policy: SamplingPolicy,
    plan: Plan,
    watcher: SlotWatcher | None = None,
) -> TrainingOutcome:
    return Training(dataset, policy, plan, watcher).run()


class Training:
    def __init__(
        self,
        dataset: SimulatedDataset,
        policy: SamplingPolicy,
        plan: Plan,
        watcher: SlotWatcher | None = None,
        work: Callable[[Timer], Work] = OwnPace,
    ) -> None:
        self._dataset, self._policy, self._plan = dataset, policy, plan
        self._settings = policy.settings
        self.sampler = Sampler(policy.settings, SamplerState())
        self._clock: Timer = Clock()
        kinds = [slot % plan.kinds for slot in range(plan.slots)]
        self.queues = SimulatedQueues(
            self._clock,
            SimulatedTasks(kinds, self._kind_of),
            policy.settings,
            work(self._clock),
            self._begin,
            watcher,
        )
        self._prompts: dict[str, tuple[int, int]] = {}
        """Group -> row and occurrence."""
        self._tried: dict[str, Tried] = {}
        """Dataset row -> its history, as the sampler had it remembered."""
        self._failures: dict[str, int] = {}
        self._fed = self._fed_before = self._requested = self._version = 0
        self._behind_barrier: list[ResultAccepted] = []
        self._changed = True
        """False while nothing has happened but turns of trajectories."""
        self._to_train: deque[str] = deque()
        self._steps: list[TrainingStep] = []
        self._began_step = self._busy_before = self._lost = self._lost_slots = 0.0

    def run(self) -> TrainingOutcome:
        for _ in range(self._plan.ahead):
            self._request()
        if self._plan.trouble.dies_after_seconds is not None:
            self._clock.at(self._plan.trouble.dies_after_seconds, self._server_dies)
        while len(self._steps) < self._plan.steps:
            if self._changed:
                self._changed = False
                self._feed()
                self.queues.dispatch(self._version)
            self._advance()
        return TrainingOutcome(
            policy=self._policy.name,
            slots=self._plan.slots,
            steps=tuple(self._steps[self._plan.warm_up :]),
            groups_lost=self.sampler.state.groups_dead,
            lost_seconds=self._lost,
        )

    # The queues

    def _advance(self) -> None:
        happening = self._clock.next()
        if happening is None:
            raise PromptsExhausted("no job runs and the batch is not complete")
        if not isinstance(happening, Occupation):
            happening()
        elif self.queues.is_due(happening):
            self._ended(happening)

    def _ended(self, attempt: Occupation) -> None:
        self._changed = True
        self.queues.end(attempt)
        if attempt.fails:
            self._failed(attempt)
            return
        result = ResultAccepted(
            job_id=attempt.job,
            reward=attempt.draw.reward,
            weight_version=attempt.weight_version,
            seconds=attempt.draw.seconds,
        )
        if not self._policy.barrier:
            self._hear(result)
            return
        self._behind_barrier.append(result)
        if not (self.queues.running or self.queues.queued):
            together, self._behind_barrier = self._behind_barrier, []
            # In feeding order, whichever finished first: a barrier knows no length bias.
            for each in sorted(together, key=lambda each: _place(each.job_id)):
                self._hear(each)

    def _failed(self, attempt: Occupation) -> None:
        failures = self._failures[attempt.job] = self._failures.get(attempt.job, 0) + 1
        self._lose(attempt)
        if failures >= self._settings.max_infra_failures:
            self._hear(JobDied(job_id=attempt.job, reason="failed too often"))

    def _lose(self, attempt: Occupation) -> None:
        """Book a failed attempt, and requeue its Job at the head."""
        self._lost += attempt.ran
        self._hear(AttemptEnded(job_id=attempt.job, seconds=attempt.ran, ending=Ending.FAILED))
        self.queues.requeue(attempt.job)

    def _server_dies(self) -> None:
        """Lose a share of the Slots. Their Jobs are requeued, uncharged, once it is noticed."""
        trouble = self._plan.trouble
        slots = range(self._plan.slots // trouble.servers)
        self._lost_slots = float(len(slots))
        lost = self.queues.lose(slots)

        def noticed() -> None:
            for attempt in reversed(lost):  # each is requeued at the head, so the first goes last
                self._lose(attempt)

        self._clock.at(self._clock.now + trouble.detection_seconds, noticed)

    def _kind_of(self, job: str) -> int:
        """The kind of a Job: rows are of each in turn."""
        row, _ = self._prompts[group_and_member(job)[0]]
        return row % self._plan.kinds

    def _begin(self, job: str, tries: int, attempts: int) -> tuple[Draw, float, bool]:
        name, member = group_and_member(job)
        wanted = Try(*self._prompts[name], member, tries)
        draw = self._dataset.draw(wanted, self._version)
        fails_after = self._plan.trouble.fails_after(wanted, attempts)
        if fails_after is None:
            return draw, draw.seconds, False
        return draw, draw.seconds * fails_after, True

    # The trainer

    def _request(self) -> None:
        state = self.sampler.state
        event = BatchRequested(
            batch_id=f"step-{self._requested}",
            requested_batch_size=self._plan.requested_batch_size,
            weight_version=self._version + len(state.outstanding),
            begun=self.queues.begun(),
        )
        self._requested += 1
        self._hear(event)

    def _trained(self) -> None:
        self._version += 1
        self._hear(BatchAcknowledged(batch_id=self._to_train.popleft()))
        if self._to_train:
            self._train()
        self._request()

    def _train(self) -> None:
        self._clock.at(self._clock.now + self._plan.train_seconds, self._trained)

    def _delivered(self, decision: Deliver) -> None:
        members = self.sampler.state.members(decision.groups)
        now, busy = self._clock.now, self.queues.busy_seconds()
        seconds = now - self._began_step
        available = seconds * (self._plan.slots - self._lost_slots)
        account = decision.report.slot_seconds
        idle = available - (busy - self._busy_before)
        step = TrainingStep(
            seconds=seconds,
            slot_seconds=msgspec.structs.replace(account, idle=idle),
            available=available,
            bias=decision.report.bias,
            lengths=tuple(member.seconds for member in members),
            prompts=self._fed - self._fed_before,
        )
        self._steps.append(step)
        self._began_step, self._busy_before, self._fed_before = now, busy, self._fed
        self._to_train.append(decision.batch_id)
        if len(self._to_train) == 1:
            self._train()

    # The sampler

    def _feed(self) -> None:
        """Feed the Prompts that are wanted now."""
        if not self._policy.barrier:
            while self._wanted():
                self._feed_one()
        elif not (self.queues.running or self.queues.queued) and self.sampler.state.wanted:
            for _ in range(self._plan.requested_batch_size):
                self._feed_one()

    def _wanted(self) -> int:
        tasks = self.queues.tasks
        return prompts_wanted(
            self._settings,
            self.sampler.state,
            queued_jobs=tasks.that_count(self._settings.look_ahead_jobs),
            free_slots=tasks.free,
        )

    def _feed_one(self) -> None:
        if self._fed - self._fed_before > _MAX_FRUITLESS:
            raise PromptsExhausted(
                f"{_MAX_FRUITLESS} prompts did not complete a batch",
                fix="see whether the dataset has rows of which some trajectories are solved, "
                "others not",
            )
        name = f"g{self._fed}"
        prompt = self._prompts[name] = self._dataset.prompt(self._fed)
        self._fed += 1
        first = range(self._settings.first_members)
        self.queues.add(job_id(RUN, name, member) for member in first)
        row = str(prompt[0]) if self._settings.prediction.skip_by_history else ""
        self._hear(PromptFed(group_id=name, row=row, tried=self._tried.get(row)))

    def _hear(self, event: AnyEvent) -> None:
        """Let the sampler handle an event, and carry out its decisions."""
        self._changed = True
        for decision in self.sampler.handle(event):
            match decision:
                case Deliver():
                    self._delivered(decision)
                case Remember(row=row, tried=tried):
                    self._tried[row] = tried
                case _:
                    for ended in self.queues.carry_out(decision):
                        self._hear(ended)


def _place(job: str) -> tuple[int, int]:
    """Sort key of a Job in feeding order."""
    name, member = group_and_member(job)
    return int(name[1:]), member
