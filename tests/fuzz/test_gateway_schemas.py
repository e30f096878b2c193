"""The gateway does what the public documents of its protocols say."""

from pathlib import Path

from tests.fuzz.cases import SEED, cases
from tests.fuzz.conftest import MAX_GROWTH_BYTES, HostedGateway
from tests.fuzz.schemathesis_run import Schemathesis

HERE = Path(__file__).parent
DOCUMENT = HERE / "gateway.yaml"


def test_any_request_is_answered_in_its_protocol(hosted: HostedGateway, tmp_path: Path) -> None:
    session, before, few = hosted.open(), hosted.resident_bytes(), cases(4)
    schemathesis = Schemathesis(DOCUMENT, HERE / "gateway.toml", session.key, tmp_path)
    here = ("--url", session.url, "--phases", "fuzzing", "--max-examples", str(few))
    report = schemathesis.run(SEED, *here)
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert hosted.resident_bytes() - before < MAX_GROWTH_BYTES
    recorded = hosted.close(session)
    assert recorded.exact
    assert recorded.responses >= few / 2, "too few requests got as far as the policy"
