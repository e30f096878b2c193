"""The learner: the policy being trained, its optimizer and its checkpoints.

- Knows tensors and files, not Rollyard's services.
- Keeps the last two checkpoints: the one being served, and the one about to be.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from dapo import TrainingBatch, dapo_loss, largest_gap, taken_logprobs
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rollyard.errors import RollyardError
from rollyard.messages import TokenArray

CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    learning_rate: float = 3e-4
    minibatches: int = 4
    """Optimizer steps on each Batch; every sequence is used once."""
    max_gradient_norm: float = 1.0
    temperature: float = 1.0
    """Temperature at which the LLM servers sample: what is trained is the distribution that was
    sampled."""
    seed: int = 0


class Learner:
    """One policy in training. Its weight version is `version`, which each update raises."""

    def __init__(self, policy_dir: Path, work_dir: Path, config: LearnerConfig) -> None:
        self._policy = _load(policy_dir)
        self._tokenizer = AutoTokenizer.from_pretrained(policy_dir)
        self._work_dir = work_dir
        self._config = config
        self._shuffles = torch.Generator().manual_seed(config.seed)
        self._optimizer = torch.optim.AdamW(
            self._policy.parameters(), lr=config.learning_rate, weight_decay=0.0
        )
        self.version = 0

    @property
    def pad_token_id(self) -> int:
        token_id: int = self._policy.config.pad_token_id
        return token_id

    @torch.no_grad()
    def gap(self, batch: TrainingBatch) -> float:
        """The largest |trainer - rollout| logprob of what the current weights sampled."""
        return largest_gap(self._sampled_logprobs(batch), batch, self.version)

    @torch.no_grad()
    def logprobs(self, token_ids: TokenArray) -> torch.Tensor:
        """Logprob of each token given those before it, [tokens] float32, at temperature 1 as LLM
        servers score; 0.0 for the first."""
        row = torch.frombuffer(token_ids, dtype=torch.int32).long()
        return taken_logprobs(self._policy, row[None])[0]

    def update(self, batch: TrainingBatch) -> float:
        """Make one pass over `batch` in shuffled minibatches, and return the mean loss."""
        order = torch.randperm(len(batch), generator=self._shuffles)
        losses = [
            self._optimize(batch.rows(index)) for index in order.chunk(self._config.minibatches)
        ]
        self.version += 1
        return sum(losses) / len(losses)

    def save(self) -> Path:
        """Write the current weights as a checkpoint that an LLM server can load."""
        directory = self._work_dir / f"version-{self.version}"
        shutil.rmtree(directory, ignore_errors=True)
        self._policy.save_pretrained(directory)
        self._tokenizer.save_pretrained(directory)
        outdated = self._work_dir / f"version-{self.version - CHECKPOINTS_KEPT}"
        shutil.rmtree(outdated, ignore_errors=True)
        return directory.resolve()

    def _optimize(self, batch: TrainingBatch) -> float:
        loss = dapo_loss(self._sampled_logprobs(batch), batch)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._config.max_gradient_norm)
        self._optimizer.step()
        return loss.item()

    def _sampled_logprobs(self, batch: TrainingBatch) -> torch.Tensor:
        return taken_logprobs(self._policy, batch.token_ids, temperature=self._config.temperature)


def _load(policy_dir: Path) -> PreTrainedModel:
    if not (policy_dir / "config.json").is_file():
        raise RollyardError(
            f"there is no policy at {policy_dir}",
            fix="give --policy a directory with config.json and model.safetensors",
        )
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)
    if policy.config.tie_word_embeddings:
        raise RollyardError(
            f"the policy at {policy_dir} has tied embeddings, which LLM servers reload wrongly",
            fix="save it with tie_word_embeddings=False and its own lm_head.weight",
        )
    return policy.eval()
