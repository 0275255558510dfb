"""Reads the manifests of tools/cluster/kubernetes, and checks them against the public schemas, without unknown fields.

Its packages are those of tools/python/kubernetes.txt.
"""

import copy
import re
from pathlib import Path

import kubeflow.training.models
import kubeflow_trainer_api.models
import kubernetes_validate
import yaml

FOLDER = Path("tools/cluster/kubernetes")
NAMES = ("indexed_job", "jobset", "tfjob", "trainjob")
KUBERNETES_VERSION = "1.34"

TRAINER_MODELS = {
    "JobSet": kubeflow_trainer_api.models.JobsetV1alpha2JobSet,
    "TrainJob": kubeflow_trainer_api.models.TrainerV1alpha1TrainJob,
    "TrainingRuntime": kubeflow_trainer_api.models.TrainerV1alpha1TrainingRuntime,
}
API_VERSIONS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "TrainingRuntime": "trainer.kubeflow.org/v1alpha1",
    "TFJob": "kubeflow.org/v1",
}


class SchemaError(Exception):
    """A document differs from its public schema."""


def read(name: str) -> dict[str, dict]:
    """The documents of a manifest by their kinds."""
    documents = yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
    return {document["kind"]: document for document in documents}


def jobs_of(document: dict) -> list[dict]:
    """The Jobs that a JobSet or TrainingRuntime makes."""
    spec = document["spec"]
    if document["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    return [{"apiVersion": "batch/v1", "kind": "Job", **job["template"]} for job in spec["replicatedJobs"]]


def check(document: dict) -> None:
    """Raises SchemaError if a field is missing, unknown or of another type than in the public schema."""
    kind = document["kind"]
    if kind in API_VERSIONS and document["apiVersion"] != API_VERSIONS[kind]:
        raise SchemaError(f"{kind} has the version {document['apiVersion']}, not {API_VERSIONS[kind]}")
    if kind in TRAINER_MODELS:
        _check_with_trainer(document)
        for job in jobs_of(document) if kind != "TrainJob" else []:
            _check_with_kubernetes(_with_images(job))
    elif kind == "TFJob":
        _check_with_training_operator(document, "KubeflowOrgV1TFJob", kind)
        for replica in document["spec"]["tfReplicaSpecs"].values():
            _check_with_kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "template": replica["template"]})
    else:
        _check_with_kubernetes(document)


def _check_with_kubernetes(document: dict) -> None:
    try:
        kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise SchemaError(f"{'.'.join(map(str, error.path))}: {error.message}") from error


def _with_images(job: dict) -> dict:
    """The Job with the images that a TrainJob adds to those of its runtime."""
    job = copy.deepcopy(job)
    for container in job["spec"]["template"]["spec"]["containers"]:
        container.setdefault("image", "image")
    return job


def _check_with_trainer(document: dict) -> None:
    """These models drop unknown fields: what they give back must have all that they were given."""
    try:
        back = TRAINER_MODELS[document["kind"]].from_dict(document).to_dict()
    except (TypeError, ValueError, AttributeError) as error:
        raise SchemaError(str(error)) from error
    _check_contains(back, document, document["kind"])


def _check_contains(back, given, place: str) -> None:
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            if key not in back:
                raise SchemaError(f"{place} has no field {key}")
            _check_contains(back[key], value, f"{place}.{key}")
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for ours, theirs in zip(given, back):
            _check_contains(theirs, ours, f"{place}[]")
    elif given != back:
        raise SchemaError(f"{place} is {given!r}, and the schema makes it {back!r}")


def _check_with_training_operator(value, type_name: str, place: str) -> None:
    """Checks a value against a type of the models: "str", "dict(str, TYPE)", "list[TYPE]" or the name of a model."""
    if match := re.fullmatch(r"dict\(str, (.+)\)", type_name):
        for key, item in value.items():
            _check_with_training_operator(item, match[1], f"{place}.{key}")
    elif model := getattr(kubeflow.training.models, type_name, None):
        fields = {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
        for key, item in value.items():
            if key not in fields:
                raise SchemaError(f"{place} has no field {key}")
            _check_with_training_operator(item, fields[key], f"{place}.{key}")
        snake = {name: value.get(key) for name, key in model.attribute_map.items()}
        try:
            model(**snake)
        except ValueError as error:  # a field is missing
            raise SchemaError(f"{place}: {error}") from error
    elif type_name in ("str", "int", "bool") and type(value).__name__ != type_name:
        raise SchemaError(f"{place} is {value!r}, not of type {type_name}")
