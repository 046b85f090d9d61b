#!/usr/bin/env python3
"""Finds types, constants and functions of src/ that nothing but their own test uses. One wrapper per
instruction (src/hw), the layouts of Blackwell's tensor memory (src/tile) and the simulator's models of
instructions (src/sim/numerics) are a vocabulary: what no kernel uses yet stays.
Usage: check_unused.py [--self-test]"""
import collections
import pathlib
import re
import subprocess
import sys

VOCABULARY = ("src/hw/", "src/tile/", "src/sim/numerics/")
# Used in a way that a count of words does not see.
KNOWN = {"Rates": "the type of Chip::rates, named where it is declared",
         "find_rule": "tests ask by it whether each rule that they expect is a rule of the simulator",
         "writes_tensor": "tensor memory that asynchronous work fills: tcgen05.cp will say so"}

TYPE = re.compile(r"\b(?:class|struct|enum class|concept)\s+([A-Z]\w+)\s*(?:final\s*)?[:{]|"
                  r"\busing\s+([A-Z]\w+)\s*=")
CONSTANT = re.compile(r"\bconstexpr\s+[\w:<>*& ]*?\b(k[A-Z]\w*)\b")
FUNCTION = re.compile(r"^\s*(?:(?:HT_\w+|inline|static|constexpr)\s+)*[\w:<>,*& ]+?[\s*&]([a-z]\w*_\w+)"
                      r"\([^;{]*\)[^;{=]*[{;]", re.M)


def code_of(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)


def stem(path):
    return re.sub(r"\.\w+$", "", path)


def unused(files):
    """files: path -> text. (path, name) of what is defined in a header of src/ and used nowhere."""
    files = {path: code_of(text) for path, text in files.items() if not path.startswith("tests/")}
    words = collections.defaultdict(collections.Counter)
    for path, text in files.items():
        for word in re.findall(r"[A-Za-z_]\w+", text):
            words[word][path] += 1
    found = []
    for path, text in files.items():
        if not path.startswith("src/") or not re.search(r"\.(h|cuh)$", path):
            continue
        if path.startswith(VOCABULARY):
            continue
        for match in TYPE.finditer(text):
            name = match.group(1) or match.group(2)
            uses = sum(words[name].values())
            own = len(re.findall(r"(?:HT_\w+|explicit|~)\s*" + name + r"\(", text))  # constructors
            if uses - own == 1:
                found.append((path, name))
        for match in CONSTANT.finditer(text):
            if sum(words[match.group(1)].values()) == 1:
                found.append((path, match.group(1)))
        for match in FUNCTION.finditer(text):
            name, uses = match.group(1), words[match.group(1)]
            # Declared and defined, in files of one name.
            alone = all(stem(other).split("/")[-1] == stem(path).split("/")[-1] for other in uses)
            total, defined = sum(uses.values()), match.group(0).rstrip().endswith("{")
            if alone and (total == 1 or (total == 2 and len(uses) == 2 and not defined)):
                found.append((path, name))
    return [(path, name) for path, name in found if name not in KNOWN]


def self_test():
    used = "struct Used {};\nHT_DEVICE int used_once() { return 1; }\n"
    dead = ("template <class T>\nclass Dead {\n public:\n  HT_HOST_DEVICE Dead(int a);\n};\n"
            "inline constexpr int kDead = 8;  // kDead\nuint32_t dead_here();\n"
            "inline bool dead_there() { return true; }\n")
    files = {"src/a/dead.h": dead, "src/a/dead.cpp": "uint32_t dead_here() { return 1; }",
             "src/a/used.h": used, "src/b/user.cpp": "Used u; int i = used_once();",
             "src/hw/word.h": "struct Word {};",
             "tests/a_test.cpp": "Dead d; int i = kDead + dead_here() + dead_there();"}
    names = sorted(name for _, name in unused(files))
    assert names == ["Dead", "dead_here", "dead_there", "kDead"], names


if "--self-test" in sys.argv:
    self_test()
    print("check_unused.py: finds what only a test uses")
    sys.exit(0)
root = pathlib.Path(__file__).resolve().parent.parent
tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True,
                         check=True).stdout.split()
sources = {path: (root / path).read_text(errors="replace") for path in tracked
           if re.search(r"\.(h|cpp|cu|cuh)$", path) and (root / path).exists()}
problems = unused(sources)
for path, name in problems:
    print(f"{path}: {name} is used by nothing, or by its own test alone")
print(f"unused: {len(sources)} files checked, {len(problems)} problems")
sys.exit(bool(problems))
