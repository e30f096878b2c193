"""prime-rl's own types on our files, where PRIME_RL_PATH names a checkout: it is in no registry."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollyard.messages import Batch
from rollyard.trainers.prime_rl import MicroBatch, PrimeTrainer, micro_batches, untrained

CHECKOUT = os.environ.get("PRIME_RL_PATH")
pytestmark = pytest.mark.skipif(CHECKOUT is None, reason="PRIME_RL_PATH names no checkout")


@pytest.fixture
def theirs() -> Any:
    file = Path(CHECKOUT or "") / "src/prime_rl/transports/rollouts/types.py"
    spec = importlib.util.spec_from_file_location("prime_rl_types", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prime_rl_types"] = module
    spec.loader.exec_module(module)
    return module.MicroBatch


def test_its_receiver_decodes_what_is_written(
    theirs: Any, batch: Batch, policy_dir: Path, tmp_path: Path
) -> None:
    trainer = PrimeTrainer(output_dir=tmp_path, model=policy_dir, data_ranks=1, sequence_tokens=64)
    whole = micro_batches(batch, trainer, 0.7)
    whole.append(untrained(whole[0]))
    again = msgspec.msgpack.Decoder(list[theirs]).decode(msgspec.msgpack.encode(whole))
    for ours, own in zip(whole, again, strict=True):
        for name in MicroBatch.__struct_fields__:
            assert getattr(own, name) == getattr(ours, name), name
        assert (own.rl_weights, own.ce_weights, own.mm_kwargs) == (None, None, None)
