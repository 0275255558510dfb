"""Emulates what Kubernetes and its operators do with a manifest of tools/cluster/kubernetes.

A pod is a process with namespaces of its own: a network interface at a bridge, a file system with the mounts of its
volumes, the process number 1, and the user, groups and capabilities of its security context. As in a cluster, a pod's
name is known only some time after its start, and a pod that starts again has another address.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from official.workers import manifests, networks

NAMES_DELAY = 0.5  # seconds after which the others know the name of a pod
SETTLE = 120  # seconds in which workers notice that one of them is lost, which takes a few on an idle machine
DEADLINE = 600  # seconds for a run with its restarts, which takes about ten on an idle machine
PATH = "/usr/local/bin:/usr/bin:/bin"
NUMBERS = itertools.count(1)  # of the pods
SECRET = "0123456789abcdef0123456789abcdef"

# $1: the folder that becomes the root of the pod's files; $2: its /etc; $3: the programs. Then come the mounts,
# one in each argument, until "--", and the command.
ENTER = r"""
set -eu
root=$1 etc=$2 programs=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/{usr,etc,proc,dev,sys}
for each in bin sbin lib lib64; do cp -d "/$each" "$root"; done
mount --rbind /usr "$root/usr"
mount --bind "$programs" "$root/usr/local/bin"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount --bind "$etc" "$root/etc"
while [[ $1 != -- ]]; do
  IFS=: read -r source target option <<<"$1"
  shift
  mkdir -p "$root$target"
  if [[ $source == tmpfs ]]; then
    mount -t tmpfs -o mode=1777 tmpfs "$root$target"
  else
    mount --bind "$source" "$root$target"
  fi
  [[ $option != ro ]] || mount -o remount,bind,ro "$root$target"
done
shift
# The container is the first process of its namespace. Its status is that of this shell: 128 + N if signal N ended it.
exec unshare --pid bash -c '"$@" & wait "$!"' wait bash -euc '
  mount -t proc proc "$1/proc"
  mount -o remount,ro "$1"
  exec chroot "$@"
' container "$root" "$@"
"""


def enter_namespaces() -> None:
    """Starts this program again with namespaces in which it is root, and has other users, too."""
    networks.enter_namespaces("--map-root-user", "--map-auto")


class Ended(NamedTuple):
    """How a pod ended; `code` is the exit status that Kubernetes shows."""

    pod: str
    code: int
    told: str


class PodSpec(NamedTuple):
    """What an engine makes of a manifest for one pod."""

    hostname: str
    names: tuple[str, ...]  # by which the other pods find it, once they are known
    template: dict
    environment: dict[str, str]


class Cluster(contextlib.AbstractContextManager):
    """The machines on which pods run: a folder with the claims and secrets, and a network."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.pods: dict[str, Pod] = {}  # that run
        self.names: list[tuple[float, str, str]] = []  # time from which it is known, address, name

    def __exit__(self, *_) -> None:
        for pod in self.pods.values():
            pod.kill()

    def start(self, spec: PodSpec, flags: list[str]) -> "Pod":
        number = next(NUMBERS)
        address = f"10.0.{number // 250}.{number % 250 + 1}"
        pod = Pod(self, spec, number, address, flags)
        self.names = [known for known in self.names if known[2] not in spec.names]
        self.names += [(time.monotonic() + NAMES_DELAY, address, name) for name in spec.names]
        self.pods[spec.hostname] = pod
        return pod

    def tell_names(self) -> None:
        """Gives all pods the names that are known by now."""
        known = "".join(f"{address} {name}\n" for since, address, name in self.names if time.monotonic() >= since)
        for pod in self.pods.values():
            pod.set_hosts(known)

    def claim(self, name: str) -> Path:
        folder = self.folder / f"claim.{name}"
        folder.mkdir(exist_ok=True)
        return folder

    def ended(self) -> list[Ended]:
        """The pods that have ended since the last call."""
        found = [pod.ended() for pod in list(self.pods.values()) if pod.process.poll() is not None]
        for each in found:
            del self.pods[each.pod]
        return found

    def stop_all(self) -> None:
        for pod in self.pods.values():
            pod.kill()
        self.pods.clear()


class Pod:
    """A pod with one container."""

    def __init__(self, cluster: Cluster, spec: PodSpec, number: int, address: str, flags: list[str]) -> None:
        self.name, pod = spec.hostname, spec.template["spec"]
        (container,) = pod["containers"]
        self.folder = cluster.folder / f"pod{number}"
        self.etc, self.address = self.folder / "etc", address
        for folder in (self.folder / "root", self.etc):
            folder.mkdir(parents=True)
        shutil.copy("/etc/ld.so.cache", self.etc)
        (self.etc / "nsswitch.conf").write_text("hosts: files\n")
        self.set_hosts("")
        networks.add_host(f"pod{number}", f"veth{number}", address)
        self.number = number
        context = pod["securityContext"]
        volumes = {volume["name"]: self._volume(cluster, volume, context["fsGroup"]) for volume in pod["volumes"]}
        mounts = [
            f"{volumes[mount['name']]}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else ''}"
            for mount in container["volumeMounts"]
        ]
        user = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", f"--groups={context['fsGroup']}"]
        powerless = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        environment = {each["name"]: each["value"] for each in container.get("env", [])} | spec.environment
        variables = [f"{name}={value}" for name, value in {"PATH": PATH, **environment}.items()]
        command = ["setpriv", *user, *powerless, "env", "-i", *variables, *container["command"], *flags]
        namespaces = [*networks.inside(f"pod{number}"), "unshare", "--mount"]
        enter = ["bash", "-c", ENTER, "enter", str(self.folder / "root"), str(self.etc), str(cluster.programs)]
        self.output = self.folder / "output"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [*namespaces, *enter, *mounts, "--", *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _volume(self, cluster: Cluster, volume: dict, group: int) -> str:
        """What is mounted for a volume: a folder, or "tmpfs". Its group is that of the security context."""
        if "emptyDir" in volume:
            return "tmpfs"
        if "persistentVolumeClaim" in volume:
            folder = cluster.claim(volume["persistentVolumeClaim"]["claimName"])
            folder.chmod(0o2775)
        else:
            # A Secret's files are links to those of its present version, and the group may read them.
            folder = self.folder / volume["name"]
            (folder / "..1").mkdir(parents=True)
            (folder / "..data").symlink_to("..1")
            (folder / "secret").symlink_to("..data/secret")
            file = folder / "..1" / "secret"
            file.write_text(SECRET)
            file.chmod(volume["secret"]["defaultMode"] | 0o040)
            os.chown(file, -1, group)
        os.chown(folder, -1, group)
        return str(folder)

    def set_hosts(self, known: str) -> None:
        """Sets what the pod knows of names, at once: a program that looks never sees half of it."""
        new = self.etc / "hosts.new"
        new.write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n{known}")
        new.replace(self.etc / "hosts")

    def signal(self, number: int) -> None:
        """Sends a signal to the container's process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), number)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.signal(signal.SIGKILL)
        self.process.kill()
        self.ended()

    def ended(self) -> Ended:
        code = self.process.wait()
        subprocess.run(["ip", "netns", "delete", f"pod{self.number}"], check=False, capture_output=True)
        return Ended(self.name, code if code >= 0 else 128 - code, self.output.read_text())


class IndexedJob:
    """The controller of Jobs, for those with the completion mode Indexed and a pod failure policy."""

    def __init__(self, job: dict, specs: list[PodSpec]) -> None:
        self.job, self.specs = job["spec"], {spec.hostname: spec for spec in specs}
        self.index = {spec.hostname: i for i, spec in enumerate(specs)}
        self.succeeded: set[int] = set()
        self.failures = 0

    def judge(self, ended: list[Ended]) -> tuple[str, list[PodSpec]]:
        """Returns "Complete", the reason of a failure, or "" and the pods to start again."""
        actions = [self._action(each.code) for each in ended]
        if "FailJob" in actions:
            return "PodFailurePolicy", []
        self.failures += actions.count("Count")
        if self.failures > self.job["backoffLimit"]:
            return "BackoffLimitExceeded", []
        self.succeeded |= {self.index[each.pod] for each in ended if each.code == 0}
        needed = set(range(self.job["completions"]))
        if "successPolicy" in self.job:
            (rule,) = self.job["successPolicy"]["rules"]
            needed = {int(index) for index in rule["succeededIndexes"].split(",")}
        if needed <= self.succeeded:
            return "Complete", []
        return "", [self.specs[each.pod] for each in ended if each.code != 0]

    def _action(self, code: int) -> str:
        """What the first rule that fits says."""
        if code == 0:
            return ""
        for rule in self.job["podFailurePolicy"]["rules"]:
            on = rule.get("onExitCodes")
            if on and (code in on["values"]) == (on["operator"] == "In"):
                return rule["action"]
        return "Count"


class JobSet:
    """The controller of JobSets, for those with one Job."""

    def __init__(self, job_set: dict, job: dict, specs: list[PodSpec]) -> None:
        self.policy, self.job, self.specs = job_set["failurePolicy"], job, specs
        self.restarts = 0
        self.controller = IndexedJob(job, specs)

    def judge(self, ended: list[Ended]) -> tuple[str, list[PodSpec]]:
        result, again = self.controller.judge(ended)
        if result in ("", "Complete"):
            return result, again
        rules = (rule for rule in self.policy["rules"] if result in rule["onJobFailureReasons"])
        action = next(rules, {"action": "RestartJobSet"})["action"]
        self.restarts += 1
        if action != "RestartJobSet" or self.restarts > self.policy["maxRestarts"]:
            return result, []
        self.controller = IndexedJob(self.job, self.specs)
        return "", self.specs


class TFJob:
    """The operator of TFJobs, for those with workers only."""

    def __init__(self, replicas: dict, specs: list[PodSpec]) -> None:
        self.policy, self.specs = replicas["restartPolicy"], {spec.hostname: spec for spec in specs}
        self.first = specs[0].hostname

    def judge(self, ended: list[Ended]) -> tuple[str, list[PodSpec]]:
        if any(each.pod == self.first and each.code == 0 for each in ended):
            return "Complete", []
        failed = [each for each in ended if each.code != 0]
        if self.policy != "ExitCode" or any(each.code < 128 for each in failed):
            return "Failed", []
        return "", [self.specs[each.pod] for each in failed]


def controller_of(name: str):
    """The engine of a manifest, with the pods that it makes of it in `specs`."""
    read = manifests.read(name)
    if name == "tfjob":
        return _tf_job(read["TFJob"])
    if name == "indexed_job":
        job = read["Job"]
        specs = _indexed_pods(job, job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
        return IndexedJob(job, specs), specs
    runtime, train_job = read.get("TrainingRuntime"), read.get("TrainJob")
    job_set = read["JobSet"]["spec"] if name == "jobset" else runtime["spec"]["template"]["spec"]
    (job,) = manifests.jobs_of(read["JobSet"] if name == "jobset" else runtime)
    set_name = (read["JobSet"] if name == "jobset" else train_job)["metadata"]["name"]
    if name == "trainjob":
        _apply_train_job(job, train_job)
    prefix = f"{set_name}-{job_set['replicatedJobs'][0]['name']}-0"
    specs = _indexed_pods(job, prefix, set_name)
    if name == "trainjob":
        specs = [spec._replace(environment=spec.environment | _of_torch(i, specs)) for i, spec in enumerate(specs)]
    return JobSet(job_set, job, specs), specs


def _indexed_pods(job: dict, prefix: str, subdomain: str) -> list[PodSpec]:
    def spec(i: int) -> PodSpec:
        host = f"{prefix}-{i}"
        names = (f"{host}.{subdomain}", f"{host}.{subdomain}.default.svc.cluster.local")
        return PodSpec(host, names, job["spec"]["template"], {"JOB_COMPLETION_INDEX": str(i)})

    return [spec(i) for i in range(job["spec"]["completions"])]


def _apply_train_job(job: dict, train_job: dict) -> None:
    trainer = train_job["spec"]["trainer"]
    job["spec"]["completions"] = trainer["numNodes"]
    job["spec"]["template"]["spec"]["containers"][0]["command"] = trainer["command"]


def _of_torch(index: int, specs: list[PodSpec]) -> dict[str, str]:
    """The variables that the trainer sets for the policy "torch"."""
    return {
        "PET_NNODES": str(len(specs)),
        "PET_NPROC_PER_NODE": "auto",
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": specs[0].names[0],
        "PET_MASTER_PORT": "29500",
    }


def _tf_job(document: dict):
    replicas, job = document["spec"]["tfReplicaSpecs"]["Worker"], document["metadata"]["name"]
    hosts = [f"{job}-worker-{i}" for i in range(replicas["replicas"])]
    (container,) = replicas["template"]["spec"]["containers"]
    port = next(port["containerPort"] for port in container["ports"] if port["name"] == "tfjob-port")
    cluster = {"worker": [f"{host}.default.svc:{port}" for host in hosts]}

    def config(i: int) -> str:
        return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}, "environment": "cloud"})

    def spec(i: int, host: str) -> PodSpec:
        return PodSpec(host, (f"{host}.default.svc",), replicas["template"], {"TF_CONFIG": config(i)})

    specs = [spec(i, host) for i, host in enumerate(hosts)]
    return TFJob(replicas, specs), specs
