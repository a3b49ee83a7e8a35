"""A forked process does not wait for threads that it does not have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os, time, torch, oism.storage

def work():
    x = torch.ones(700, 700)
    return (x @ x).exp().sum().isnan()

torch.set_num_threads(2)
work()
pid = os.fork()
if not pid:
    work()
    os._exit(0 if torch.get_num_threads() == 1 else 1)
for _ in range(200):
    if os.waitpid(pid, os.WNOHANG)[0]:
        break
    time.sleep(0.1)
else:
    os.kill(pid, 9)
    raise SystemExit("the child does not end")
assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_ends_after_its_parent_has_used_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
