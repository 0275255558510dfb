"""ONNX Runtime with a model that our programs have exported."""

from pathlib import Path

import onnx
import onnxruntime


def of_export(export_dir: Path) -> onnxruntime.InferenceSession:
    """The only version in the folder, after ONNX's checker has found nothing, its inference of shapes included."""
    (exported,) = export_dir.iterdir()
    model = str(exported / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def signature(session: onnxruntime.InferenceSession) -> tuple[dict[str, list], dict[str, list]]:
    """Type and dimensions of the inputs and of the outputs, by name."""
    return tuple({v.name: [v.type, *v.shape] for v in values} for values in (session.get_inputs(), session.get_outputs()))
