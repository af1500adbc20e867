"""The first process in the sandbox: lock itself in, then split into the program and its judge.

Order: the job (limits and program, on stdin), another user, resource limits, no new privileges,
Landlock, the split, then the number of threads and seccomp in each half. Only then does the judge
read the tests.
"""

from __future__ import annotations

import os

from . import judge, lock, program, syscalls, wire

# numpy would start a thread per core, which takes address space, and fails when it cannot
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    job = wire.load(0)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    if job["drop"]:
        lock.drop(job["drop"], job["keep_search"])
    os.chdir(job["folder"])
    locked = lock.limit(job["limits"])
    walls = locked and job["landlock"]
    walls = walls and lock.landlock(job["readable"], job["folder"], job["sized"])
    if os.geteuid() == 0 or (job["keep_search"] and not walls):
        os._exit(3)  # never as root, and never with its right to read everything
    lock.die_with(0)

    def sift() -> bool:
        lock.limit_threads(job["limits"]["processes"])
        wanted = locked and job["seccomp"]
        return bool(wanted and syscalls.seccomp(bool(walls or job["contained"]), job["sized"]))

    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    if "typing" in job["prelude"]:  # slow, and both halves run the prelude
        __import__("typing")
    questions, answers = os.pipe(), os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        for handle in (job["tests"], job["report"], questions[1], answers[0], nothing):
            os.close(handle)
        lock.die_with(parent)
        pipe = wire.Pipe(questions[0], answers[1])
        pipe.send(wire.encode((bool(walls), sift()), repr))
        leave = os._exit
        try:
            program.serve(job, pipe)
        finally:  # no exit handlers of the program's
            leave(1)
    for handle in (questions[0], answers[1]):
        os.close(handle)
    for stream in (1, 2):  # the output is the program's
        os.dup2(nothing, stream)
    sift()
    judge.run(
        wire.load(job["tests"]), wire.Pipe(answers[0], questions[1]), child, job["report"], job
    )
    os._exit(0)
