#!/usr/bin/env python3
"""Checks that the documentation is true: every path it names exists, every `halftone` command of the
README runs, its C++ example is the file that the tests compile, and its support matrix is the one the
command prints. Usage: check_docs.py PATH_OF_THE_COMMAND"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
command = pathlib.Path(sys.argv[1]).resolve()
problems = []

tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True,
                         check=True).stdout.split()
top_level = {path.split("/")[0] for path in tracked}
documents = [root / path for path in tracked if path.endswith(".md")]

# Paths: words in `code` or link targets that start with a top-level name of the repository.
for document in documents:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    words = re.findall(r"`([^`\s]+)`", text) + re.findall(r"\]\(([^)#\s]+)\)", text)
    for word in words:
        if "://" in word or any(c in word for c in "<>*{}$"):
            continue
        path = word.rstrip("/:,.").split(":")[0]
        is_link = f"]({word}" in text
        if not is_link and ("/" not in path or path.split("/")[0] not in top_level - {"build"}):
            continue
        if not (root / path).exists() and not (document.parent / path).exists():
            problems.append(f"{document.relative_to(root)}: path {word} does not exist")

readme = (root / "README.md").read_text()
if len(readme.splitlines()) > 150:
    problems.append(f"README.md has {len(readme.splitlines())} lines; at most 150 are allowed")

# Commands: lines of the README's console blocks that start with the command.
for block in re.findall(r"```console\n(.*?)```", readme, flags=re.S):
    for line in block.splitlines():
        if not line.startswith("$ build/release/apps/halftone/halftone "):
            continue
        arguments = shlex.split(line[2:], comments=True)
        if arguments[1] == "quantize":  # refuses to overwrite what an earlier check wrote
            shutil.rmtree(root / arguments[3], ignore_errors=True)
        run = subprocess.run([str(command)] + arguments[1:], cwd=root, capture_output=True, text=True)
        if run.returncode != 0:
            problems.append(f"README.md: `{line[2:]}` exits with {run.returncode}: {run.stderr.strip()}")

# Code: the C++ block must be part of the example that the tests run.
example = (root / "examples/generate.cpp").read_text()
for block in re.findall(r"```cpp\n(.*?)```", readme, flags=re.S):
    if block.strip() not in example:
        problems.append("README.md: the C++ example is not a part of examples/generate.cpp")

matrix = subprocess.run([str(command), "info", "--matrix"], capture_output=True, text=True,
                        check=True).stdout.strip()
if matrix not in readme:
    problems.append("README.md: the support matrix differs from `halftone info --matrix`")

for problem in problems:
    print(problem)
print(f"documentation: {len(documents)} files checked, {len(problems)} problems")
sys.exit(bool(problems))
