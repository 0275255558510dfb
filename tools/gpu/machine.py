"""Prints this machine's processor, driver, libraries and GPUs as JSON.

Each GPU has the properties that cuDNN takes for a device, so that its plans can be made where there is no GPU.
"""

import ctypes
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

# Of cudnn_graph.h.
DEVICEPROP_DESCRIPTOR, DEVICEPROP_DEVICE_ID, DEVICEPROP_JSON = 38, 2700, 2702
TYPE_INT32, TYPE_CHAR = 23, 24
# Of cuda.h: cuDNN's name for an attribute of a device, and its number.
ATTRIBUTES = {
    "maxThreadsPerBlock": 1,
    "maxSharedMemoryPerBlock": 8,
    "warpSize": 10,
    "regsPerBlock": 12,
    "smClockRateKHz": 13,
    "multiProcessorCount": 16,
    "memClockRateKHz": 36,
    "l2CacheSize": 38,
    "maxThreadsPerSM": 39,
    "maxRegistersPerSM": 82,
    "supportCoopLaunch": 95,
    "maxSharedMemoryPerBlockOptin": 97,
    "maxCtasPerSM": 106,
    "reservedSharedMemoryPerBlock": 111,
    "pciDeviceId": 34,
    "isTccDriver": 35,
}
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
MAX_BLOCK_X, MAX_GRID_X = 2, 5


def library(name: str) -> ctypes.CDLL | None:
    for folder in ["", *os.environ.get("CUDA_LIBRARY_FOLDERS", "").split(":")]:
        try:
            return ctypes.CDLL(os.path.join(folder, name))
        except OSError:
            pass
    return None


def version(name: str, function: str) -> int | None:
    """What a function without arguments returns."""
    lib = library(name)
    if lib is None:
        return None
    getattr(lib, function).restype = ctypes.c_size_t
    return getattr(lib, function)()


def nccl_version() -> int | None:
    lib, number = library("libnccl.so.2"), ctypes.c_int()
    return None if lib is None or lib.ncclGetVersion(ctypes.byref(number)) else number.value


def driver_gpus(driver: ctypes.CDLL) -> tuple[int, list[dict[str, object]]]:
    """The version of CUDA that the driver knows, and its GPUs."""
    number, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return number.value, []
    gpus = []
    for i in range(count.value):
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), i)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        driver.cuDeviceGetName(name, len(name), device)

        def attribute(which: int) -> int:
            value = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(value), which, device)
            return value.value

        gpu: dict[str, object] = {key: attribute(which) for key, which in ATTRIBUTES.items()}
        gpu["deviceVer"] = 100 * attribute(CAPABILITY_MAJOR) + 10 * attribute(CAPABILITY_MINOR)
        gpu["cudaDeviceId"], gpu["driverVer"], gpu["deviceName"] = i, number.value, name.value.decode()
        gpu["maxBlockSize"] = [attribute(MAX_BLOCK_X + axis) for axis in range(3)]
        gpu["maxGridSize"] = [attribute(MAX_GRID_X + axis) for axis in range(3)]
        gpu["totalGlobalMem"] = memory.value
        gpus.append(gpu)
    return number.value, gpus


def cudnn_properties(device: int) -> dict[str, object] | None:
    """What cuDNN itself says of a device, if this version can."""
    lib = library("libcudnn.so.9")
    if lib is None or not hasattr(lib, "cudnnBackendCreateDescriptor"):
        return None
    descriptor, number, size = ctypes.c_void_p(), ctypes.c_int32(device), ctypes.c_int64()
    if lib.cudnnBackendCreateDescriptor(DEVICEPROP_DESCRIPTOR, ctypes.byref(descriptor)):
        return None
    one = ctypes.c_int64(1)
    if lib.cudnnBackendSetAttribute(descriptor, DEVICEPROP_DEVICE_ID, TYPE_INT32, one, ctypes.byref(number)):
        return None
    if lib.cudnnBackendFinalize(descriptor):
        return None
    text = ctypes.create_string_buffer(1 << 16)
    room = ctypes.c_int64(len(text))
    if lib.cudnnBackendGetAttribute(descriptor, DEVICEPROP_JSON, TYPE_CHAR, room, ctypes.byref(size), text):
        return None
    try:
        return json.loads(text.value)
    except ValueError:
        return None


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def torch_version() -> str | None:
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> None:
    driver = library("libcuda.so.1")
    driver_cuda, gpus = driver_gpus(driver) if driver else (None, [])
    result = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "pytorch": torch_version(),
        "driver_cuda": driver_cuda,
        "cudnn": version("libcudnn.so.9", "cudnnGetVersion"),
        "cudnn_cuda": version("libcudnn.so.9", "cudnnGetCudartVersion"),
        "cublaslt": version("libcublasLt.so.13", "cublasLtGetVersion"),
        "cublaslt_cuda": version("libcublasLt.so.13", "cublasLtGetCudartVersion"),
        "nccl": nccl_version(),
        "gpus": gpus,
        "cudnn_device_properties": [cudnn_properties(i) for i in range(len(gpus))],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
