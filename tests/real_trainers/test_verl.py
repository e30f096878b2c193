"""verl 0.9.1 itself: its TransferQueue, replay buffer, advantages and losses on our Batches, its
registries and its configuration. Its workers need a GPU."""

import asyncio
import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch
import transfer_queue
import verl.trainer as verls_trainer
from dapo import dapo_loss, taken_logprobs, to_tensors
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import load_class_from_fqn
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import get_rollout_replica_class

from rollyard.client import Client
from rollyard.messages import Batch
from rollyard.trainers import advantages
from rollyard.trainers.sequences import rewards, training_sequences
from rollyard.trainers.verl import Rollouts, data_proto, register
from rollyard.trainers.verl.config import weights_of
from rollyard.training_run import TrainingRun
from tests.real_trainers.conftest import GROUPS
from tests.trainers.sampled import GROUP_SIZE

pytestmark = pytest.mark.timeout(300)
TEMPERATURE = 0.7


@pytest.fixture(scope="session")
def policy(policy_dir: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)


@pytest.fixture
def config(policy_dir: Path, tmp_path: Path) -> Any:
    """As `python -m verl.trainer.main_ppo` makes it of these words."""
    words = [
        "actor_rollout_ref.rollout.name=rollyard",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=my_rollouts.Rollouts",
        f"+actor_rollout_ref.rollout.custom.checkpoints={tmp_path / 'weights'}",
        f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
        f"actor_rollout_ref.rollout.temperature={TEMPERATURE}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        f"actor_rollout_ref.model.path={policy_dir}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.actor.clip_ratio_low=0.2",
        "actor_rollout_ref.actor.clip_ratio_high=0.28",
        "actor_rollout_ref.actor.clip_ratio_c=10.0",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={GROUPS}",
        "algorithm.adv_estimator=grpo",
        "algorithm.rollout_correction.bypass_mode=True",
        f"data.train_batch_size={GROUPS}",
        f"trainer.default_local_dir={tmp_path / 'output'}",
    ]
    folder = Path(verls_trainer.__file__).parent / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", overrides=words)


def plain_loss(policy: Any, batch: Batch) -> float:
    """The example's, with verl's advantages: its deviation is of a sample, plus 1e-6."""
    tensors = to_tensors(batch, pad_token_id=0)
    found = advantages.grpo(*rewards(batch), correction=1, epsilon=1e-6)
    tensors = dataclasses.replace(tensors, advantages=torch.from_numpy(found).float())
    with torch.no_grad():
        logprobs = taken_logprobs(policy, tensors.token_ids, temperature=TEMPERATURE)
    return dapo_loss(logprobs, tensors).item()


def verls_loss(policy: Any, config: Any, data: DataProto) -> float:
    """verl's clipped loss, on the logprobs of `policy`."""
    own = data.batch
    width = own["responses"].shape[1]
    with torch.no_grad():
        logits = policy(
            own["input_ids"],
            attention_mask=own["attention_mask"],
            position_ids=own["position_ids"],
        ).logits
    taken = (logits[:, -width - 1 : -1] / TEMPERATURE).log_softmax(-1)
    loss, _ = core_algos.get_policy_loss_fn("vanilla")(
        old_log_prob=own["old_log_probs"],
        log_prob=taken.gather(-1, own["responses"][..., None])[..., 0],
        advantages=own["advantages"],
        response_mask=own["response_mask"],
        loss_agg_mode="token-mean",
        config=omega_conf_to_dataclass(config.actor_rollout_ref.actor),
    )
    return float(loss)


def test_its_loss_on_a_data_proto_is_the_plain_loops(
    policy: Any, config: Any, batch: Batch
) -> None:
    data = data_proto(batch, pad_token_id=0)
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    data.batch["old_log_probs"] = data.batch["rollout_log_probs"]
    data = compute_advantage(data, adv_estimator=core_algos.AdvantageEstimator.GRPO)
    loss = verls_loss(policy, config, data)
    assert loss == pytest.approx(plain_loss(policy, batch), abs=1e-5)
    assert abs(loss) > 1e-3


def test_a_data_proto_is_cut_joined_and_reordered_as_verl_does(batch: Batch) -> None:
    data = data_proto(batch, pad_token_id=0)
    again = DataProto.concat(data.chunk(GROUPS))
    again.reorder(torch.arange(len(data)))
    assert torch.equal(again.batch["input_ids"], data.batch["input_ids"])
    assert data.union(again).non_tensor_batch["uid"].tolist() == [
        group.group_id for group in batch.groups for _ in group.results
    ]


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    transfer_queue.init(
        OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}})
    )
    yield
    transfer_queue.close()
    ray.shutdown()


@pytest.fixture
def trainer(queue: None, config: Any, client: Client, run: TrainingRun) -> Any:
    """verl's trainer without its workers, and our manager as its command makes it."""

    class Own(Rollouts):
        taken: list[Batch] = []

        @classmethod
        def start(cls, config: Any) -> tuple[Client, TrainingRun]:
            return client, run

        def received(self, batch: Batch, step: int) -> None:
            self.taken.append(batch)

        def evaluated(self, prompts: Sequence[Mapping[str, Any]]) -> Batch:
            self.asked = [self.row(prompt) for prompt in prompts]
            return run.rollout(len(prompts))

    trainer = object.__new__(PPOTrainerSync)
    trainer.config = config
    trainer.trainer_mode = "sync"
    trainer.global_steps = 1
    trainer.replay_buffer = trainer._build_replay_buffer()
    trainer.replay_buffer.poll_interval = 0.05
    trainer.agent_loop_manager = Own.create(
        config=config, llm_client=None, teacher_client=None, reward_loop_worker_handles=[]
    )
    weights = weights_of(Path(config.actor_rollout_ref.rollout.custom.checkpoints), 0)
    weights.mkdir(parents=True)
    (weights / "model.safetensors").touch()
    return trainer


def tensordict_of(rows: Sequence[dict[str, Any]], *, step: int) -> Any:
    """As verl's trainer makes it of its dataloader's rows."""
    given: dict[str, Any] = {name: objects([row[name] for row in rows]) for name in rows[0]}
    given["uid"] = objects([str(uuid.uuid4()) for _ in rows])
    given["dummy_tensor"] = torch.zeros(len(rows), 1, dtype=torch.uint8)
    prompts = tensordict_utils.get_tensordict(given)
    tensordict_utils.assign_non_tensor_data(prompts, "global_steps", step)
    return prompts


def objects(values: Sequence[Any]) -> Any:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def test_a_step_of_its_trainer_is_on_a_batch_and_its_loss_is_the_plain_loops(
    trainer: Any, policy: Any, config: Any
) -> None:
    metrics: dict[str, Any] = {}
    row = {"raw_prompt": [{"role": "user", "content": "-"}]}
    trainer._submit_batch_to_rollout(tensordict_of([row] * GROUPS, step=1))
    sampled, _ = trainer.replay_buffer.sample(1, "train", GROUPS)
    sampled = trainer._compute_old_log_prob(sampled, metrics)
    trainer._compute_advantage(sampled, metrics)
    names = ["prompts", "responses", "response_mask", "old_log_probs", "advantages", "uid"]
    stored = transfer_queue.kv_batch_get(
        keys=sampled.keys, partition_id="train", select_fields=names
    )
    (batch,) = trainer.agent_loop_manager.taken
    assert len(sampled.keys) == len(training_sequences(batch))
    assert len(set(stored["uid"])) == GROUPS
    data = DataProto(batch=stored.exclude("uid").to_padded_tensor())
    right = [data.batch[name] for name in ("prompts", "responses")]
    lengths = torch.tensor([[tag["prompt_len"], tag["response_len"]] for tag in sampled.tags])
    data.batch["input_ids"] = torch.cat(right, dim=1)
    data.batch["attention_mask"] = torch.cat(
        [
            torch.arange(each.shape[1]) < own[:, None]
            for each, own in zip(right, lengths.T, strict=True)
        ],
        dim=1,
    ).long()
    data.batch["position_ids"] = (data.batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    assert verls_loss(policy, config, data) == pytest.approx(plain_loss(policy, batch), abs=1e-5)


def test_its_validation_reads_rewards_beside_the_columns_of_its_files(trainer: Any) -> None:
    rows: list[dict[str, Any]] = [
        {
            "raw_prompt": [{"role": "user", "content": "-"}],
            "data_source": "arithmetic",
            "extra_info": {"question": f"{number}*2"},
            "reward_model": {"ground_truth": str(number * 2)},
        }
        for number in range(GROUPS)
    ]
    prompts = tensordict_of(rows, step=0)
    tensordict_utils.assign_non_tensor_data(prompts, "validate", True)
    tag = {"is_prompt": True, "status": "pending", "global_steps": 0}
    transfer_queue.kv_batch_put(keys=list(prompts["uid"]), partition_id="val", tags=[tag] * GROUPS)
    trainer.agent_loop_manager.generate_sequences(prompts)
    assert trainer.agent_loop_manager.asked == [
        {"data_source": "arithmetic", **row["extra_info"]} for row in rows
    ]
    sampled, _ = trainer.replay_buffer.sample(0, "val", GROUPS)
    names = ["uid", "rm_scores", "num_turns", "reward_model", "data_source", "extra_fields"]
    stored = transfer_queue.kv_batch_get(keys=sampled.keys, partition_id="val", select_fields=names)
    truths = [each["ground_truth"] for each in stored["reward_model"]]
    assert truths == [str(number * 2) for number in range(GROUPS) for _ in range(GROUP_SIZE)]
    assert stored["rm_scores"].sum(dim=1).tolist() == [0.0, 1.0] * (GROUPS * GROUP_SIZE // 2)
    assert set(stored["data_source"]) == {"arithmetic"}


def test_its_rollout_backend_writes_what_transformers_loads(
    policy: Any, policy_dir: Path, config: Any
) -> None:
    register()
    assert get_rollout_replica_class("rollyard").__name__ == "NoServers"
    backend = object.__new__(get_rollout_class("rollyard"))
    backend.config = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    backend.model_config = SimpleNamespace(
        hf_config=AutoConfig.from_pretrained(policy_dir),
        tokenizer=AutoTokenizer.from_pretrained(policy_dir),
    )
    weights = iter(policy.state_dict().items())
    asyncio.run(
        backend.update_weights(weights, peft_config=None, base_sync_done=True, global_steps=7)
    )
    written = weights_of(Path(config.actor_rollout_ref.rollout.custom.checkpoints), 7)
    again = AutoModelForCausalLM.from_pretrained(written, dtype=torch.float32)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert AutoTokenizer.from_pretrained(written).vocab_size


def test_a_replica_starts_no_server(config: Any) -> None:
    register()
    rollout = config.actor_rollout_ref.rollout
    replica = get_rollout_replica_class("rollyard")(0, rollout, None, gpus_per_node=1)
    workers = SimpleNamespace(workers=[object(), object()])

    async def live() -> None:
        await replica.init_hybrid(workers)
        await replica.sleep()
        await replica.wake_up()

    rollout.tensor_model_parallel_size = 1
    asyncio.run(live())
    assert replica.servers == []


def test_verl_finds_the_manager_by_its_name() -> None:
    assert load_class_from_fqn("rollyard.trainers.verl.Rollouts") is Rollouts
