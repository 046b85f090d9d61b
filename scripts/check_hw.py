#!/usr/bin/env python3
"""Checks the instruction layer, src/hw: what the compiler cannot see and a review forgets.

Every HT_DEVICE function that contains assembly
  * has both bodies: the instruction for GPUs, and its model for the simulator;
  * has `asm volatile`, unless its result depends on its operands alone;
  * names "memory" as clobbered where it synchronises, orders or touches memory;
  * says in a static_assert which feature it needs, unless every architecture has it, and refuses
    simulated chips without it (`sim::require`, or a model that calls it);
  * is called in src/hw/instantiate, as often as it has overloads, from a file of its feature.

Usage: check_hw.py [SOURCE_FOLDER], or check_hw.py --self-test
"""
import pathlib
import re
import shutil
import sys
import tempfile

# Results depend on the operands alone: the compiler may merge, move or drop them.
PURE = re.compile(
    r"(cvt|mov|add|sub|mul|fma|mad|min|max|abs|neg|prmt|lop3|shf|shl|shr|bfe|bfi|popc|clz|brev|"
    r"bfind|dp4a|dp2a|ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|selp|setp|set|mapa|getctarank|"
    r"createpolicy)\b")
# Neither read nor write memory, nor order anybody's accesses to it: they exchange or compute on
# registers, or act on the thread alone.
NO_MEMORY = re.compile(
    r"(mma\.sync|shfl\.sync|vote\.sync|match\.(any|all)\.sync|redux|elect\.sync|mov|nanosleep|"
    r"trap|prefetch)\b")
# Special registers whose value does not change while a thread runs.
CONSTANT = re.compile(r"%%?(laneid|ctaid|nctaid|tid|ntid|cluster_\w+|clusterid|nclusterid)")


def strip_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def matching(text, start, opening, closing):
    """Index after the bracket that closes the one at `start`."""
    depth, i, quoted = 0, start, False
    while i < len(text):
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c == opening:
            depth += 1
        elif c == closing:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return len(text)


def functions(text):
    """Name, body, line and extent of every HT_DEVICE function."""
    head = r"^(?!#define)[^\n#]*\bHT_DEVICE\s+[\w:&<>,\s]*?\b(\w+)\s*\("
    for m in re.finditer(head, text, re.M):
        after = matching(text, m.end() - 1, "(", ")")
        brace = text.find("{", after)
        if brace < 0 or text[after:brace].strip():
            continue
        end = matching(text, brace, "{", "}")
        yield m.group(1), text[brace:end], text.count("\n", 0, m.start()) + 1, (m.start(), end)


def macros(text):
    """Function-like macros of the file, so that assembly inside them is seen."""
    joined = re.sub(r"\\\n", " ", text)
    return dict(re.findall(r"^\s*#define\s+(HT_\w+)\(.*?\)\s+(.*)$", joined, re.M))


def assembly(body, known):
    """Every asm statement of the body, also by way of macros: (is volatile, text)."""
    seen, pending = set(), [body]
    while pending:
        text = pending.pop()
        for m in re.finditer(r"\basm\s*(volatile)?\s*\(", text):
            yield bool(m.group(1)), text[m.end() - 1:matching(text, m.end() - 1, "(", ")")]
        for name in re.findall(r"\b(HT_\w+)\s*\(", text):
            if name in known and name not in seen:
                seen.add(name)
                pending.append(known[name])


def instructions(statement):
    """The instructions in the text of an asm statement, without braces, labels, declarations."""
    # The text is the run of literals (and macros that stand for some) before the first colon.
    text = ""
    run = re.match(r'\(\s*((?:"(?:[^"\\]|\\.)*"\s*|[A-Za-z_#]\w*(?:\([^)]*\))?\s*)+)', statement)
    if run:
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', run.group(1)))
    text = re.sub(r"[,\s]\s*\{[^{};]*\}", ", tuple", text)  # an operand of several registers
    parts = re.split(r";|\\n|\{|\}", text)
    for part in parts:
        part = re.sub(r"^\s*(@!?\w+\s+)?", "", part).strip()
        if part and not part.startswith(".reg") and not part.endswith(":") and \
                re.match(r"[a-z%]", part) and not re.match(r"%\d+\s*(,|$)", part):
            yield part


def clobbers(at, name, volatile, statement):
    # A mnemonic that is a template argument goes by the function's name.
    found = [re.sub(r"^%\d+\b", name, i) for i in instructions(statement)]
    pure = all(PURE.match(i) for i in found) and "%%" not in statement
    constant = CONSTANT.search(statement) is not None
    free = bool(found) and all(PURE.match(i) or NO_MEMORY.match(i) for i in found)
    if not volatile and not pure and not constant:
        yield f"{at}: `asm` without volatile: {found}"
    if volatile and not free and '"memory"' not in statement and "%%" not in statement:
        yield f'{at}: no "memory" clobber: {found}'


def check(root):
    problems = []
    calls = {}  # name -> feature of the instantiating file -> number of calls
    folder = root / "src/hw/instantiate"
    for path in sorted(folder.glob("*.cu")):
        text = path.read_text()
        feature = re.match(r"// Feature: (\w+)", text)
        feature = feature.group(1) if feature else "common"
        for name in re.findall(r"\b([a-z]\w*)\s*(?:<[^;{}]*?>)?\s*\(", strip_comments(text)):
            calls.setdefault(name, {}).setdefault(feature, 0)
            calls[name][feature] += 1

    declared = {}  # name -> features of its overloads
    where = {}
    for path in sorted((root / "src/hw").rglob("*.h")):
        text = strip_comments(path.read_text())
        known = macros(text)
        rest = text  # what no function contains: bodies inside macros
        for name, body, line, (begin, end) in functions(text):
            rest = rest[:begin] + re.sub(r"[^\n]", " ", rest[begin:end]) + rest[end:]
            at = f"{path.relative_to(root)}:{line}: {name}"
            statements = list(assembly(body, known))
            forms = re.findall(r"\b\w+_form<|\bwgmma_assembly<", body)
            if not statements and not forms:
                continue
            if re.fullmatch(r"\w+_form|wgmma_assembly", name):
                pass  # GPU halves that functions with both bodies share
            else:
                if "#if HT_GPU" not in body:
                    problems.append(f"{at}: no `#if HT_GPU` around the instruction")
                elif "#elif !defined(__CUDACC__)" not in body and (
                        forms or any(list(instructions(t)) for _, t in statements)):
                    problems.append(f"{at}: no model: `#elif !defined(__CUDACC__)` is missing")
                if not forms and not any(list(instructions(t)) for _, t in statements):
                    continue  # it holds registers in place, nothing else
                asserted = set(re.findall(r"Target::has\(Feature::(\w+)\)", body))
                model = body[body.find("#elif !defined(__CUDACC__)"):]
                if asserted and not re.search(r"\brequire\(|\bmodel::\w+\(|\bsim::wgmma", model):
                    problems.append(f"{at}: its model does not refuse chips without it: "
                                    f"sim::require(Feature::...) is missing")
                declared.setdefault(name, []).append(asserted or {"common"})
                where[name] = at
            for volatile, statement in statements:
                problems += clobbers(at, name, volatile, statement)
        at = f"{path.relative_to(root)}: in a macro"
        for volatile, statement in assembly(rest, {}):
            problems += clobbers(at, "form", volatile, statement)

    for name, overloads in declared.items():
        made = calls.get(name, {})
        if sum(made.values()) < len(overloads):
            problems.append(f"{where[name]}: {len(overloads)} overloads, "
                            f"{sum(made.values())} calls in src/hw/instantiate")
        for asserted in overloads:
            if not asserted & set(made):
                problems.append(f"{where[name]}: needs {sorted(asserted)}, called from files of "
                                f"{sorted(made) or 'none'}")
    return problems, len(declared), sum(map(len, declared.values()))


# (file, what is replaced, by what, a word of the problem that must be found)
MUTATIONS = [
    ("src/hw/barrier.h", '"bar.sync 0;" ::: "memory"', '"bar.sync 0;"', "clobber"),
    ("src/hw/mma/mma.h", "asm volatile(", "asm(", "without volatile"),
    ("src/hw/griddep.h", "#elif !defined(__CUDACC__)", "#elif 0", "no model"),
    ("src/hw/access.h", ': "memory"', ":", "clobber"),
    ("src/hw/mma/stmatrix.h", "static_assert(Target::has(Feature::stmatrix)", "static_assert((true)",
     "needs ['common']"),
    ("src/hw/mma/setmaxnreg.h", "sim::require(Feature::setmaxnreg", "(void)(0", "does not refuse"),
    ("src/hw/instantiate/warp.cu", "shuffle_up(", "shuffle_down(", "shuffle_up"),
    ("src/hw/instantiate/ldmatrix.cu", "ldmatrix(o.r4, o.shared);", "", "3 overloads, 2 calls"),
]


def self_test(root):
    """Each small break of the rules must be found; returns those that are not."""
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for file, old, new, word in MUTATIONS:
            shutil.rmtree(copy / "src", ignore_errors=True)
            shutil.copytree(root / "src/hw", copy / "src/hw")
            text = (copy / file).read_text()
            if old not in text:
                missed.append(f"{file}: the mutation's \"{old}\" is not there")
                continue
            (copy / file).write_text(text.replace(old, new))
            if not any(word in problem for problem in check(copy)[0]):
                missed.append(f"{file}: \"{old}\" became \"{new}\", and nothing was said")
    return missed


def main():
    arguments = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parent.parent
    if arguments == ["--self-test"]:
        missed = self_test(root)
        print("\n".join(missed) or f"check_hw: all {len(MUTATIONS)} broken forms are found")
        return 1 if missed else 0
    if arguments:
        root = pathlib.Path(arguments[0]).resolve()
    problems, names, overloads = check(root)
    for problem in problems:
        print(problem)
    print(f"check_hw: {names} functions, {overloads} overloads, {len(problems)} problems")
    return 1 if problems or not names else 0


if __name__ == "__main__":
    sys.exit(main())
