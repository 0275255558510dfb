"""The programs as a container image in the layout of the Open Container Initiative, without a container engine.

Source: github.com/opencontainers/image-spec, image-layout.md, manifest.md, config.md.
"""

import hashlib
import json
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from tools.packaging import trees
from tools.packaging.libraries import C_LIBRARY, output
from tools.packaging.licenses import COMMON_LICENSES, add_common_licenses, add_copyrights

USER = 1000
HOME = "home/trainer"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
MEDIA_TYPE = "application/vnd.oci.image."


def make_base(folder: Path) -> None:
    """The C library of this machine, and the few files that it reads."""
    for line in output("dpkg-query", "--listfiles", C_LIBRARY).splitlines():
        path = Path(line)
        if path.parent.name == "x86_64-linux-gnu" and ".so" in path.name and path.is_file():
            trees.put(path, folder / LIBRARY_FOLDER / path.name)
    (folder / LIBRARY_FOLDER / LOADER).chmod(0o755)
    (folder / "lib").symlink_to("usr/lib")
    (folder / "lib64").symlink_to("usr/lib64")
    (folder / "usr/lib64").mkdir()
    (folder / "usr/lib64" / LOADER).symlink_to(f"../lib/x86_64-linux-gnu/{LOADER}")
    trees.write(folder / "etc/passwd", f"root:x:0:0:root:/root:/bin/false\ntrainer:x:{USER}:{USER}::/{HOME}:/bin/false\n")
    trees.write(folder / "etc/group", f"root:x:0:\ntrainer:x:{USER}:\n")
    trees.write(folder / "etc/nsswitch.conf", "hosts: files dns\n")
    if CERTIFICATES.is_file():
        trees.put(CERTIFICATES, folder / CERTIFICATES.relative_to("/"))
    for name in ("dev", "proc", "sys", "tmp", HOME, "root"):
        (folder / name).mkdir(parents=True)
    documents = folder / "usr/share/doc"
    add_copyrights([C_LIBRARY], documents)
    add_common_licenses(documents, folder / COMMON_LICENSES.relative_to("/"))


BASE_MODES = {"tmp": (0o1777, 0), HOME: (0o755, USER), "root": (0o700, 0)}


class Layout:
    """The folder of an image layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        trees.write(folder / "oci-layout", '{"imageLayoutVersion":"1.0.0"}')

    def add(self, data: bytes, kind: str) -> dict:
        """Adds a blob; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": MEDIA_TYPE + kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, value: dict, kind: str) -> dict:
        return self.add(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), kind)


def make_image(bundle: Path, version: str, epoch: int, gzip_level: int, target: Path) -> None:
    """Writes the layout, as an archive that skopeo and podman load, of a bundle, which lies in /opt in the image."""
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "base"
        base.mkdir()
        make_base(base)
        layers = [
            (trees.tar(base, epoch, modes=BASE_MODES), f"the C library, of {C_LIBRARY}"),
            (trees.tar(bundle, epoch, prefix="opt/official-models/"), f"official-models {version}"),
        ]
        layout = Layout(Path(temporary) / "layout")
        config = {
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": str(USER),  # a number, which runAsNonRoot of Kubernetes needs
                "Env": ["PATH=/opt/official-models/bin", f"HOME=/{HOME}"],
                "WorkingDir": f"/{HOME}",
                "Cmd": ["mnist_main", "--help"],
                "Labels": {"org.opencontainers.image.version": version},
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar, _ in layers]},
            "history": [{"created": created, "created_by": told} for _, told in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA_TYPE + "manifest.v1+json",
            "config": layout.add_json(config, "config.v1+json"),
            "layers": [layout.add(trees.gz(tar, gzip_level), "layer.v1.tar+gzip") for tar, _ in layers],
        }
        entry = layout.add_json(manifest, "manifest.v1+json") | {
            "annotations": {"org.opencontainers.image.ref.name": f"official-models:{version}"},
            "platform": {"architecture": "amd64", "os": "linux"},
        }
        index = {"schemaVersion": 2, "mediaType": MEDIA_TYPE + "index.v1+json", "manifests": [entry]}
        trees.write(layout.folder / "index.json", json.dumps(index, sort_keys=True))
        target.write_bytes(trees.tar(layout.folder, epoch))
