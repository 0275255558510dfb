"""The layers of the code, from the top. A target depends on targets of its own layer and of those below."""

LAYERS = [
    ("tools", "setup, run, test, fuzz, bench, package, pack_gpu, download, format"),
    ("official", "a folder for each model: flags, input, graph, run loop; checkpoint_tool, data_check, report, serve; nothing depends on it"),
    ("utils/run", "the run of a training program: devices, lock, data, training and evaluation"),
    ("utils/export", "SavedModel, ONNX"),
    ("utils/flags", "the flag groups of every training program, help, validators"),
    ("utils/train", "Estimator: training, evaluation, checkpoints, events"),
    ("utils/distribute", "Strategy: the devices of a run, their threads, the sums over them; the tasks of a cluster"),
    ("utils/data", "records, images, downloads; the input pipeline, ordered by (seed, epoch, index)"),
    ("utils/logs", "progress, hooks, metric.log, MLPerf's log"),
    ("utils/protos", "TensorFlow's and ONNX's protocol buffers, and tensors in them"),
    ("utils/compute/testing", "what the tests of ops share: one case on every device and type"),
    ("utils/compute/layers", "ops with their variables, named as TensorFlow names them"),
    ("utils/compute/program", "Program: a compiled graph with its kernels, layouts and one arena"),
    ("utils/compute/pjrt_backend", "the shared object of all that is written in StableHLO, loaded when PJRT devices are used"),
    ("utils/compute/cuda_backend", "the shared object of all CUDA kernels, loaded when GPUs are used"),
    ("official/recommendation/op", "the op that computes NeuMF: an op family that one model has"),
    ("utils/compute/ops", "a folder per op family: shape rule, gradient, CPU and CUDA kernels, test; Gradients()"),
    ("utils/compute/cuda", "what CUDA kernels share: streams, launches, errors of the data"),
    ("utils/compute/cuda_emulation", "CUDA on the host, for tests: its headers, threads and libraries"),
    ("utils/compute/pjrt", "graphs as StableHLO; PJRT plugins, their devices: a TPU, XLA's CPU"),
    ("utils/compute/cpu", "what CPU kernels share: threads, vector dispatch, oneDNN"),
    ("utils/compute/kernel", "Device, Kernel and their registries"),
    ("utils/compute/graph", "Value, Node, Graph, rewriting"),
    ("utils/misc", "exit codes, signals, device counts, division of batches, names of run files, text of messages"),
    ("utils/fuzzing", "what the fuzz targets (*_fuzz.cc, next to the parsers they feed) share"),
    ("utils/files", "safe and atomic writes, bounded reads"),
    ("utils/compute/core", "dtype, shape, tensor, status, random numbers"),
    ("third_party", "Debian's libraries; the CUDA toolkit ($CUDA_HOME, else /usr/local/cuda) and PJRT's header, if they are there"),
]

def layer_of(package):
    """The index of the package's layer: that with the longest name which the package's begins with."""
    found = None
    for index, (name, _) in enumerate(LAYERS):
        if package == name or package.startswith(name + "/"):
            if found == None or len(name) > len(LAYERS[found][0]):
                found = index
    if found == None:
        fail("%s is in no layer of //tools/structure:layers.bzl" % package)
    return found

def _layers_within(name):
    return [other for other, _ in LAYERS if other.startswith(name + "/")]

def layer_groups():
    """A package group for each layer whose folder has other layers within, of the packages that are its own.

    "//tools/structure:official" in a visibility stands for the packages of the layer "official".
    """
    for name, _ in LAYERS:
        within = _layers_within(name)
        if within:
            native.package_group(
                name = name,
                packages = ["//%s/..." % name] + ["-//%s/..." % other for other in within],
            )

def _packages_of(name):
    return "//tools/structure:" + name if _layers_within(name) else "//%s:__subpackages__" % name

def layers_above():
    """The visibility of a target that its own layer and all layers above may use."""
    last = layer_of(native.package_name())
    return [_packages_of(name) for name, _ in LAYERS[:last + 1]]
