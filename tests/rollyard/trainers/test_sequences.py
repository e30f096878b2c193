import msgspec
import numpy as np
import pytest

from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Outcome, Sequence
from rollyard.trainers.packing import packed
from rollyard.trainers.padding import Side, padded
from rollyard.trainers.sequences import NOT_SAMPLED, rewards, training_sequences
from tests.trajectories import batch, group, trajectory

TALK = trajectory(("given", [1, 2]), ("sampled", [3, 4]), ("given", [5]), ("sampled", [6]))
SHORT = trajectory(("given", [1]), ("sampled", [9]), versions=(7,))
SILENT = trajectory(("given", [1, 2, 3]))


def a_batch() -> Batch:
    return batch(group("a", (1.0, TALK), (0.0, SHORT)), group("b", (0.5, SILENT), (0.0, SHORT)))


def test_each_sequence_has_the_tokens_masks_logprobs_and_versions_of_its_trajectory() -> None:
    talk, short, silent, _ = training_sequences(a_batch())
    assert talk.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert talk.loss_mask.tolist() == [False, False, True, True, False, True]
    assert talk.logprobs.tolist() == [0, 0, -1, -1, 0, -1]
    assert talk.weight_versions.tolist() == [NOT_SAMPLED, NOT_SAMPLED, 0, 0, NOT_SAMPLED, 0]
    assert short.weight_versions.tolist() == [NOT_SAMPLED, 7]
    assert (talk.prompt_length, short.prompt_length, silent.prompt_length) == (2, 1, 3)
    assert not silent.loss_mask.any()


def test_sequences_know_their_trajectory_group_and_reward() -> None:
    sequences = training_sequences(a_batch())
    assert [(s.group, s.trajectory, s.reward) for s in sequences] == [
        (0, 0, 1.0),
        (0, 1, 0.0),
        (1, 2, 0.5),
        (1, 3, 0.0),
    ]


def test_all_sequences_of_a_split_trajectory_have_its_reward() -> None:
    earlier = Sequence(
        token_ids=SHORT.token_ids,
        loss_mask=SHORT.loss_mask,
        logprobs=SHORT.logprobs,
        weight_spans=SHORT.weight_spans,
        turns=SHORT.turns,
    )
    split = msgspec.structs.replace(TALK, earlier=(earlier,), truncated=True)
    sequences = training_sequences(batch(group("a", (1.0, split), (0.0, SHORT))))
    assert [(s.trajectory, s.reward, s.truncated, len(s)) for s in sequences] == [
        (0, 1.0, True, 2),
        (0, 1.0, True, 6),
        (1, 0.0, False, 2),
    ]
    assert rewards(batch(group("a", (1.0, split), (0.0, SHORT))))[0].tolist() == [1.0, 0.0]


def test_a_result_without_a_trajectory_is_refused_by_the_name_of_its_job() -> None:
    (whole,) = batch(group("a", (1.0, TALK))).groups
    result = msgspec.structs.replace(
        whole.results[0], outcome=Outcome.INFRA_FAILED, grade=None, trajectory=None
    )
    spoilt = msgspec.structs.replace(whole, results=(result,))
    with pytest.raises(InvalidMessage, match="a-0"):
        training_sequences(batch(spoilt))


def test_arrays_are_views_that_cannot_be_written_to() -> None:
    sequence = training_sequences(a_batch())[0]
    with pytest.raises(ValueError, match="read-only"):
        sequence.token_ids[0] = 0


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_sequences_are_theirs_and_padding(side: Side) -> None:
    sequences = training_sequences(a_batch())
    rows = padded(sequences, pad_token_id=99, side=side, multiple_of=4)
    assert rows.token_ids.shape == (4, 8)
    assert rows.lengths.tolist() == [6, 2, 3, 2]
    for row, sequence in enumerate(sequences):
        here = rows.attention_mask[row]
        assert here.sum() == len(sequence)
        assert here[0 if side == "right" else -1]
        assert rows.token_ids[row][here].tolist() == sequence.token_ids.tolist()
        assert rows.logprobs[row][here].tolist() == sequence.logprobs.tolist()
        assert rows.loss_mask[row][here].tolist() == sequence.loss_mask.tolist()
        assert rows.weight_versions[row][here].tolist() == sequence.weight_versions.tolist()
        assert set(rows.token_ids[row][~here]) <= {99}
        assert not rows.loss_mask[row][~here].any()
        assert not rows.logprobs[row][~here].any()
        assert set(rows.weight_versions[row][~here]) <= {NOT_SAMPLED}
    assert rows.groups.tolist() == [0, 0, 1, 1]
    assert rows.trajectories.tolist() == [0, 1, 2, 3]


def test_packs_have_every_sequence_once_and_none_too_many_tokens() -> None:
    sequences = training_sequences(a_batch())
    packs = packed(sequences, max_tokens=7)
    assert all(len(pack) <= 7 for pack in packs)
    assert sorted(np.concatenate([pack.sequences for pack in packs])) == [0, 1, 2, 3]
    for pack in packs:
        for number, start, end in zip(
            pack.sequences, pack.starts[:-1], pack.starts[1:], strict=True
        ):
            sequence = sequences[number]
            assert pack.token_ids[start:end].tolist() == sequence.token_ids.tolist()
            assert pack.loss_mask[start:end].tolist() == sequence.loss_mask.tolist()
            assert pack.logprobs[start:end].tolist() == sequence.logprobs.tolist()
            assert pack.weight_versions[start:end].tolist() == sequence.weight_versions.tolist()
            assert pack.positions[start:end].tolist() == list(range(len(sequence)))
        assert pack.starts[-1] == len(pack)


def test_a_sequence_that_fits_in_no_pack_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="6 tokens fits in no pack of 5"):
        packed(training_sequences(a_batch()), max_tokens=5)


def test_an_empty_batch_is_empty_arrays() -> None:
    nothing = batch()
    assert training_sequences(nothing) == []
    assert padded([], pad_token_id=0).token_ids.shape == (0, 1)
    assert packed([], max_tokens=8) == []
    assert [len(each) for each in rewards(nothing)] == [0, 0]
