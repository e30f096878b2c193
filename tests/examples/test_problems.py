from collections.abc import Iterable
from itertools import islice

from problems import HELD_OUT_PROBLEMS, Row, held_out_rows, train_rows, training_dataloader


def products(rows: Iterable[Row]) -> set[tuple[str, ...]]:
    return {tuple(sorted(row["question"].split("*"))) for row in rows}


def test_no_held_out_product_is_trained_in_either_order() -> None:
    assert products(train_rows()).isdisjoint(products(held_out_rows()))


def test_the_split_covers_every_problem_once() -> None:
    ids = [row["instance_id"] for row in [*train_rows(), *held_out_rows()]]
    assert len(ids) == len(set(ids)) == 90 * 90
    assert len(held_out_rows()) == HELD_OUT_PROBLEMS


def test_the_split_is_the_same_every_time() -> None:
    assert held_out_rows() == held_out_rows()
    assert held_out_rows()[0] == {
        "data_source": "arithmetic",
        "instance_id": "60x69",
        "question": "60*69",
        "answer": "4140",
    }


def test_answers_are_the_products() -> None:
    for row in held_out_rows():
        left, right = row["question"].split("*")
        assert int(row["answer"]) == int(left) * int(right)


def test_the_training_dataloader_repeats_for_its_seed_and_never_ends() -> None:
    count = len(train_rows()) + 5
    rows = list(islice(training_dataloader(3), count))
    assert rows == list(islice(training_dataloader(3), count))
    assert rows[:5] != list(islice(training_dataloader(4), 5))
    assert products(rows[: count - 5]) == products(train_rows())
    assert rows[-5:] != rows[:5]
