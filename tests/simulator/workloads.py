"""Small workloads that tests write down."""

from simulator.dataset import Draw, Try


class Written:
    """Row, member -> Draw, the same at every try; rows in order, again and again."""

    def __init__(self, *rows: list[Draw]) -> None:
        self._rows = rows
        self.rows = len(rows)
        self.asked: list[Try] = []

    def prompt(self, number: int) -> tuple[int, int]:
        occurrence, row = divmod(number, self.rows)
        return row, occurrence

    def draw(self, wanted: Try, weight_version: int) -> Draw:
        self.asked.append(wanted)
        return self._rows[wanted.row][wanted.member]


def row(*draws: tuple[float, float]) -> list[Draw]:
    return [Draw(*each) for each in draws]
