"""A stand-in for nltk, whose data are not there."""


def download(data: str, **_: object) -> bool:
    raise AssertionError(f"{data} would be downloaded")
