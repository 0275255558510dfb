"""The manifests of tools/cluster/kubernetes are what the public schemas describe, and what the programs need. Usage:
MODULE"""

import copy
import unittest
from collections.abc import Iterator
from pathlib import Path

from official.workers import manifests

# Below these keys users write names of their own.
FREE = ("labels", "limits", "matchLabels", "requests", "selector", "tfReplicaSpecs")
FAILED = {1, 2, 65, 66, 69, 73, 74, 77}  # exit statuses after which a new start does not help: docs/manual/runs.md
AGAIN = 138


def mappings(value, place: tuple = ()) -> Iterator[tuple]:
    """The places of all mappings in a document that have fields of a schema."""
    if isinstance(value, dict):
        if not place or place[-1] not in FREE:
            yield place
        for key, item in value.items():
            yield from mappings(item, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from mappings(item, (*place, i))


def at(document, place: tuple):
    for key in place:
        document = document[key]
    return document


def documents() -> Iterator[tuple[str, dict]]:
    for name in manifests.NAMES:
        for kind, document in manifests.read(name).items():
            yield f"{name}.yaml {kind}", document


def pod_template(name: str) -> dict:
    """The pod template of a manifest, with what its TrainJob adds."""
    read = manifests.read(name)
    if name == "indexed_job":
        return read["Job"]["spec"]["template"]
    if name == "tfjob":
        return read["TFJob"]["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    if name == "jobset":
        return manifests.jobs_of(read["JobSet"])[0]["spec"]["template"]
    template = manifests.jobs_of(read["TrainingRuntime"])[0]["spec"]["template"]
    trainer = read["TrainJob"]["spec"]["trainer"]
    added = {"image": trainer["image"], "command": trainer["command"], "resources": trainer["resourcesPerNode"]}
    template["spec"]["containers"][0].update(added)
    return template


class ManifestsTest(unittest.TestCase):
    def test_schemas(self) -> None:
        for name, document in documents():
            with self.subTest(name):
                manifests.check(document)

    def test_a_misspelt_field_is_refused_anywhere(self) -> None:
        for name, document in documents():
            for place in mappings(document):
                with self.subTest(name, place=place):
                    changed = copy.deepcopy(document)
                    at(changed, place)["misspelt"] = "x"
                    with self.assertRaises(manifests.SchemaError):
                        manifests.check(changed)

    def test_a_value_of_another_type_is_refused(self) -> None:
        for name, kind, place in (
            ("indexed_job", "Job", ("spec", "completions")),
            ("indexed_job", "Service", ("spec", "ports")),
            ("jobset", "JobSet", ("spec", "failurePolicy", "maxRestarts")),
            ("trainjob", "TrainJob", ("spec", "trainer", "numNodes")),
            ("trainjob", "TrainingRuntime", ("spec", "mlPolicy", "numNodes")),
            ("tfjob", "TFJob", ("spec", "tfReplicaSpecs", "Worker", "replicas")),
        ):
            with self.subTest(name, place=place):
                document = manifests.read(name)[kind]
                at(document, place[:-1])[place[-1]] = "x"
                with self.assertRaises(manifests.SchemaError):
                    manifests.check(document)

    def test_no_secret_is_in_them(self) -> None:
        self.assertNotIn("Secret", {document["kind"] for _, document in documents()})

    def test_no_pod_has_rights_that_it_does_not_need(self) -> None:
        for name in manifests.NAMES:
            with self.subTest(name):
                pod = pod_template(name)["spec"]
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse(pod["automountServiceAccountToken"])
                (container,) = pod["containers"]
                expected = {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
                self.assertEqual(container["securityContext"], expected)

    def test_only_pods_of_the_job_reach_its_ports(self) -> None:
        for name in manifests.NAMES:
            with self.subTest(name):
                labels = pod_template(name)["metadata"]["labels"]
                policy = manifests.read(name)["NetworkPolicy"]["spec"]
                self.assertEqual(policy["podSelector"]["matchLabels"], labels)
                self.assertEqual(policy["policyTypes"], ["Ingress"])
                (rule,) = policy["ingress"]
                self.assertEqual(rule["from"], [{"podSelector": {"matchLabels": labels}}])
                # torchrun's variables name one port only; other workers listen at free ones.
                self.assertEqual(rule.get("ports"), None if name == "trainjob" else [{"port": 2222}])

    def test_the_exit_statuses_decide(self) -> None:
        read = {name: manifests.read(name) for name in manifests.NAMES}
        jobs = [read["indexed_job"]["Job"], *manifests.jobs_of(read["jobset"]["JobSet"])]
        jobs += manifests.jobs_of(read["trainjob"]["TrainingRuntime"])
        for job in jobs:
            fail, again = job["spec"]["podFailurePolicy"]["rules"][:2]
            self.assertEqual((fail["action"], fail["onExitCodes"]["operator"]), ("FailJob", "In"))
            self.assertEqual(fail["onExitCodes"]["values"], sorted(FAILED))
            self.assertEqual((again["action"], again["onExitCodes"]["values"]), ("Ignore", [AGAIN]))
            self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")  # else there is no policy
        runtime = read["trainjob"]["TrainingRuntime"]["spec"]["template"]
        for job_set in (read["jobset"]["JobSet"], runtime):
            (rule,) = job_set["spec"]["failurePolicy"]["rules"]
            self.assertEqual((rule["action"], rule["onJobFailureReasons"]), ("FailJobSet", ["PodFailurePolicy"]))
        self.assertEqual(read["tfjob"]["TFJob"]["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"], "ExitCode")

    def test_the_statuses_are_those_of_the_manual(self) -> None:
        rows = Path("docs/manual/runs.md").read_text().split("## Exit status")[1].splitlines()
        told = {int(row.split("|")[1]) for row in rows if row.startswith("| ") and row.split("|")[1].strip().isdigit()}
        self.assertEqual(told, {0, AGAIN} | FAILED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
