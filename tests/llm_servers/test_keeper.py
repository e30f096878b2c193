"""The keeper of published weights: it holds up nothing that is to end."""

import subprocess
import sys

from tests.llm_fixtures import ROOT

PATIENCE_SECONDS = 30.0
ENDS_WHILE_A_LOAD_HANGS = """
import threading
from llm_servers.keeper import Keeper

class Hangs:
    def restore(self, published):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
keeper = Keeper(Hangs(), lambda: None)
keeper.obey(None)
begun.wait()
keeper.obey(None)
"""


def test_a_process_ends_although_an_llm_server_does_not_come_back_with_its_weights() -> None:
    command = [sys.executable, "-c", ENDS_WHILE_A_LOAD_HANGS]
    ended = subprocess.run(command, cwd=ROOT, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0
