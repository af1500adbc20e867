"""A real Slurm on loopback for a test: one node of two CPUs, from the files of tools/slurm.sh.

No accounting, no munge, ports of its own; it is started in a folder and ends with the test.
"""

from __future__ import annotations

import getpass
import os
import platform
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILES = Path(__file__).parents[1] / ".slurm"
LIBRARIES = FILES / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
CONFIG = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SchedulerType=sched/backfill
KillWait=60
MinJobAge=60
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60 State=UP
"""


def present() -> bool:
    return (FILES / "usr" / "sbin" / "slurmctld-wlm").is_file()


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch and the others speak to a running Slurm."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    config = CONFIG.format(
        host=host,
        user=getpass.getuser(),
        ports=free_ports(),
        plugins=LIBRARIES / "slurm-wlm",
        folder=folder,
    )
    (folder / "slurm.conf").write_text(config)
    libraries = f"{LIBRARIES}:{LIBRARIES / 'slurm-wlm'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    env = {
        **os.environ,
        "PATH": f"{FILES / 'usr' / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": libraries,
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    sbin = FILES / "usr" / "sbin"
    commands = [
        [sbin / "slurmctld-wlm", "-D"],
        [sbin / "slurmd-wlm", "-D", "-d", sbin / "slurmstepd-wlm"],
    ]
    running = []
    try:
        for command in commands:
            log = (folder / f"{Path(command[0]).name}.out").open("wb")
            running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        until = time.monotonic() + 60
        while "idle" not in ask(env, "sinfo", "-h", "-o", "%t"):
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.5)
        yield env
    finally:
        subprocess.run(["scancel", "--full", "-u", getpass.getuser()], env=env, check=False)
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def ask(env: dict[str, str], *words: str) -> str:
    found = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    return found.stdout


def free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
