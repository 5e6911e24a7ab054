"""Killing a run at a moment that is told."""

import signal
import subprocess
import time
from collections.abc import Callable


def kill_when(process: "subprocess.Popen[bytes]", ready: Callable[[], bool], seconds: float = 120) -> None:
    """Send SIGKILL once ``ready``; a process that ends before, or takes longer, fails the test."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
