#include "ops/gemm/dispatch.h"

#include <algorithm>
#include <bit>
#include <climits>

#include "base/message.h"
#include "ops/gemm/cpu/kernel_sets.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm90/gemv/grouped_launch.h"
#include "ops/gemm/sm90/gemv/launch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/gemm/sm90/small_m/grouped_launch.h"
#include "ops/gemm/sm90/small_m/launch.h"

namespace halftone::gemm {

namespace {

// The power of two, 16 at most, that divides an address or a distance in bytes.
int power_of_two(uint64_t bytes) { return 1 << std::countr_zero(bytes | 16); }
int contiguous_rows(int64_t rows, int64_t bits_of_row) {
  return rows <= 1 ? 16 : power_of_two(static_cast<uint64_t>(ceil_div(bits_of_row, 8)));
}

// What the rules of the kernels look at, made once.
struct Case {
  const GemmProblem& p;  // as it is given
  GemmProblem rows;      // W as [N, K], x normalised: by kernels ahead, into memory of the plan
  GpuWeight weight;
  GpuX x;
  const GemmDevice& device;

  Case(const GemmProblem& given, const GemmDevice& d)
      : p(given),
        rows(given),
        weight(gpu_weight(given.x, given.weight, given.scaled, given.scaling)),
        x(given.x, weight, given.k),
        device(d) {
    if (p.transposed) {
      rows.transposed = false;
      rows.alignment.weight = contiguous_rows(2, p.k * bits(p.weight));
    }
    if (p.norm) rows.alignment.x = contiguous_rows(p.m, p.k * bits(p.x.format));
    // Their tensor cores sum in f16 at twice the rate.
    const bool twice = d.arch == Arch::sm_89 || d.arch == Arch::sm_120a;
    if (p.f16_sums && weight.code == GpuCode::f16 && twice && many_rows()) {
      weight.code = GpuCode::f16_sums;
    }
  }
  // The average, of experts.
  int64_t rows_of_a_matrix() const { return p.experts > 0 ? ceil_div(p.m, p.experts) : p.m; }
  bool many_rows() const { return p.batch_invariant || !fits_gemv(rows_of_a_matrix() * x.terms()); }
  // gemm_sm80 multiplies 128 columns, however few there are. So where operands have terms, or codes
  // are dequantised, some dozens of rows go to gemv_sm80, in chunks that each read W
  // (docs/findings/gpu-gemv.md). 0: they do not.
  int64_t gemv_rows() const {
    constexpr int64_t kMaxChunks = 6;
    if (!many_rows()) return rows_of_a_matrix();
    if (p.experts > 0 || p.shared_expert || p.batch_invariant) return 0;
    const GpuCode code = weight.code;
    const bool plain = code == GpuCode::bf16 || code == GpuCode::f16 || code == GpuCode::f16_sums;
    const int64_t chunk = kGemvMaxColumns / x.terms();
    return (plain && x.terms() == 1) || p.m > kMaxChunks * chunk ? 0 : chunk;
  }
  // As gemm_sm90 takes it: the rows of a gate and of its other half would have to alternate within
  // a row of [K, N].
  GemmProblem sm90() const {
    GemmProblem q = rows;
    if (p.transposed && !p.gate && p.n % 8 == 0) {
      q.transposed = true, q.alignment.weight = p.alignment.weight;
    }
    return q;
  }
};

constexpr const char* kInvariant =
    "batch_invariant is set; the kernel would depend on how many rows there are";

std::string aligned(const GemmProblem& p, const OperandNeeds& needs) {
  return refuse_alignment(p.alignment, needs);
}

// --- CPUs ---

std::string refuse_cpu_f32(const Case&) { return ""; }
XRows rows_of(const GemmProblem& p) {
  return {p.x, octet_order(code_of(p.weight, p.scaled, p.scaling)), p.k};
}
[[maybe_unused]] std::string refuse_cpu_bf16(const Case& c) {
  return refuse_bf16(rows_of(c.p).packed(), c.p.weight, c.p.scaled, c.p.scaling);
}
std::string refuse_cpu_int8(const Case& c) {
  if (!rows_of(c.p).can_use_integers()) return "x is not int8 codes with one scale a row";
  return refuse_int8(c.p.weight, c.p.scaled, c.p.scaling, c.p.k);
}
void choose_cpu(const Case&, GemmChoice*) {}

// --- every GPU ---

// A grid has 65535 blocks along y, of at least 42 rows.
std::string refuse_gpu(const GemmProblem& p) {
  constexpr int64_t kRows = int64_t{1} << 21, kExtent = int64_t{1} << 30;
  if (p.m > kRows) return concat("m is ", p.m, "; GPUs take up to ", kRows);
  if (p.n > kExtent || p.k > kExtent) {
    return concat("N is ", p.n, " and K ", p.k, "; GPUs take up to ", kExtent);
  }
  return refuse_gpu_x(p.x);
}

std::string refuse_gemv_sm80(const Case& c) {
  if (c.p.batch_invariant) return kInvariant;
  if (c.gemv_rows() > 0) return "";
  return concat(c.p.experts > 0 ? "experts have on average " : "m is ", c.rows_of_a_matrix(),
                "; gemv_sm80 takes up to ", kGemvMaxColumns / c.x.terms(), " rows",
                c.p.experts > 0 || c.p.shared_expert ? ""
                                                     : ", six times as many where x or the "
                                                       "weight is dequantised");
}
void choose_gemv_sm80(const Case& c, GemmChoice* choice) {
  GemmProblem p = c.rows;
  const int64_t chunk = c.gemv_rows();
  if (p.experts == 0 && chunk < p.m) p.m = chunk;
  choice->loop = loop_of_gemv(p, c.weight, c.x);
  choice->needs = needs_gemv(p, c.weight, c.x);
  const char* loop = choice->loop == GpuLoop::any     ? ", any operands"
                     : choice->loop == GpuLoop::wide  ? ""
                     : choice->loop == GpuLoop::ue8m0 ? ", scales by lanes"
                                                      : ", scales of short groups";
  if (p.experts > 0) {
    choice->chunk_rows = rows_of_chunk(c.x.terms(), false, chunk);
    choice->tile = concat("16 rows of W a block, chunks of ", choice->chunk_rows, " rows", loop);
    return;
  }
  choice->chunk_rows = static_cast<uint32_t>(chunk);
  const bool persistent =
      gemv_is_persistent(p, c.weight, c.x, c.device.sm_count, c.device.shared_per_sm);
  choice->tile = concat("16 rows of W a block",
                        chunk < c.p.m ? concat(", ", chunk, " rows of x at a time") : "",
                        persistent ? ", persistent CTAs" : "", loop);
}

std::string refuse_gemm_sm80(const Case&) { return ""; }
void choose_gemm_sm80(const Case& c, GemmChoice* choice) {
  if (c.p.experts > 0) choice->chunk_rows = rows_of_chunk(c.x.terms(), true, 0);
  choice->tile = concat("tiles of 128 x 128",
                        c.p.experts > 0 ? concat(", chunks of ", choice->chunk_rows, " rows") : "",
                        c.weight.code == GpuCode::f16_sums ? ", sums of 64 products in f16" : "");
}

// --- Hopper ---

GemmProblem for_gemv_sm90(const Case& c) {
  GemmProblem p = c.rows;
  if (p.norm && norms_sm90_gemv(p)) p.alignment.x = c.p.alignment.x;
  return p;
}
std::string refuse_gemv_sm90(const Case& c) {
  if (c.p.batch_invariant) return kInvariant;
  if (c.p.experts > 0) return "rows belong to experts; gemv_sm90 multiplies one by one weight";
  if (c.p.shared_expert) return "the weight is a shared expert's, whose rows go to gemv_sm80";
  const GemmProblem p = for_gemv_sm90(c);
  const std::string reason = refuse_sm90_gemv(p, c.weight, c.x);
  return reason.empty() ? aligned(p, needs_sm90_gemv(p, c.weight)) : reason;
}
void choose_gemv_sm90(const Case& c, GemmChoice* choice) {
  const GemmProblem p = for_gemv_sm90(c);
  choice->needs = needs_sm90_gemv(p, c.weight);
  choice->normalises = norms_sm90_gemv(p);
  choice->tile = concat("16 rows of W a tile", choice->normalises ? ", normalises x" : "");
}

std::string refuse_small_m(const Case& c) {
  if (c.p.batch_invariant) return kInvariant;
  if (c.p.experts > 0) return "rows belong to experts; gemm_sm90_small_m has one weight";
  const std::string reason = refuse_sm90_small_m(c.rows, c.weight, c.x);
  return reason.empty() ? aligned(c.rows, needs_sm90_small_m(c.rows, c.weight)) : reason;
}
template <int kBits, std::string (*kRefuse)(const Case&)>
std::string of_bits(const Case& c) {
  if (bits(c.p.weight) != kBits) {
    return concat("weight is ", name(c.p.weight), "; it must have ", kBits, " bits");
  }
  return kRefuse(c);
}
void choose_small_m(const Case& c, GemmChoice* choice) {
  choice->needs = needs_sm90_small_m(c.rows, c.weight);
  choice->tile = describe_sm90_small_m(c.p.m, c.p.n, c.p.k, c.p.gate, c.device.sm_count);
}

std::string refuse_gemv_grouped(const Case& c) {
  if (c.p.batch_invariant) return kInvariant;
  std::string reason = refuse_sm90_grouped_gemv(c.rows, c.weight, c.x);
  if (!reason.empty()) return reason;
  // It is the faster one while few experts have any rows, and takes more formats.
  const int64_t fewest = fewest_rows_sm90_grouped_small_m(c.rows, c.weight);
  if (c.p.m >= fewest && refuse_sm90_grouped_small_m(c.rows, c.weight, c.x).empty()) {
    return concat("the experts have ", c.p.m, " rows; gemm_sm90_small_m_grouped is faster from ",
                  fewest, " on");
  }
  return aligned(c.rows, needs_sm90_grouped_gemv(c.weight));
}
void choose_gemv_grouped(const Case& c, GemmChoice* choice) {
  choice->needs = needs_sm90_grouped_gemv(c.weight);
  choice->chunk_rows = chunk_rows_sm90_grouped_gemv(c.rows, c.weight);
  choice->tile = concat("chunks of up to ", choice->chunk_rows, " rows");
}

std::string refuse_small_m_grouped(const Case& c) {
  if (c.p.batch_invariant) return kInvariant;
  const std::string reason = refuse_sm90_grouped_small_m(c.rows, c.weight, c.x);
  return reason.empty() ? aligned(c.rows, needs_sm90_grouped_small_m(c.rows, c.weight)) : reason;
}
void choose_small_m_grouped(const Case& c, GemmChoice* choice) {
  choice->needs = needs_sm90_grouped_small_m(c.rows, c.weight);
  choice->chunk_rows = chunk_rows_sm90_grouped_small_m(c.rows);
  choice->ordered = true;
  choice->tile = concat("tiles of 128 x ", choice->chunk_rows);
}

// Of three kernels, which `choose_sm90` tells apart by the time that they should take.
enum class Sm90Form : uint8_t { fp8_small_m, fp8, mixed };
Sm90Form form_of(const Sm90Choice& c) {
  if (c.few > 0) return Sm90Form::fp8_small_m;
  return c.scales == ScaleMode::fp8_promotion && c.columns == 256 ? Sm90Form::fp8 : Sm90Form::mixed;
}
template <Sm90Form kForm>
std::string refuse_gemm_sm90(const Case& c) {
  const GemmProblem p = c.sm90();
  std::string reason = refuse_sm90(p, c.weight, c.x);
  if (!reason.empty()) return reason;
  const bool fp8 = takes_codes_sm90(p, c.weight, c.x);
  if (!fp8 && kForm != Sm90Form::mixed) {
    return "x and weight are not both E4M3 with scales that multiply sums of 128";
  }
  reason = aligned(p, needs_sm90(p, c.weight, c.x));
  if (!reason.empty()) return reason;
  const Sm90Choice choice = choose_sm90(p, c.weight, c.x, c.device.sm_count);
  return form_of(choice) == kForm ? "" : concat("slower than ", to_string(choice));
}
void choose_gemm_sm90(const Case& c, GemmChoice* choice) {
  const GemmProblem p = c.sm90();
  choice->needs = needs_sm90(p, c.weight, c.x);
  choice->sm90 = choose_sm90(p, c.weight, c.x, c.device.sm_count);
  choice->transposed = p.transposed;
  choice->ordered = p.experts > 0;
  if (p.experts > 0) choice->chunk_rows = choice->sm90.columns;
  choice->tile = to_string(choice->sm90);
}

// --- cuBLASLt ---

// Of E4M3 in blocks. Beyond so many rows cuBLASLt takes 0.91 to 0.95 of the time of Halftone's own
// kernel (docs/findings/gemm-hopper.md); up to there it gains little or loses, as it reads
// scales in an order of its own, into which every run copies them.
constexpr int64_t kOwnBlockRows = 256;

std::string refuse_library(const Case& c, bool blocks) {
  const GemmProblem& p = c.p;
  if (p.experts > 0 || p.shared_expert) return "rows of experts; cuBLASLt is asked for dense GEMMs";
  if (p.library == MatmulLibrary::halftone) return "library is halftone";
  if (p.batch_invariant) return kInvariant;
  const bool automatic = p.library == MatmulLibrary::automatic;
  if (blocks && !scaled_by_blocks(p)) {
    return "x and weight are not E4M3 with scales of 1x128 and 128x128";
  }
  if (automatic && blocks && p.m <= kOwnBlockRows) {
    return concat("m is ", p.m, "; with scales of blocks cuBLASLt is asked for more than ",
                  kOwnBlockRows, " rows");
  }
  if (p.m == 0) return "m is 0";
  if (automatic && fits_gemv(p.m)) {
    return concat("m is ", p.m, "; cuBLASLt is asked for more than 16 rows");
  }
  if (automatic && p.weight == Format::f32 && !p.tf32) {
    return "x is f32; cuBLASLt is asked for TF32 where tf32 is set";
  }
  std::string reason = refuse_cublaslt(p);
  if (reason.empty() && !blocks && scaled_by_blocks(p)) {
    reason = "scales of 1x128 and 128x128; cuBLASLt takes them on Hopper alone";
  }
  if (reason.empty() && !c.device.cublaslt_available) reason = c.device.cublaslt_missing;
  return reason;
}
OperandNeeds cublaslt_needs(const GemmProblem& p) {
  OperandNeeds needs;
  if (!p.x.quantize) needs.x = 16;
  needs.weight = needs.out = 16, needs.cublaslt = true;
  if (p.residual) needs.residual = 16;
  return needs;
}
template <bool kBlocks>
std::string refuse_gemm_cublaslt(const Case& c) {
  std::string reason = refuse_library(c, kBlocks);
  if (!reason.empty()) return reason;
  GemmProblem p = c.p;
  if (p.norm) p.alignment.x = c.rows.alignment.x;
  return aligned(p, cublaslt_needs(p));
}
void choose_gemm_cublaslt(const Case& c, GemmChoice* choice) {
  choice->needs = cublaslt_needs(c.p);
  choice->transposed = c.p.transposed;
  choice->tile = c.p.tf32 ? "operands rounded to TF32" : "its heuristic's first algorithm";
}

// --- the table, best first ---

struct Row {
  const char* name;
  GemmKernel kernel;
  std::string (*refuse)(const Case&);
  void (*choose)(const Case&, GemmChoice*);
  // Of a CPU kernel.
  CpuLevel level = CpuLevel::baseline;
  const Kernels* cpu = nullptr;
  // Of a GPU kernel: the architecture, or the first of those that it runs on.
  Arch arch = Arch::sm_80;
  bool later = false, chip = false;  // chip: not simulated
};

constexpr Row cpu_row(const char* name, CpuLevel level, std::string (*refuse)(const Case&),
                      const Kernels* kernels) {
  return {name, GemmKernel::cpu, refuse, choose_cpu, level, kernels};
}
constexpr Row hopper(const char* name, GemmKernel kernel, std::string (*refuse)(const Case&),
                     void (*choose)(const Case&, GemmChoice*)) {
  return {name, kernel, refuse, choose, CpuLevel::baseline, nullptr, Arch::sm_90a};
}

using K = GemmKernel;
constexpr Row kTable[] = {
#if defined(__x86_64__)
    cpu_row("gemm_avx512_bf16_int8", CpuLevel::avx512_bf16, refuse_cpu_int8,
            &cpu_avx512_bf16::int8_kernels),
    cpu_row("gemm_avx512_bf16_dot", CpuLevel::avx512_bf16, refuse_cpu_bf16,
            &cpu_avx512_bf16::bf16_kernels),
    cpu_row("gemm_avx512_bf16_f32", CpuLevel::avx512_bf16, refuse_cpu_f32,
            &cpu_avx512_bf16::f32_kernels),
    cpu_row("gemm_avx512_int8", CpuLevel::avx512, refuse_cpu_int8, &cpu_avx512::int8_kernels),
    cpu_row("gemm_avx512_f32", CpuLevel::avx512, refuse_cpu_f32, &cpu_avx512::f32_kernels),
    cpu_row("gemm_avx2_int8", CpuLevel::avx2, refuse_cpu_int8, &cpu_avx2::int8_kernels),
    cpu_row("gemm_avx2_f32", CpuLevel::avx2, refuse_cpu_f32, &cpu_avx2::f32_kernels),
#endif
    cpu_row("gemm_baseline_int8", CpuLevel::baseline, refuse_cpu_int8, &cpu_baseline::int8_kernels),
    cpu_row("gemm_baseline_f32", CpuLevel::baseline, refuse_cpu_f32, &cpu_baseline::f32_kernels),
    hopper("gemv_sm90", K::gemv_sm90, refuse_gemv_sm90, choose_gemv_sm90),
    hopper("gemv_sm90_grouped", K::gemv_sm90_grouped, refuse_gemv_grouped, choose_gemv_grouped),
    hopper("gemm_sm90_small_m_w8", K::gemm_sm90_small_m, of_bits<8, refuse_small_m>,
           choose_small_m),
    hopper("gemm_sm90_small_m_w4", K::gemm_sm90_small_m, of_bits<4, refuse_small_m>,
           choose_small_m),
    hopper("gemm_sm90_small_m_grouped_w8", K::gemm_sm90_small_m_grouped,
           of_bits<8, refuse_small_m_grouped>, choose_small_m_grouped),
    hopper("gemm_sm90_small_m_grouped_w4", K::gemm_sm90_small_m_grouped,
           of_bits<4, refuse_small_m_grouped>, choose_small_m_grouped),
    {"gemm_cublaslt_blocks", K::gemm_cublaslt, refuse_gemm_cublaslt<true>, choose_gemm_cublaslt,
     CpuLevel::baseline, nullptr, Arch::sm_90a, false, true},
    hopper("gemm_sm90_fp8_small_m", K::gemm_sm90, refuse_gemm_sm90<Sm90Form::fp8_small_m>,
           choose_gemm_sm90),
    hopper("gemm_sm90_fp8", K::gemm_sm90, refuse_gemm_sm90<Sm90Form::fp8>, choose_gemm_sm90),
    hopper("gemm_sm90_mixed", K::gemm_sm90, refuse_gemm_sm90<Sm90Form::mixed>, choose_gemm_sm90),
    {"gemm_cublaslt", K::gemm_cublaslt, refuse_gemm_cublaslt<false>, choose_gemm_cublaslt,
     CpuLevel::baseline, nullptr, Arch::sm_80, true, true},
    {"gemv_sm80", K::gemv_sm80, refuse_gemv_sm80, choose_gemv_sm80, CpuLevel::baseline, nullptr,
     Arch::sm_80, true},
    {"gemm_sm80", K::gemm_sm80, refuse_gemm_sm80, choose_gemm_sm80, CpuLevel::baseline, nullptr,
     Arch::sm_80, true},
};

// "" or why the device has not got the kernel.
std::string missing_on(const Row& row, const GemmDevice& d) {
  if (d.kind == Device::Kind::cpu) {
    return row.level <= d.level ? "" : concat("needs CPU level ", name(row.level));
  }
  if (row.later ? d.arch < row.arch : d.arch != row.arch) {
    return concat(row.later ? "needs " : "runs on ", name(row.arch),
                  row.later ? " or later" : " alone");
  }
  return row.chip && d.kind != Device::Kind::cuda ? "needs a GPU that is not simulated" : "";
}

std::string refuse(const Row& row, const std::vector<Case>& cases) {
  std::string reason;
  for (const Case& c : cases) {
    if (!reason.empty()) break;
    if (row.cpu == nullptr) reason = refuse_gpu(c.p);
    if (row.kernel != K::gemm_cublaslt && c.p.library == MatmulLibrary::cublaslt) {
      reason = "library is cublaslt";
    }
    if (reason.empty()) reason = row.refuse(c);
  }
  return reason;
}

GemmChoice choose_from_table(std::span<const GemmProblem> problems, const GemmDevice& d,
                             bool explain) {
  std::vector<GemmProblem> given(problems.begin(), problems.end());
  std::vector<Case> cases;
  for (GemmProblem& p : given) {
    p.alignment = resolved(p);
    cases.emplace_back(p, d);
  }
  GemmChoice choice;
  const bool cpu = d.kind == Device::Kind::cpu;
  for (const Row& row : kTable) {
    if ((row.cpu != nullptr) != cpu) continue;
    if (choice.name != nullptr && !explain) break;
    std::string reason = missing_on(row, d);
    const bool there = reason.empty();
    if (there) reason = refuse(row, cases);
    const bool takes = reason.empty();
    if (takes && choice.name != nullptr) reason = concat(choice.name, " comes first");
    const bool own_library =
        row.kernel != K::gemm_cublaslt && given[0].library == MatmulLibrary::cublaslt;
    if (there && !takes && choice.name == nullptr && !own_library) choice.reason = reason;
    choice.trace.emplace_back(row.name, reason);
    if (!takes || choice.name != nullptr) continue;
    choice.name = row.name, choice.kernel = row.kernel, choice.cpu = row.cpu;
    choice.weight = cases[0].weight;
    row.choose(cases[0], &choice);
  }
  if (choice.name != nullptr) choice.reason.clear();
  return choice;
}

}  // namespace

GemmDevice gemm_device(const Device& device) {
  GemmDevice d;
  d.kind = device.kind(), d.level = cpu_level();
  if (device.is_cpu()) return d;
  const DeviceProperties& properties = halftone::properties(device);
  d.arch = device.arch();
  d.sm_count = properties.sm_count, d.shared_per_sm = properties.shared_per_sm;
  return d;
}

GemmChoice dispatch(const GemmProblem& p, const GemmDevice& d, bool explain) {
  return choose_from_table({&p, 1}, d, explain);
}
GemmChoice dispatch_cpu(std::span<const GemmProblem> problems, const GemmDevice& d, bool explain) {
  return choose_from_table(problems, d, explain);
}

std::string to_string(const GemmChoice& c) {
  return c.tile.empty() ? c.name : concat(c.name, ", ", c.tile);
}

// --- alignment ---

OperandAlignment resolved(const GemmProblem& p) {
  OperandAlignment a = p.alignment;
  if (a.x == 0) a.x = contiguous_rows(p.m, p.k * bits(p.x.format));
  if (a.weight == 0) a.weight = contiguous_rows(2, (p.transposed ? p.n : p.k) * bits(p.weight));
  const bool linear = p.scaled && p.scaling.layout == ScaleLayout::linear;
  const int64_t groups = p.scaling.block_cols > 0 ? ceil_div(p.k, p.scaling.block_cols) : 1;
  if (a.scale_storage == 0) {
    // Those of an expert follow those of the one before.
    const int64_t rows = p.scaling.block_rows > 0 ? ceil_div(p.n, p.scaling.block_rows) : 1;
    a.scale_storage =
        linear && p.experts > 1 ? contiguous_rows(2, rows * groups * bits(p.scaling.format)) : 16;
  }
  if (a.weight_scales == 0) {
    a.weight_scales =
        linear ? std::min(contiguous_rows(2, groups * bits(p.scaling.format)), a.scale_storage)
               : a.scale_storage;
  }
  if (a.out == 0) a.out = contiguous_rows(p.m, p.n * bits(p.out));
  if (a.residual == 0) a.residual = contiguous_rows(p.m, p.n * bits(p.out));
  if (a.norm == 0) a.norm = 16;
  return a;
}

std::string refuse_alignment(const OperandAlignment& a, const OperandNeeds& needs) {
  const struct {
    const char* what;
    int given, needed;
  } all[] = {{"rows of x begin", a.x, needs.x},
             {"rows of the weight begin", a.weight, needs.weight},
             {"rows of the weight's scales begin", a.weight_scales, needs.weight_scales},
             {"the weight's scales begin", a.scale_storage, needs.scale_storage},
             {"rows of out begin", a.out, needs.out},
             {"rows of residual begin", a.residual, needs.residual},
             {"the weight of the norm begins", a.norm, needs.norm}};
  for (const auto& [what, given, needed] : all) {
    if (given < needed) {
      return concat(what, " on ", given, given == 1 ? " byte" : " bytes", "; they must on ",
                    needed);
    }
  }
  if (needs.packed_scales && !a.packed_scales) {
    return "scales of a row of the weight are no neighbours; they must be";
  }
  if (needs.one_tensor_map && !a.one_tensor_map) {
    return "matrices lie further apart than one tensor map reaches";
  }
  if (needs.whole_scale_blocks && !a.whole_scale_blocks) {
    return "a matrix begins within a block of scales; 32 of its rows must share one";
  }
  if (needs.cublaslt && !a.cublaslt) {
    return "rows overlap, scales are not contiguous on 16 bytes, or rows of the residual are not "
           "as "
           "far apart as those of out";
  }
  return "";
}

void check_alignment(const GemmChoice& choice, GemmProblem p, const OperandAlignment& actual,
                     const char* field) {
  p.alignment = actual;
  const std::string reason = refuse_alignment(resolved(p), choice.needs);
  require(reason.empty(), reason, " for ", choice.name,
          ", which was planned for operands that lie ", "so; plan with ", field,
          " = alignment_of(tensors)");
}

int storage_alignment(const Tensor& t) {
  return t.defined() ? power_of_two(reinterpret_cast<uintptr_t>(t.data())) : 16;
}
int rows_alignment(const Tensor& t) {
  if (!t.defined()) return 16;
  const auto distance = [&](int64_t dimension) {
    return t.size(dimension) <= 1
               ? uint64_t{16}
               : static_cast<uint64_t>(std::abs(t.stride(dimension)) * bits(t.format()) / 8);
  };
  int a = storage_alignment(t);
  // Four bits: a row that begins within a byte is an error elsewhere.
  for (int64_t d = 0; d + 1 < t.rank(); ++d) a = std::min(a, power_of_two(distance(d)));
  return a;
}

void set_weight_alignment(std::span<const Tensor> matrices, OperandAlignment* a) {
  a->weight = a->weight_scales = a->scale_storage = 16;
  uintptr_t first = ~uintptr_t{0}, last = 0, offsets = 0;
  for (const Tensor& w : matrices) {
    a->weight = std::min(a->weight, rows_alignment(w));
    const auto at = reinterpret_cast<uintptr_t>(w.data());
    first = std::min(first, at), last = std::max(last, at);
    if (!w.has_scales()) continue;
    const Tensor& s = w.scales();
    a->scale_storage = std::min(a->scale_storage, storage_alignment(s));
    if (s.rank() > 2 && s.size(0) > 1) {
      a->scale_storage =
          std::min(a->scale_storage, power_of_two(static_cast<uint64_t>(s.stride(0)) *
                                                  static_cast<uint64_t>(bits(s.format())) / 8));
    }
    const bool linear = w.scaling().layout == ScaleLayout::linear;
    a->weight_scales =
        std::min(a->weight_scales, linear ? rows_alignment(s) : storage_alignment(s));
    if (linear && s.size(-1) > 1 && s.stride(-1) != 1) a->packed_scales = false;
  }
  for (const Tensor& w : matrices) offsets |= reinterpret_cast<uintptr_t>(w.data()) - first;
  if (matrices.empty() || offsets == 0) return;
  const int shift = std::min(std::countr_zero(offsets), 30);
  a->one_tensor_map = (last - first) >> shift <= uintptr_t{INT_MAX};
}

// --- what cuBLASLt takes ---

namespace {

// How a matrix of E4M3 is scaled: by one number, or one a row.
bool scaled_whole(bool scaled, const Scaling& s) {
  return scaled && s.format == Format::f32 && s.block_rows == 0 && s.block_cols == 0;
}
bool scaled_by_rows(bool scaled, const Scaling& s) {
  return scaled && s.format == Format::f32 && s.block_rows == 1 && s.block_cols == 0;
}

// What x enters as, and its scales.
Format entering(const GemmProblem& p) { return p.x.quantize ? p.x.quantize->format : p.x.format; }
bool has_x_scales(const GemmProblem& p) { return p.x.scaled || p.x.quantize; }
const Scaling& x_scaling(const GemmProblem& p) {
  return p.x.quantize ? p.x.quantize->scaling : p.x.scaling;
}

std::string refuse_operands(const GemmProblem& p) {
  const Format x = entering(p);
  const bool half = x == Format::f16 || x == Format::bf16, fp8 = x == Format::fp8_e4m3;
  if (x != p.weight || !(half || fp8 || x == Format::f32)) {
    return concat("x is ", name(x), " and weight ", name(p.weight),
                  "; cuBLASLt multiplies f32, f16, bf16 or E4M3 by the same");
  }
  if (!fp8 && (p.scaled || p.x.scaled)) return "scales; cuBLASLt takes those of E4M3";
  // One scale for all of an x that is rounded on the way is a number, not one in memory.
  const bool whole = !p.x.quantize && scaled_whole(has_x_scales(p), x_scaling(p));
  const bool blocks = scaled_by_blocks(p);
  if (fp8 && !blocks && !(whole && scaled_whole(p.scaled, p.scaling)) &&
      !(scaled_by_rows(has_x_scales(p), x_scaling(p)) && scaled_by_rows(p.scaled, p.scaling))) {
    return "scales of E4M3; cuBLASLt takes one of f32 for x and one for the weight, one a row, or "
           "those of 1x128 for x and of 128x128 for the weight";
  }
  // It reads the scales of all rows side by side, in whole 16 bytes.
  if (blocks && p.m % 4 != 0) {
    return concat("m is ", p.m, "; with scales of 1x128 cuBLASLt takes multiples of 4");
  }
  const int64_t elements = 128 / bits(x);
  if (p.k % elements != 0 || (p.transposed ? p.n : p.k) % elements != 0) {
    return concat("N is ", p.n, " and K ", p.k, "; cuBLASLt is given rows of whole 16 bytes");
  }
  return "";
}

std::string refuse_results(const GemmProblem& p) {
  if (p.gate || p.quantize_out || p.bias || p.activation) {
    return "bias, activation, gate or quantised results; cuBLASLt is asked for products and "
           "residuals";
  }
  if (p.f16_sums) return "sums in f16; cuBLASLt is asked for f32";
  const bool fp8 = p.weight == Format::fp8_e4m3;
  if (p.out != Format::f32 && p.out != p.x.format && !(fp8 && is_plain_float(p.out))) {
    return concat("x is ", name(p.x.format), " and out ", name(p.out),
                  "; cuBLASLt makes f32 or the format of x");
  }
  if (p.n * bits(p.out) % 128 != 0) {
    return concat("N is ", p.n, "; cuBLASLt is given rows of whole 16 bytes");
  }
  return "";
}

}  // namespace

bool scaled_by_blocks(const GemmProblem& p) {
  return entering(p) == Format::fp8_e4m3 && p.weight == Format::fp8_e4m3 && has_x_scales(p) &&
         x_scaling(p) == Scaling{Format::f32, 1, 128} && p.scaled &&
         p.scaling == Scaling{Format::f32, 128, 128};
}

std::string refuse_cublaslt(const GemmProblem& p) {
  const std::string reason = refuse_operands(p);
  return reason.empty() ? refuse_results(p) : reason;
}

}  // namespace halftone::gemm
