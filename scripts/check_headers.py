#!/usr/bin/env python3
"""Checks that every file includes what it uses, so that other compilers and libraries take it.

The headers of g++ 12's library include each other freely: a file that forgets <cstdint> compiles
there and not with g++ 13. Two checks:
  * of the text: a file that uses a name of the table below (`uint8_t`, `std::string`, ...) includes
    a header that provides it, or a header of the project that it includes does;
  * by the compiler, syntax only: every header compiles as the only line of a file, those of the
    instruction levels with HALFTONE_LEVEL, .cuh files as the simulator compiles them.

One compilation for each of 600 headers is ten minutes of processor time. So one file includes
several headers, where that shows the same: of what was included before a header, the header uses
nothing but what it includes itself, by the names in the text. Where such a file does not compile,
each of its headers is compiled alone, and only what fails alone is a problem. A header that a .cpp
file of the tree includes in such a place has been compiled by the build.

Usage: check_headers.py [--text] [--alone] [--compiler "clang++-16 -stdlib=libc++"]...
       check_headers.py --self-test
  --text      only the check of the text
  --alone     one compilation for each header
  --compiler  a compiler that the tree is not built with, and its options: nothing is left to the
              build; may be repeated (without it: c++, and the rest is left to the build)
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile

# What may come before the names of a row, the names, and the headers that provide them; the first
# header is the one to include. Containers are specified to include <initializer_list>.
STD = r"std::"
ANY = r"(?:std::)?"  # C's names: also in the global namespace
CONTAINERS = ["string", "string_view", "vector", "array", "span", "map", "set", "deque", "list",
              "unordered_map", "unordered_set"]
TABLE = [
    (ANY, r"u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:ptr|max)_t|U?INT(?:8|16|32|64)_MAX|"
          r"INT(?:8|16|32|64)_MIN|SIZE_MAX", ["cstdint"]),
    (ANY, r"size_t", ["cstddef", "cstdio", "cstdlib", "cstring", "ctime", "cwchar"]),
    (ANY, r"ptrdiff_t|max_align_t|nullptr_t", ["cstddef"]),
    (STD, r"byte|to_integer", ["cstddef"]),
    (r"", r"offsetof(?=\()", ["cstddef"]),
    (ANY, r"(?:memcpy|memmove|memset|memcmp|memchr|strlen|strcmp|strncmp|strchr|strrchr|strstr|"
          r"strerror)(?=\()", ["cstring"]),
    (ANY, r"(?:printf|fprintf|snprintf|vsnprintf|fopen|fclose|fread|fwrite|fflush|fputs|puts|perror|"
          r"fseek|ftell|fgets|putchar|fputc|sscanf)(?=\()", ["cstdio"]),
    (ANY, r"FILE|stderr|stdout|stdin", ["cstdio"]),
    (ANY, r"(?:getenv|abort|_Exit|quick_exit|strtol|strtoll|strtoull|strtod|strtof|malloc|calloc|realloc|"
          r"aligned_alloc|atoi|atof|system|setenv|unsetenv)(?=\()|EXIT_(?:SUCCESS|FAILURE)", ["cstdlib"]),
    (STD, r"(?:exit|free)(?=\()", ["cstdlib"]),
    (r"", r"U?(?:INT|CHAR|SHRT|LONG|LLONG)_MAX|(?:INT|CHAR|SHRT|LONG|LLONG)_MIN|CHAR_BIT",
     ["climits"]),
    (r"", r"(?:FLT|DBL)_(?:MAX|MIN|EPSILON|DIG|MANT_DIG|DECIMAL_DIG)", ["cfloat"]),
    (r"", r"assert(?=\()", ["cassert"]),
    (r"", r"errno|ENOENT|EINTR|EINVAL|ENOMEM|EAGAIN|EEXIST|EPERM|EACCES", ["cerrno"]),
    (ANY, r"(?:isdigit|isalpha|isalnum|isspace|isupper|islower|isxdigit|isprint|ispunct|tolower|"
          r"toupper)(?=\()", ["cctype"]),
    (ANY, r"(?:sqrt|cbrt|exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|atan|atan2|erf|"
          r"floor|ceil|trunc|round|lround|llround|rint|lrint|llrint|nearbyint|fabs|fmod|ldexp|frexp|"
          r"scalbn|ilogb|logb|fma|hypot|copysign|nextafter|remainder|isnan|isinf|isfinite|signbit|"
          r"fmin|fmax)(?:f(?=\())(?!\w)|INFINITY|NAN|HUGE_VAL|M_PI", ["cmath"]),
    (STD, r"(?:sqrt|cbrt|exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|atan|atan2|erf|"
          r"floor|ceil|trunc|round|lround|llround|rint|lrint|llrint|nearbyint|fabs|fmod|ldexp|frexp|"
          r"scalbn|ilogb|logb|fma|hypot|copysign|nextafter|remainder|isnan|isinf|isfinite|signbit|"
          r"fmin|fmax)(?=\()", ["cmath"]),
    (STD, r"abs(?=\()", ["cmath", "cstdlib"]),
    (STD, r"time(?=\()|time_t|tm(?= )|gmtime|localtime|strftime", ["ctime"]),
    (STD, r"(?:basic_)?string(?!_view)|to_string|stoi|stol|stoll|stoul|stoull|stof|stod|char_traits|"
          r"getline", ["string"]),
    (STD, r"string_view|u8string_view", ["string_view"]),
    (STD, r"from_chars|to_chars|from_chars_result|chars_format", ["charconv"]),
    (STD, r"vector", ["vector"]),
    (STD, r"array|to_array", ["array"]),
    (STD, r"span|as_bytes|as_writable_bytes|dynamic_extent", ["span"]),
    (STD, r"optional|nullopt|nullopt_t|make_optional", ["optional"]),
    (STD, r"variant|visit|holds_alternative|get_if|monostate|variant_alternative_t", ["variant"]),
    (STD, r"any_cast|any(?=[ >&])", ["any"]),
    (STD, r"tuple|make_tuple|tie|apply|tuple_cat", ["tuple"]),
    (STD, r"tuple_size_v|tuple_size|tuple_element_t", ["tuple", "array", "utility"]),
    (STD, r"map|multimap", ["map"]),
    (STD, r"set|multiset", ["set"]),
    (STD, r"unordered_map|unordered_multimap", ["unordered_map"]),
    (STD, r"unordered_set|unordered_multiset", ["unordered_set"]),
    (STD, r"deque", ["deque"]),
    (STD, r"list|forward_list", ["list"]),
    (STD, r"queue|priority_queue", ["queue"]),
    (STD, r"stack", ["stack"]),
    (STD, r"bitset", ["bitset"]),
    (STD, r"initializer_list", ["initializer_list", *CONTAINERS]),
    (STD, r"move|forward|pair|make_pair|exchange|swap|declval|as_const|in_place|in_place_t|"
          r"in_place_type|piecewise_construct|index_sequence|index_sequence_for|"
          r"make_index_sequence|integer_sequence|make_integer_sequence|cmp_(?:less|greater|equal)\w*|"
          r"in_range|unreachable|to_underlying", ["utility"]),
    (STD, r"unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared|enable_shared_from_this|"
          r"addressof|allocator|allocator_traits|default_delete|uninitialized_\w+|construct_at|destroy_at|"
          r"static_pointer_cast|dynamic_pointer_cast|make_unique_for_overwrite|assume_aligned",
     ["memory"]),
    (STD, r"function|bind|ref|cref|reference_wrapper|invoke|hash|less|greater|less_equal|"
          r"greater_equal|equal_to|plus|multiplies|minus|identity|mem_fn|bind_front|not_fn",
     ["functional"]),
    (STD, r"numeric_limits", ["limits"]),
    (STD, r"(?:min|max|minmax|clamp|sort|stable_sort|partial_sort|nth_element|fill|fill_n|copy|copy_n|"
          r"copy_if|copy_backward|move_backward|transform|find|find_if|find_if_not|find_first_of|any_of|all_of|"
          r"none_of|count|count_if|equal|for_each|for_each_n|generate|generate_n|reverse|rotate|unique|remove|"
          r"remove_if|replace|lower_bound|upper_bound|equal_range|binary_search|max_element|"
          r"min_element|minmax_element|is_sorted|adjacent_find|mismatch|search|shuffle|"
          r"next_permutation|prev_permutation|partition|stable_partition|includes|set_difference|set_intersection|"
          r"set_union|merge|push_heap|pop_heap|make_heap|sort_heap|swap_ranges|lexicographical_compare|"
          r"is_permutation|iter_swap|unique_copy|reverse_copy)(?=[(<])",
     ["algorithm"]),
    (STD, r"ranges::(?:sort|stable_sort|find|find_if|any_of|all_of|none_of|count|count_if|equal|copy|"
          r"fill|reverse|max|min|max_element|min_element|lower_bound|upper_bound|contains|for_each|"
          r"transform|unique|is_sorted|binary_search|generate|adjacent_find|search|mismatch|shuffle)",
     ["algorithm"]),
    (STD, r"views::\w+|ranges::(?:\w+_view|\w*range)\b", ["ranges"]),
    (STD, r"accumulate|iota|reduce|inner_product|partial_sum|exclusive_scan|inclusive_scan|gcd|lcm|"
          r"midpoint|transform_reduce", ["numeric"]),
    (STD, r"back_inserter|inserter|istreambuf_iterator|ostream_iterator|istream_iterator|"
          r"reverse_iterator|make_move_iterator|iterator_traits|\w+_iterator_tag|distance|advance|"
          r"prev|next(?=\()", ["iterator"]),
    (STD, r"(?:size|ssize|data|begin|end|empty|rbegin|rend)(?=\()", ["iterator", *CONTAINERS]),
    (STD, r"bit_cast|countr_zero|countl_zero|countr_one|countl_one|popcount|has_single_bit|bit_width|bit_ceil|"
          r"bit_floor|rotl|rotr|endian", ["bit"]),
    (STD, r"is_\w+_v|enable_if_t|enable_if|conditional_t|conditional|decay_t|remove_\w+_t|remove_\w+|add_\w+_t|"
          r"underlying_type_t|make_(?:un)?signed_t|common_type_t|invoke_result_t|is_(?:same|base_of|"
          r"integral|floating_point|const|void|convertible|constant_evaluated)|integral_constant|"
          r"bool_constant|true_type|false_type|void_t|type_identity_t|type_identity|extent_v|rank_v|"
          r"alignment_of_v|conjunction_v|disjunction_v|negation_v|has_unique_object_representations_v",
     ["type_traits"]),
    (STD, r"same_as|convertible_to|integral|floating_point|signed_integral|unsigned_integral|"
          r"derived_from|invocable|regular_invocable|predicate|constructible_from|default_initializable|"
          r"copyable|movable|regular|semiregular|equality_comparable|totally_ordered", ["concepts"]),
    (STD, r"atomic\w*|memory_order\w*", ["atomic"]),
    (STD, r"(?:recursive_|timed_)?mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once",
     ["mutex"]),
    (STD, r"shared_mutex|shared_lock", ["shared_mutex"]),
    (STD, r"condition_variable(?:_any)?|cv_status", ["condition_variable"]),
    (STD, r"j?thread|this_thread::\w+", ["thread"]),
    (STD, r"stop_token|stop_source|stop_callback", ["stop_token"]),
    (STD, r"future|promise|async|packaged_task", ["future"]),
    (STD, r"barrier", ["barrier"]),
    (STD, r"latch", ["latch"]),
    (STD, r"counting_semaphore|binary_semaphore", ["semaphore"]),
    (STD, r"chrono", ["chrono"]),
    (STD, r"filesystem", ["filesystem"]),
    (STD, r"[io]?fstream|filebuf", ["fstream"]),
    (STD, r"[io]?stringstream|stringbuf", ["sstream"]),
    (STD, r"cout|cerr|clog|cin", ["iostream"]),
    (STD, r"ostream", ["ostream", "iosfwd", "iostream", "sstream", "fstream"]),
    (STD, r"istream", ["istream", "iosfwd", "iostream", "sstream", "fstream"]),
    (STD, r"setw|setprecision|setfill|quoted", ["iomanip"]),
    (STD, r"locale", ["locale"]),
    (STD, r"runtime_error|logic_error|invalid_argument|out_of_range|length_error|domain_error|"
          r"range_error|overflow_error|underflow_error", ["stdexcept"]),
    (STD, r"exception|exception_ptr|current_exception|rethrow_exception|make_exception_ptr|"
          r"uncaught_exceptions|terminate|set_terminate|nested_exception",
     ["exception", "stdexcept"]),
    (STD, r"bad_alloc|nothrow|nothrow_t|launder|align_val_t|hardware_destructive_interference_size",
     ["new"]),
    (STD, r"error_code|errc|system_error|generic_category|system_category", ["system_error"]),
    (STD, r"numbers::\w+", ["numbers"]),
    (STD, r"(?:strong|weak|partial)_ordering", ["compare"]),
    (STD, r"source_location", ["source_location"]),
    (STD, r"type_info|bad_cast", ["typeinfo"]),
    (STD, r"type_index", ["typeindex"]),
    (STD, r"mt19937(?:_64)?|random_device|\w+_distribution|minstd_rand|seed_seq|"
          r"default_random_engine", ["random"]),
    (STD, r"complex", ["complex"]),
    (STD, r"signal|sig_atomic_t", ["csignal"]),
    (STD, r"(?:jmp_buf|longjmp)", ["csetjmp"]),
    (STD, r"regex\w*|smatch", ["regex"]),
    (r"", r"_mm(?:256|512)?_\w+|__m(?:128|256|512)(?:i|d|bh)?|__mmask\d+", ["immintrin.h"]),
    (r"", r"va_list|va_start|va_end", ["cstdarg"]),
    (r"fmt::", r"format\w*|print|println|runtime|vformat|join|styled|emphasis", ["fmt/"]),
    (r"nlohmann::", r"\w+", ["nlohmann/"]),
    (r"CLI::", r"\w+", ["CLI/"]),
    (r"testing::", r"\w+", ["gtest/", "gmock/"]),
]
ROWS = [(re.compile(rf"{prefix}(?:{names})(?!\w)"), providers)
        for prefix, names, providers in TABLE]
# A qualified name and what comes after it.
NAME = re.compile(r"(?<![\w:.>\"])[A-Za-z_]\w*(?:::\w+)*[ (<>&]?")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^">]+)[">]', re.M)
FOLDERS = ["include", "src", "tests", "apps/halftone", "examples"]
# Compiled by nvcc only: instructions that the simulator has no file for.
GPU_ONLY = re.compile(r"src/hw/instantiate/")
LEVEL_FLAGS = ["-DHALFTONE_LEVEL=cpu_avx512_bf16", "-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16",
               "-mavx512vbmi", "-mavx512vbmi2", "-mavx512bitalg"]
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![\w])\'(?:[^\'\\\n]|\\.)+\'',
    re.S)
# Words that a header must have a declaration of: not members, nor what a type or std qualifies.
WORD = re.compile(r"(?<![\w.])(?<!->)(?<!std::)(?:[A-Z]\w*::\w+(?:::\w+)*|[A-Za-z_]\w*)")
NOT_CODE = re.compile(r"\bnamespace\s+[\w:]+|^\s*#\s*(?:pragma|error)[^\n]*", re.M)
KEYWORDS = frozenset(
    "alignas alignof auto bool break case catch char class concept const const_cast consteval "
    "constexpr constinit continue decltype default define defined delete do double dynamic_cast else "
    "endif enum explicit extern false final float for friend goto if inline int long mutable "
    "namespace new noexcept nullptr operator override private protected public reinterpret_cast "
    "requires return short signed sizeof static static_assert static_cast std struct switch template "
    "this thread_local throw true try typedef typename undef union unsigned using virtual void "
    "volatile while".split())
# A name where it may be declared, and where it is: after a keyword, or after a type and before what
# follows a name.
KEYWORD = (r"\b(?:class|struct|union|enum(?:\s+class|\s+struct)?|concept|using|typename)\s+"
           r"(?:alignas\([^)]*\)\s*)?|#\s*define\s+")
FOLLOWS = r"(?=\s*[({=;,<:\[)]|\s+\w)"
MAY_DECLARE = re.compile(rf"(?:{KEYWORD}|(?<=[\w>&*\]])\s+[&*]*|(?<=[&*>:])|(?<=,)\s+)"
                         rf"([A-Za-z_]\w*){FOLLOWS}")
TYPES = {"auto", "bool", "char", "const", "double", "float", "int", "long", "short", "signed",
         "unsigned", "void"}
NO_TYPE = rf"(?!(?:{'|'.join(sorted(KEYWORDS - TYPES | {'and', 'or', 'not'}))})\b)"
DECLARES = re.compile(rf"(?:{KEYWORD})([A-Za-z_]\w*){FOLLOWS}|"
                      rf"(?:\b{NO_TYPE}\w+|[>\]])[>*&]*\s+([A-Za-z_]\w*)(?=\s*[({{=;,<:\[)])|"
                      rf",\s+([A-Za-z_]\w*)(?=\s+=\s)")


def plain(text):
    """The text without comments and literals; the lines stay."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] == "/"
                     else '""' + "\n" * m.group(0).count("\n"), text)


@functools.cache
def provided_by(name):
    """Lists of headers, each of which a user of the name needs one of."""
    return [providers for pattern, providers in ROWS if pattern.match(name)]


class Tree:
    def __init__(self, root, files):
        self.root = root
        self.files = sorted(files)
        known = set(self.files)
        self.text, self.system, self.own = {}, {}, {}
        for file in self.files:
            raw = (root / file).read_text()
            includes = INCLUDE.findall(raw)
            self.system[file] = {name for _, name in includes}
            self.own[file] = []
            for _, name in includes:
                for folder in [os.path.dirname(file), *FOLDERS]:
                    path = os.path.normpath(os.path.join(folder, name))
                    if path in known:
                        self.own[file].append(path)
                        break
            self.text[file] = plain(INCLUDE.sub("", raw))
        self.headers = [f for f in self.files if f.endswith((".h", ".cuh")) and not GPU_ONLY.match(f)]
        self.sources = [f for f in self.files if f.endswith(".cpp")]

    @functools.cache
    def closure(self, file):
        """All files of the project that the file includes."""
        found, todo = set(), list(self.own[file])
        while todo:
            other = todo.pop()
            if other not in found:
                found.add(other)
                todo += self.own[other]
        return frozenset(found)

    @functools.cache
    def may_declare(self, file):
        return set(MAY_DECLARE.findall(NOT_CODE.sub("", self.text[file]))) - KEYWORDS

    @functools.cache
    def declares(self, file):
        return {name for names in DECLARES.findall(self.text[file]) for name in names}

    @functools.cache
    def wanting(self, file):
        """Names of the file that neither it nor its includes declare, as far as the text tells."""
        text = NOT_CODE.sub("", self.text[file])
        words = {word.split("::")[0] for word in WORD.findall(text)} - KEYWORDS
        words.difference_update(*(self.declares(f) for f in [file, *self.closure(file)]))
        return {word for word in words if not provided_by(word)}

    @functools.cache
    def level(self, file):
        return any(re.search(r"\bHALFTONE_LEVEL\b", self.text[f])
                   for f in [file, *self.closure(file)])

    def lent(self, file, other):
        """Names that `file` would have from `other` alone."""
        return self.wanting(file) & self.may_declare(other)

    def include(self, file, seen, alone):
        """Adds the file and its includes to `seen`, and to `alone` what sees its own includes only."""
        if file in seen:
            return
        free = file not in alone and file in self.alone_headers and all(
            other in self.closure(file) or not self.lent(file, other) for other in seen)
        for other in self.own[file]:
            self.include(other, seen, alone)
        seen.add(file)
        if free:
            alone.add(file)

    @functools.cached_property
    def alone_headers(self):
        return set(self.headers)


def includes_one(given, providers):
    return any(p in given or (p[-1] == "/" and any(g.startswith(p) for g in given))
               for p in providers)


def check_text(tree):
    """Names without their header: (file, line, message)."""
    problems = []
    for file in tree.files:
        given = set().union(*(tree.system[f] for f in [file, *tree.closure(file)]))
        text = tree.text[file]
        missing = {}  # the header to include: where its first name is
        for m in NAME.finditer(text):
            for providers in provided_by(m.group(0)):
                if providers[0] not in missing and not includes_one(given, providers):
                    missing[providers[0]] = m
        for header, m in missing.items():
            line = text.count("\n", 0, m.start()) + 1
            name = m.group(0).rstrip(" (<>&")
            problems.append((file, line, f"{name} needs #include <{header}>"))
    return problems


def compile_headers(compiler, tree, headers):
    """Errors of one file that includes the headers, or None."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "alone.cpp"
        source.write_text("".join(f'#include "{tree.root / h}"\n' for h in headers))
        flags = ["-std=c++20", "-fsyntax-only", "-ffp-contract=off", "-w"]
        if tree.level(headers[0]) and platform.machine() in ("x86_64", "AMD64"):
            flags += LEVEL_FLAGS
        elif tree.level(headers[0]):
            flags += ["-DHALFTONE_LEVEL=cpu_baseline"]
        flags += [f"-I{tree.root / f}" for f in FOLDERS[:3]]
        done = subprocess.run([*compiler, *flags, str(source)], capture_output=True, text=True,
                              check=False, env={**os.environ, "LC_ALL": "C"})
        return (done.stderr or f"exit {done.returncode}") if done.returncode else None


def batches(tree, covered, most=40):
    """Lists of headers, one compilation each, that show every header but `covered`."""
    covered = set(covered)
    wanted = [h for h in tree.headers if h not in covered]
    open_batches = []  # level, headers, seen
    # Long closures first: they cover most of what they include.
    for header in sorted(wanted, key=lambda h: (-len(tree.closure(h)), h)):
        if header in covered:
            continue
        best = None
        for batch in open_batches:
            level, members, seen = batch
            if level != tree.level(header) or len(members) >= most:
                continue
            if all(o in tree.closure(header) or not tree.lent(header, o) for o in seen):
                new = len(tree.closure(header) - seen)
                if best is None or new < best[0]:
                    best = (new, batch)
        if best is None:
            best = (0, (tree.level(header), [], set()))
            open_batches.append(best[1])
        _, members, seen = best[1]
        members.append(header)
        tree.include(header, seen, covered)
    return [members for _, members, _ in open_batches]


def check_compiles(tree, compiler, alone, built):
    """Headers that do not compile alone, with the errors; how many the build compiles; files made."""
    covered = set()
    for file in built:
        tree.include(file, set(), covered)
    groups = [[h] for h in tree.headers] if alone else batches(tree, covered)

    def one(group):
        errors = compile_headers(compiler, tree, group)
        if errors is None:
            return []
        found = []
        if len(group) == 1:
            found = [(group[0], errors)]
        else:
            for header in group:
                errors = compile_headers(compiler, tree, [header])
                if errors is not None:
                    found.append((header, errors))
        return found

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        problems = [p for found in pool.map(one, groups) for p in found]
    return problems, len(covered), len(groups)


def listed(root):
    out = subprocess.run(["git", "-C", str(root), "ls-files", "*.h", "*.cuh", "*.cpp", "*.cu"],
                         capture_output=True, text=True, check=True).stdout
    return [f for f in out.split() if (root / f).exists()]


# Trees of a few files, and what must be said of them: (file, a word of the problem).
TREES = [
    ("a fixed-size integer", {"src/a.h": "inline uint8_t f() { return 0; }"}, {("src/a.h", "cstdint")}),
    ("in a comment, a string and a member's name",
     {"src/a.h": '// uint8_t\nstruct A { int string; };\ninline int f(A a) { return a.string; }\n'
                 'inline const char* g() { return "std::string"; }'}, set()),
    ("by way of a header of the project",
     {"src/a.h": "#include <cstdint>\n", "src/b.h": '#include "a.h"\ninline uint8_t f() { return 0; }'},
     set()),
    ("by way of a header of the library",
     {"src/a.h": "#include <vector>\ninline std::string f() { return {}; }"}, {("src/a.h", "string")}),
    ("std::move, without its header, in a source",
     {"src/a.cpp": "#include <vector>\nstd::vector<int> f(std::vector<int> v) { return std::move(v); }"},
     {("src/a.cpp", "utility")}),
    ("size_t, from one of its headers", {"src/a.h": "#include <cstring>\ninline size_t f() { return 0; }"},
     set()),
    ("a function of <cmath>", {"src/a.h": "inline float f(float x) { return std::sqrt(x); }"},
     {("src/a.h", "cmath")}),
    ("a function of that name elsewhere",
     {"src/a.h": "namespace hw { float exp2(float); }\ninline float f(float x) { return hw::exp2(x); }"},
     set()),
    ("a type of a header that another one includes",
     {"src/a.h": "struct Apple { int weight; };", "src/b.h": "inline int f(Apple a) { return a.weight; }"},
     {("src/b.h", "Apple")}),
    ("the same, where a source hides it",
     {"src/a.h": "struct Apple { int weight; };", "src/b.h": "inline int f(Apple a) { return a.weight; }",
      "src/c.cpp": '#include "a.h"\n#include "b.h"'}, {("src/b.h", "Apple")}),
    ("a macro", {"src/a.h": "#define APPLES 3", "src/b.h": "inline int f() { return APPLES; }"},
     {("src/b.h", "APPLES")}),
    ("a function",
     {"src/a.h": "inline int weight() { return 1; }", "src/b.h": "inline int f() { return weight(); }"},
     {("src/b.h", "weight")}),
    ("an alias and a constant",
     {"src/a.h": "using Apple = int;", "src/b.h": "inline Apple f() { return 1; }",
      "src/c.h": "inline constexpr int kPears = 1;", "src/d.h": "inline int g() { return kPears; }"},
     {("src/b.h", "Apple"), ("src/d.h", "kPears")}),
    ("two headers that exclude each other",
     {"src/a.h": "struct Apple {};", "src/b.h": "struct Apple { int weight; };"}, set()),
    ("an instruction level",
     {"src/a.h": "namespace HALFTONE_LEVEL { inline int f() { return 1; } }",
      "src/b.h": '#include "a.h"\nstatic_assert(HALFTONE_LEVEL::g());'}, {("src/b.h", "'g'")}),
]


def self_test(compiler):
    """Each tree must be judged as it says; returns those that are not."""
    missed = []
    for what, files, wanted in TREES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("#pragma once\n" * name.endswith("h") + text + "\n")
            tree = Tree(root, files)
            found = [(file, message) for file, _, message in check_text(tree)]
            if not found:
                found = check_compiles(tree, compiler, False, tree.sources)[0]
        for file, word in sorted(wanted):
            if not any(f == file and word in message for f, message in found):
                missed.append(f"{what}: nothing is said of {word} in {file}")
        extra = {f for f, _ in found} - {f for f, _ in wanted}
        missed += [f"{what}: {f} has no problem, but: {m}" for f, m in found if f in extra]
    return missed


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("check_headers.py ["):])
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--compiler", action="append", default=[])
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        missed = self_test(["c++"])
        print("\n".join(missed) or f"check_headers: all {len(TREES)} trees are judged as they should")
        return 1 if missed else 0

    root = pathlib.Path(__file__).resolve().parent.parent
    tree = Tree(root, listed(root))
    problems = check_text(tree)
    for file, line, message in problems:
        print(f"{file}:{line}: {message}")
    failed = bool(problems) or not tree.files
    print(f"check_headers: {len(tree.files)} files, {len(problems)} names without their header")
    for command in [] if options.text else options.compiler or ["c++"]:
        built = [] if options.compiler or options.alone else tree.sources
        problems, covered, count = check_compiles(tree, shlex.split(command), options.alone, built)
        for header, errors in problems:
            print(f"{header} does not compile alone with {command}:\n{errors}")
        print(f"check_headers: {command}: {len(tree.headers)} headers, {covered} of them left to the "
              f"build, the others in {count} compilations, {len(problems)} problems")
        failed = failed or bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
