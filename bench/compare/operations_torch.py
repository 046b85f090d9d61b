#!/usr/bin/env python3
"""Norms and activations of PyTorch, eager and compiled, beside Halftone's on one GPU, in one run.

Usage: operations_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--rows TEXT ...] [--out FILE]

Runs `halftone bench norm|activation|ops --device cuda:0 --json`, then the same operations through PyTorch, timed the
same way: calls captured in a CUDA graph, buffers in turn beyond the second-level cache, the median of five bursts.
Writes Halftone's report with the faster of the two as the peer of each row and prints the ratios."""
import re

import torch
import torch.nn.functional as F

import beside

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


def seconds(function, matrices, rows, columns, dtype, quick):
    """(burst, sustained) of a call on buffers in turn, beyond the second-level cache."""
    size = rows * columns * dtype.itemsize * (matrices + 1)
    sets = min(max(2, (128 << 20) // size + 1), 512)
    weight = torch.randn(columns, device="cuda", dtype=dtype)
    data = [[torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(matrices)] for _ in range(sets)]
    return beside.Timer(lambda i: function(data[i][0], weight, *data[i][1:]), sets, quick).measure()


def main():
    arguments = beside.parse(__doc__)
    torch._dynamo.config.cache_size_limit = 64
    with beside.report_of(arguments, ["norm", "activation", "ops"]) as report:
        for row in (row for family in report["families"] for row in family["rows"]):
            match = NAME.match(row["name"])
            if not match or match.group(1) not in OPERATIONS:
                continue
            operation, matrices = OPERATIONS[match.group(1)]
            shape = int(match.group(2)), int(match.group(3)), FORMATS[match.group(4)]
            compiled = torch.compile(operation, dynamic=False)
            with torch.no_grad():
                beside.add_peers(row, {"PyTorch eager": seconds(operation, matrices, *shape, arguments.quick),
                                       "PyTorch compiled": seconds(compiled, matrices, *shape, arguments.quick)})


if __name__ == "__main__":
    main()
