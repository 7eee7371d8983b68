"""Forks while another thread uses the bandit: the child can use it too."""

from __future__ import annotations

import os
import select
import signal
import threading
import time

import numpy as np
from common import DIM, Case, fresh, reward_of, works

SHARE = 1.0
TIME = 10.0  # seconds that the child has


def attack(case: Case) -> None:
    """One fork. (The moment is random in real time, so that a case repeats only roughly.)"""
    bandit = fresh(case)
    stop, seed = threading.Event(), int(case.rng.integers(2**32))
    thread = threading.Thread(target=use, args=(bandit, stop, seed), daemon=True)
    thread.start()
    try:
        time.sleep(case.rng.uniform(0.0, 0.02))
        done, tell = os.pipe()
        child = os.fork()
        if not child:
            answer = b"an exception: unknown"
            try:
                works(bandit, case.folder)
                answer = b"fine"
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}".encode()
            finally:
                os.write(tell, answer[:1000])
                os._exit(0)
        os.close(tell)
        answer = b""
        if select.select([done], [], [], TIME)[0]:
            answer = os.read(done, 1000)
        os.close(done)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    finally:
        stop.set()
        thread.join(TIME)
    if answer != b"fine":
        found = answer.decode() or f"it does not answer within {TIME:.0f} seconds"
        raise RuntimeError(f"a forked child cannot use the bandit: {found}")
    works(bandit, case.folder)


def use(bandit, stop: threading.Event, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while not stop.is_set():
        task = bandit.task(f"task {rng.integers(8)}")
        choice = task.choose(rng.normal(size=(4, DIM)))
        task.learn(choice, reward_of(bandit, rng))
        if rng.random() < 0.1:
            task.close()
