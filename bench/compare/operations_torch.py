#!/usr/bin/env python3
"""Norms and activations of PyTorch, eager and compiled, beside Halftone's on one GPU, in one run.

Usage: operations_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--out FILE]

Runs `halftone bench norm|activation|ops --device cuda:0 --json`, then the same operations through PyTorch, timed the
same way: calls captured in a CUDA graph, buffers in turn beyond the second-level cache, the median of five bursts.
Writes Halftone's report with the faster of the two as the peer of each row and prints the ratios."""
import argparse
import json
import re
import subprocess
import time

import torch
import torch.nn.functional as F

FORMATS = {"bf16": torch.bfloat16, "f32": torch.float32}


def rms(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def rms_residual(x, weight, residual):
    total = x + residual
    return F.rms_norm(total, (x.shape[-1],), weight, 1e-5), total


# By the name's beginning: the operation and how many matrices it reads.
OPERATIONS = {
    "rms norm with residual": (lambda x, w, r: rms_residual(x, w, r), 2),
    "rms norm": (lambda x, w: rms(x, w), 1),
    "layer norm": (lambda x, w: F.layer_norm(x, (x.shape[-1],), w, w, 1e-5), 1),
    "swiglu": (lambda x, w, up: F.silu(x) * up, 2),
    "geglu": (lambda x, w, up: F.gelu(x, approximate="tanh") * up, 2),
    "silu": (lambda x, w: F.silu(x), 1),
    "gelu_erf": (lambda x, w: F.gelu(x), 1),
    "tanh": (lambda x, w: torch.tanh(x), 1),
    "add": (lambda x, w, y: x + y, 2),
    "softmax": (lambda x, w: torch.softmax(x, -1), 1),
}
NAME = re.compile(r"([a-z_ ]+), (\d+) rows? of (\d+) (bf16|f32)$")


def seconds(function, matrices, rows, columns, dtype):
    """Seconds a call, in a graph of calls on buffers in turn."""
    size = rows * columns * dtype.itemsize * (matrices + 1)
    sets = min(max(2, (128 << 20) // size + 1), 512)
    weight = torch.randn(columns, device="cuda", dtype=dtype)
    data = [[torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(matrices)] for _ in range(sets)]

    def all_sets():
        return [function(x[0], weight, *x[1:]) for x in data]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            all_sets()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = all_sets()

    def several(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls

    several(1)
    one = several(1)
    bursts = []
    for _ in range(5):
        time.sleep(0.025)
        bursts.append(several(max(1, int(0.004 / one))))
    del kept, graph
    return sorted(bursts)[2] / sets


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halftone", required=True, help="the halftone command")
    parser.add_argument("--quick", action="store_true", help="shorter rests")
    parser.add_argument("--out", help="where the joined report goes")
    arguments = parser.parse_args()

    report = None
    for family in ("norm", "activation", "ops"):
        command = [arguments.halftone, "bench", family, "--device", "cuda:0", "--json"] + ["--quick"] * arguments.quick
        one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if report is None:
            report = one
        else:
            report["families"] += one["families"]
    report["conditions"]["peers"] = {"pytorch": torch.__version__}
    torch._dynamo.config.cache_size_limit = 64
    for row in (row for family in report["families"] for row in family["rows"]):
        match = NAME.match(row["name"])
        if not match or match.group(1) not in OPERATIONS:
            continue
        operation, matrices = OPERATIONS[match.group(1)]
        shape = int(match.group(2)), int(match.group(3)), FORMATS[match.group(4)]
        with torch.no_grad():
            times = {"PyTorch eager": seconds(operation, matrices, *shape),
                     "PyTorch compiled": seconds(torch.compile(operation, dynamic=False), matrices, *shape)}
        row["peers"] = {peer: row["bytes"] / t * 1e-12 for peer, t in times.items()}
        row["peer_name"] = max(row["peers"], key=row["peers"].get)
        row["peer"] = row["peers"][row["peer_name"]]
        row["ratio_to_peer"] = row["value"] / row["peer"]
        print(f"{row['name']:46} {row['bytes'] / row['value'] * 1e-6:8.2f} us, eager {times['PyTorch eager'] * 1e6:8.2f}, "
              f"compiled {times['PyTorch compiled'] * 1e6:8.2f}: {row['ratio_to_peer']:.2f}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
