"""The reward for exactly the expected answer, blanks around it aside: 1.0, else 0.0."""


def exact_match(answer: str, expected: str) -> float:
    return float(answer.strip() == expected.strip())
