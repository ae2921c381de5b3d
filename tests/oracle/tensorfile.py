"""Reads and writes safetensors files with numpy alone.

BF16 and F16 become float64 without any rounding, and are rounded to nearest (ties to even) when
written. The bytes that come out depend only on the tensors and their order.
"""

import json
import pathlib
import struct

import numpy as np

SIZES = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2}
NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}


def bf16_bits(values):
    """The BF16 bit patterns nearest to finite `values`; a tie goes to the even pattern."""
    wide = np.asarray(values, dtype="<f4").view("<u4").astype(np.uint64)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype("<u2")


def bf16_values(bits):
    """The exact float64 values of BF16 bit patterns."""
    return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)


def encode(array, dtype):
    """The little-endian bytes of `array` stored as `dtype`."""
    if dtype == "BF16":
        return bf16_bits(array).tobytes()
    return np.ascontiguousarray(array).astype(NUMPY_TYPES[dtype]).tobytes()


def decode(raw, dtype, shape):
    """Stored bytes as float64, or as int64 when `dtype` is I64."""
    if dtype == "BF16":
        return bf16_values(np.frombuffer(raw, dtype="<u2")).reshape(shape)
    array = np.frombuffer(raw, dtype=NUMPY_TYPES[dtype]).reshape(shape)
    return array.astype(np.int64 if dtype == "I64" else np.float64)


def write(path, tensors, dtypes, metadata=None):
    """Writes `tensors` (name -> array); `dtypes` maps each name to its storage type.

    Wide types come first, as the safetensors library has it, so that every tensor is aligned.
    """
    header, blobs, offset = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name in sorted(tensors, key=lambda name: -SIZES[dtypes[name]]):
        array = tensors[name]
        blob = encode(array, dtypes[name])
        header[name] = {
            "dtype": dtypes[name],
            "shape": list(np.shape(array)),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read(path):
    """(tensors, metadata) of one file; every float type comes back as float64."""
    raw = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + size :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = decode(data[begin:end], entry["dtype"], entry["shape"])
    return tensors, metadata


def read_checkpoint(folder):
    """Every tensor of a folder: model.safetensors, or the shards that the index file names."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read(folder / "model.safetensors")[0]
    weight_map = json.loads(index.read_text())["weight_map"]
    shards = {name: read(folder / name)[0] for name in sorted(set(weight_map.values()))}
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def write_shards(folder, tensors, dtypes, count):
    """Writes `count` shards of consecutive tensors and their index file."""
    folder = pathlib.Path(folder)
    names = list(tensors)
    weight_map = {}
    for shard in range(count):
        file_name = f"model-{shard + 1:05d}-of-{count:05d}.safetensors"
        part = names[shard * len(names) // count : (shard + 1) * len(names) // count]
        write(folder / file_name, {n: tensors[n] for n in part}, dtypes, {"format": "pt"})
        weight_map.update({name: file_name for name in part})
    total = sum(len(encode(tensors[name], dtypes[name])) for name in names)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text)
