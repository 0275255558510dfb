"""Starts several processes as launchers do: mpirun; srun, of a Slurm that is set up on this machine; and, by the
variables that they set, torchrun, an Indexed Job of Kubernetes and TF_CONFIG.

mpirun and Slurm are Debian's; tools/test installs them for tests with the tag "launchers".
"""

import concurrent.futures
import contextlib
import getpass
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

DEADLINE = 300  # seconds for the processes of one start, which take a few on an idle machine
START_DEADLINE = 300  # seconds for Slurm, which takes about one on an idle machine
PACKAGES = ("libpmix-dev", "libpmix2", "munge", "openmpi-bin", "slurm-wlm")
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"  # Slurm's daemons are in sbin
# Sockets have short names only, and a test's own temporary folder a long one.
ENVIRONMENT = {**os.environ, "PATH": PATH, "TMPDIR": "/tmp"}
# mpirun refuses root without them.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NODES = ("127.0.0.11", "127.0.0.12", "127.0.0.13")

SLURM_CONF = """\
ClusterName=official
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
FirstJobId={first_job}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
"""
NODE_CONF = "NodeName={node} NodeHostname={host} NodeAddr={node} Port={port} CPUs=2 State=UNKNOWN"


class Ended(NamedTuple):
    """How a process ended; `code` is that of subprocess."""

    code: int
    stdout: str
    stderr: str


def check_installed() -> None:
    """Raises an error with what to install if a program or library is missing."""
    programs = ("mpirun", "munged", "slurmctld", "slurmd", "srun", "sinfo")
    missing = [program for program in programs if shutil.which(program, path=PATH) is None]
    # Slurm's plugin loads the library by the name that only the package for developers has.
    if not any(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so")):
        missing.append("libpmix.so")
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found; tools/test installs them, or tools/setup {' '.join(PACKAGES)}")


def execute(command: list[str], timeout: float = DEADLINE, env: dict[str, str] | None = None) -> Ended:
    """Runs a command; if it takes longer, ends it and whatever it started, and raises subprocess.TimeoutExpired."""
    process = subprocess.Popen(
        command,
        env={**ENVIRONMENT, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        # mpirun and srun then end their processes, also those in other sessions.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"not done after {timeout} s: {' '.join(command)}\n{stdout}{stderr}") from error
    return Ended(process.returncode, stdout, stderr)


def mpirun(command: list[str], workers: int, **options) -> Ended:
    """Runs the processes on this machine, more than it has cores if need be."""
    return execute(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(workers), *command], env=AS_ROOT, **options)


def start_each(command: list[str], variables: list[dict[str, str]], **options) -> list[Ended]:
    """Runs one process for each of the sets of variables, at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(variables)) as pool:
        return list(pool.map(lambda env: execute(command, env=env, **options), variables))


def _can_listen(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def torchrun(command: list[str], workers: int, **options) -> list[Ended]:
    """What torchrun --no-python --standalone of PyTorch 2.15 does: it listens at the port that it tells its processes."""
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        while not _can_listen(agent.getsockname()[1] + 1):  # where the workers meet
            agent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        job = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(agent.getsockname()[1]),
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        return start_each(command, [{**job, "RANK": str(i), "LOCAL_RANK": str(i)} for i in range(workers)], **options)


def indexed_job(command: list[str], workers: int, **options) -> list[Ended]:
    """The pods of an Indexed Job of Kubernetes; `command` has the flag --workers."""
    return start_each(command, [{"JOB_COMPLETION_INDEX": str(i)} for i in range(workers)], **options)


def tf_config(command: list[str], addresses: list[str], **options) -> list[Ended]:
    """A worker at each address, of which the first is the chief."""
    tasks = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(len(addresses))]
    return start_each(command, [{"TF_CONFIG": json.dumps(task)} for task in tasks], **options)


_kept: list[socket.socket] = []  # of free_ports


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 at which nothing listens.

    They stay bound for as long as this process lives, so that nobody else is given them. A program that sets
    SO_REUSEADDR, as all servers do that may start again, can listen there.
    """
    for _ in range(count):
        _kept.append(socket.socket())
        _kept[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _kept[-1].bind(("127.0.0.1", 0))
    return [kept.getsockname()[1] for kept in _kept[len(_kept) - count :]]


class Slurm(contextlib.AbstractContextManager):
    """A Slurm with three nodes, 127.0.0.11 to 127.0.0.13, which are this machine. Needs no rights but the user's own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm.", dir="/tmp"))
        self.folder.chmod(0o755)  # munged wants all users to reach its socket
        self.env = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons: list[subprocess.Popen] = []
        # Jobs of two Slurms at the same time, which count from different numbers, take different ports.
        ports, host = free_ports(1 + len(NODES)), socket.gethostname().split(".")[0]
        nodes = [NODE_CONF.format(node=node, host=host, port=port) for node, port in zip(NODES, ports[1:])]
        text = SLURM_CONF.format(
            folder=self.folder,
            host=host,
            ports=ports,
            user=getpass.getuser(),
            first_job=random.randrange(1, 50_000),
            nodes="\n".join(nodes),
        )
        (self.folder / "slurm.conf").write_text(text)
        for name in ("state", *(f"{kind}.{node}" for kind in ("spool", "tmp") for node in NODES)):
            (self.folder / name).mkdir()

    def __enter__(self) -> "Slurm":
        try:
            self._start_munged()
            self._start("slurmctld", "slurmctld", "-D")
            for node in NODES:
                self._start(f"slurmd.{node}", "slurmd", "-D", "-N", node)
            self._wait("the nodes", lambda: execute(["sinfo", "-h", "-N", "-o", "%T"], env=self.env).stdout.split() == ["idle"] * 3)
        except BaseException:
            self.__exit__()
            raise
        return self

    def execute(self, command: list[str], env: dict[str, str] | None = None, **execute_options) -> Ended:
        """Runs a command of Slurm, such as sbatch."""
        return execute(command, env={**self.env, **(env or {})}, **execute_options)

    def srun(self, command: list[str], *options: str, env: dict[str, str] | None = None, **execute_options) -> Ended:
        return self.execute(["srun", "--quiet", *options, *command], env, **execute_options)

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = {name: self.folder / f"munge.{name.split('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")}
        self._start("munged", "munged", "--foreground", f"--key-file={key}", *(f"--{name}={path}" for name, path in files.items()))
        self._wait("munged", files["socket"].exists)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.output").open("w") as output:
            env = {**ENVIRONMENT, **self.env}
            self.daemons.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output))

    def _wait(self, what: str, ready) -> None:
        until = time.monotonic() + START_DEADLINE
        while not ready():
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if ended or time.monotonic() > until:
                told = "".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("*.output")))
                raise AssertionError(f"Slurm does not start: {', '.join(ended) or what} failed\n{told}")
            time.sleep(0.05)

    def __exit__(self, *_) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
        self._kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_all(self) -> None:
        """Kills what is left. Daemons, the processes that they leave behind and tasks have the folder in the environment."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.env["SLURM_CONF"]) in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        for daemon in self.daemons:
            daemon.wait()
