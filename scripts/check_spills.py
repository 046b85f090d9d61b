#!/usr/bin/env python3
"""Kernels of Hopper that keep more on their stack than they did: registers that ptxas spilled.

Usage: check_spills.py BUILD [--write]

Asks `cuobjdump` of the CUDA toolkit how much stack each kernel of a release build takes, and compares it with
bench/results/sm90a-stack.json; --write writes that file. A change of a function that many kernels inline can spill
registers in the loops of those that never call it, where nothing but time tells (docs/findings/gemm-hopper.md).
Fast builds (-Ofc=max) have other stacks; so have other toolkits, which are refused."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parent.parent / "bench/results/sm90a-stack.json"
ARCH = "sm_90a"


def run(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not on the PATH; it comes with the CUDA toolkit")


def stacks(build):
    """Bytes of stack by kernel, of those that have any."""
    objects = sorted(build.rglob("src/**/*.cu.o"))
    if not objects:
        sys.exit(f"{build} has no object of a .cu file; build it with the CUDA toolkit first")
    found = {}
    for path in objects:
        arch = kernel = None
        for line in run("cuobjdump", "-res-usage", str(path)).splitlines():
            if match := re.match(r"arch = (\S+)", line):
                arch = match[1]
            elif match := re.match(r" Function (\S+):", line):
                kernel = match[1]
            elif (match := re.search(r"STACK:(\d+)", line)) and arch == ARCH and int(match[1]):
                found[kernel] = int(match[1])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="the folder of a release build")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    arguments = parser.parse_args()
    toolkit = re.search(r"release (\S+),", run("nvcc", "--version"))[1]
    now = stacks(arguments.build)
    if arguments.write:
        TABLE.write_text(json.dumps({"arch": ARCH, "toolkit": toolkit, "stack_bytes": now}, indent=1, sort_keys=True)
                         + "\n")
        print(f"{len(now)} kernels with a stack, {sum(now.values())} bytes in all")
        return
    table = json.loads(TABLE.read_text())
    if table["toolkit"] != toolkit:
        sys.exit(f"{TABLE.name} is of toolkit {table['toolkit']}, this is {toolkit}")
    before = table["stack_bytes"]
    more = {kernel: size for kernel, size in now.items() if size > before.get(kernel, 0)}
    for kernel, size in sorted(more.items()):
        print(f"{before.get(kernel, 0):5} -> {size:5} bytes  {run('c++filt', kernel).strip()}")
    print(f"{len(more)} kernels with more stack, {sum(size < before[k] for k, size in now.items() if k in before)} "
          f"with less; {sum(before.values())} -> {sum(now.values())} bytes in all")
    sys.exit(1 if more else 0)


if __name__ == "__main__":
    main()
