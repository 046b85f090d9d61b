#include "bench/targets.h"

#include <algorithm>
#include <cstddef>

#include "base/message.h"

namespace halftone {

namespace {

using Of = BenchTarget::Of;

// The processor, the libraries' versions and the conditions are those of kPublishedSource.
constexpr Published kPublished[] = {
    {"matmul 512x4096x4096 f32 weights x f32", "AOCL-DLP", 539, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "oneDNN 2.6.3", 537, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "OpenBLAS 0.3.21 (SkylakeX)", 474, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "ggml", 159, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "AOCL-DLP", 1102, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "ik_llama.cpp, repacked", 1067, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "oneDNN 2.6.3", 1066, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "ggml", 251, "GFLOP/s"},
    {"matmul 512x4096x4096 f16 weights x f16", "ik_llama.cpp", 494, "GFLOP/s"},
    {"matmul 512x4096x4096 f16 weights x f16", "ggml", 167, "GFLOP/s"},
    {"matmul 512x4096x4096 int8* weights x int8*", "AOCL-DLP", 2190, "GOP/s"},
    {"matmul 512x4096x4096 int8* weights x int8*", "oneDNN 2.6.3", 2134, "GOP/s"},
    {"matmul 512x4096x4096 int8 weights x bf16", "oneDNN 3.14-dev", 949, "GFLOP/s"},
    {"matmul 512x4096x4096 nvfp4 weights x bf16", "ggml", 103.5, "GFLOP/s"},
    {"matmul 512x4096x4096 mxfp4 weights x bf16", "ik_llama.cpp", 1031, "GFLOP/s"},
    {"matmul 512x4096x4096 mxfp4 weights x bf16", "ggml, repacked", 640, "GFLOP/s"},
    {"matmul 512x4096x4096 int4_g128 weights x bf16", "oneDNN 3.14-dev", 940, "GFLOP/s"},
    {"gemv 4096x4096 bf16 weights*", "ggml", 90, "GB/s"},
    {"gemv 4096x4096 bf16 weights*", "oneDNN 2.6.3 (partly L3)", 120, "GB/s"},
    {"gemv 4096x4096 f32 weights*", "ggml", 91, "GB/s"},
    {"gemv 4096x4096 f16 weights*", "ggml", 83, "GB/s"},
    {"gemv 4096x4096 int8 weights*", "ik_llama.cpp q8_0", 91, "GB/s"},
    {"gemv 4096x4096 int8 weights*", "ggml q8_0", 64, "GB/s"},
    {"gemv 4096x4096 nvfp4 weights*", "ggml", 27.7, "GB/s"},
    {"gemv 4096x4096 mxfp4 weights*", "ggml, repacked", 47.5, "GB/s"},
    {"gemv 4096x4096 mxfp4 weights*", "ik_llama.cpp", 15.7, "GB/s"},
    {"gemv 4096x4096 int4* weights*", "ggml q4_0, repacked", 59, "GB/s"},
    {"prefill 32/8 heads of 128, 2048 causal bf16+bf16", "ik_llama.cpp", 230, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal bf16+bf16", "ggml", 38, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal f16+f16", "ik_llama.cpp", 192, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal f16+f16", "ggml", 152, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal int8+bf16", "ik_llama.cpp q8_0", 304, "GFLOP/s"},
    {"prefill 6 heads of 64, 1500 full*", "ggml", 137, "GFLOP/s"},
    {"prefill 6 heads of 64, 1500 full*", "ik_llama.cpp", 47, "GFLOP/s"},
    {"decode 32/8 heads of 128, cache 8192 f16", "ik_llama.cpp", 54, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 f16", "ggml", 15.8, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 bf16", "ik_llama.cpp", 43, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 bf16", "ggml", 10.9, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 int8", "ik_llama.cpp q8_0", 50, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 int8", "ggml q8_0", 4.7, "GB/s"},
};

// Whether `text` is `pattern` with "*" for any characters, also none; what each of them is.
bool match(const char* pattern, const char* text, std::vector<std::string>* stars) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern != '*') return *pattern == *text && match(pattern + 1, text + 1, stars);
  const size_t before = stars->size();
  for (const char* end = text;; ++end) {
    stars->resize(before);
    stars->emplace_back(text, end);
    if (match(pattern + 1, end, stars)) return true;
    if (*end == '\0') break;
  }
  stars->resize(before);
  return false;
}
bool fits(const char* pattern, const std::string& text) {
  std::vector<std::string> stars;
  return match(pattern, text.c_str(), &stars);
}

// Of a family as reports call it, whichever device's.
template <class Entry>
const Entry* first_of(std::span<const Entry> entries, std::string_view family,
                      const std::string& row) {
  for (const Entry& entry : entries) {
    if (std::string_view(entry.family).substr(4) == family && fits(entry.rows, row)) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* const kPublishedSource =
    "Measured in 2026-11 on two cores of an AMD EPYC (Zen 5, 4.5 GHz), Debian 12, by the authors "
    "of "
    "the targets: ggml of llama.cpp of 2026-08, ik_llama.cpp with AVX-512 flags, oneDNN, AOCL-DLP "
    "d92b225, OpenBLAS of Debian. Weights of matrix-vector rows partly in the third-level cache.";

const BenchTarget* target_of(std::string_view family, const std::string& row) {
  return first_of(bench_targets(), family, row);
}
const BenchWithoutTarget* reason_of(std::string_view family, const std::string& row) {
  return first_of(bench_without_target(), family, row);
}

std::string compared_with(const BenchTarget& target, const std::string& row) {
  std::vector<std::string> stars;
  match(target.rows, row.c_str(), &stars);
  std::string name;
  for (const char* c = target.other; *c != '\0'; ++c) {
    if (*c == '$' && c[1] >= '1' && static_cast<size_t>(c[1] - '1') < stars.size()) {
      name += stars[static_cast<size_t>(*++c - '1')];
    } else {
      name += *c;
    }
  }
  return name;
}

std::string to_string(const BenchTarget& target, const std::string& row, const std::string& unit) {
  const double bound = target.bound;
  switch (target.of) {
    case Of::roof:
      return concat(bound, " of the roof");
    case Of::peer:
      return concat(bound, " of ", target.other);
    case Of::row:
      return concat(bound, " of ", compared_with(target, row));
    case Of::value:
      return concat(bound, " ", unit);
    case Of::seconds:
      break;
  }
  return bound < 1e-3 ? concat("at most ", bound * 1e6, " us")
                      : concat("at most ", bound * 1e3, " ms");
}

std::optional<Judgement> judge(std::string_view family, const BenchRow& row,
                               std::span<const BenchRow> all) {
  const BenchTarget* target = target_of(family, row.name);
  if (target == nullptr) return std::nullopt;
  Judgement j;
  j.target = to_string(*target, row.name, row.unit);
  double basis = 1;
  switch (target->of) {
    case Of::roof:
      basis = row.roof;
      break;
    case Of::peer:
      // Another peer than the target's says how fast others are, but not whether it is met.
      basis = std::string_view(row.peer_name).starts_with(target->other) ? row.peer : 0;
      break;
    case Of::row: {
      const std::string name = compared_with(*target, row.name);
      const auto other =
          std::find_if(all.begin(), all.end(), [&](const BenchRow& r) { return r.name == name; });
      basis = other == all.end() || name == row.name ? 0 : other->value;
      break;
    }
    case Of::value:
      break;
    case Of::seconds:
      j.reached = row.seconds;
      j.met = j.reached <= target->bound;
      return j;
  }
  if (!(basis > 0)) return std::nullopt;
  j.reached = row.value / basis;
  j.met = j.reached >= target->bound;
  return j;
}

std::vector<Published> published_for(const std::string& row) {
  std::vector<Published> found;
  for (const Published& p : kPublished) {
    if (fits(p.row, row)) found.push_back(p);
  }
  return found;
}

}  // namespace halftone
