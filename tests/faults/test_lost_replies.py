"""Fault 3 of the fault catalogue in docs/reliability.md: a request arrives and its reply is lost.

Whoever hears nothing asks again, and is told what it would have heard the first time.
"""

import pytest

from tests.faults.conftest import MakeDeployment
from tests.faults.scale import scaled, timeout_seconds


@pytest.mark.timeout(timeout_seconds(900))
@pytest.mark.parametrize("seed", range(scaled(1, 5)))
def test_nothing_is_doubled_while_one_reply_in_ten_is_lost(
    make_deployment: MakeDeployment, seed: int
) -> None:
    deployment = make_deployment(seed=seed, lost_reply_share=0.1)
    deployment.start()
    deployment.train()
    deployment.wait_for_progress(scaled(300, 2000), seconds=scaled(60, 600))
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
    assert verdict.duplicates == 0
    assert deployment.proxy is not None
    assert deployment.proxy.lost >= verdict.accepted // 20
