// The choice of kernels: the whole table of it as text, and that `run` keeps to it.
//
// After a change that is meant, write the text anew and look at its diff:
//   HALFTONE_WRITE_GOLDEN=1 build/release/tests/matmul/dispatch_test
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "matmul/gpu_cases.h"
#include "ops/gemm/dispatch.h"
#include "support/source_path.h"

namespace halftone::test {
namespace {

using F = Format;
using gemm::GemmChoice;
using gemm::GemmDevice;
using gemm::GemmProblem;

const std::vector<Arch> kArchs = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a,
                                  Arch::sm_120a};
const std::vector<int64_t> kRows = {1,  2,  4,  8,   9,   16,  17,   32,
                                    33, 64, 65, 128, 256, 257, 1024, 4096};

struct Operands {
  WeightSpec x, weight;
};
// Every format of a weight, and of x what kernels tell apart.
std::vector<Operands> operands() {
  const WeightSpec bf16{F::bf16};
  std::vector<Operands> all;
  for (const WeightSpec& weight : {WeightSpec{F::f32},
                                   {F::f16},
                                   bf16,
                                   {F::fp8_e4m3, true, {F::f32, 1, 0}},
                                   {F::fp8_e4m3, true, {F::f32, 128, 128}},
                                   {F::fp8_e5m2, true, {F::f32, 128, 128}},
                                   {F::mxfp8, true, {F::ue8m0, 1, 32}},
                                   {F::mxfp4, true, {F::ue8m0, 1, 32}},
                                   {F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true},
                                   {F::int8, true, {F::f32, 1, 0}},
                                   {F::int8, true, {F::f16, 1, 64}},
                                   {F::int4, true, {F::f16, 1, 32}},
                                   {F::int4, true, {F::f16, 1, 128}},
                                   {F::int4, true, {F::f16, 1, 32, ScaleLayout::linear, true}}}) {
    all.push_back({bf16, weight});
  }
  all.push_back({{F::f32}, {F::f32}});
  all.push_back({{F::f16}, {F::f16}});
  all.push_back({{F::f32}, bf16});
  all.push_back({{F::f32}, {F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true}});
  all.push_back({{F::fp8_e4m3, true, {F::f32, 1, 128}}, {F::fp8_e4m3, true, {F::f32, 128, 128}}});
  all.push_back({{F::fp8_e4m3, true, {F::f32, 1, 0}}, {F::fp8_e4m3, true, {F::f32, 1, 0}}});
  return all;
}

enum class Family : uint8_t { dense, gated, grouped, up, down, shared_up };
constexpr std::pair<Family, const char*> kFamilies[] = {
    {Family::dense, "dense, N 4096, K 4096"},
    {Family::gated, "dense and gated, N 14336, K 4096"},
    {Family::grouped, "8 groups of M rows in all, N 4096, K 4096"},
    {Family::up, "M tokens to 8 of 128 experts, gate and up, N 768, K 2048"},
    {Family::down, "M tokens to 8 of 128 experts, down, N 2048, K 768"},
    {Family::shared_up, "M tokens to a shared expert, gate and up, N 768, K 2048"}};

GemmProblem problem_of(Family family, const Operands& o, int64_t m, bool aligned) {
  GemmProblem p;
  p.m = m, p.n = p.k = 4096;
  p.weight = o.weight.format, p.scaled = o.weight.scaled, p.scaling = o.weight.scaling;
  p.x.format = o.x.format, p.x.scaled = o.x.scaled, p.x.scaling = o.x.scaling;
  p.out = is_plain_float(o.x.format) ? o.x.format : F::bf16;
  if (family == Family::dense) p.library = MatmulLibrary::automatic;
  if (family == Family::gated) p.n = 14336, p.gate = true, p.separate_up = true;
  if (family == Family::grouped) p.experts = 8;
  if (family == Family::up || family == Family::down) p.m = 8 * m, p.experts = 128;
  if (family == Family::up || family == Family::shared_up) p.n = 768, p.k = 2048, p.gate = true;
  if (family == Family::down) p.n = 2048, p.k = 768;
  p.gathered = family == Family::up, p.shared_expert = family == Family::shared_up;
  if (!aligned) p.alignment.x = p.alignment.weight = p.alignment.weight_scales = 2;
  if (!aligned) p.alignment.scale_storage = 2;
  return p;
}

GemmDevice gpu(Arch arch, bool cublaslt) {
  GemmDevice d = gemm::gemm_device(Device::simulator(arch));
  if (cublaslt) d.kind = Device::Kind::cuda, d.cublaslt_available = true;
  return d;
}

// "M 1: gemv_sm90; 2-16: gemv_sm80; 17-: gemm_sm80": rows with one choice together.
std::string choices_of(Family family, const Operands& o, const GemmDevice& d, bool aligned,
                       bool tiles) {
  std::string line, last;
  int64_t first = 0;
  const auto end = [&](int64_t m) {
    if (last.empty()) return;
    const std::string range = m == 0       ? concat(first, " and more")
                              : m == first ? concat(first)
                                           : concat(first, " to ", m);
    line += concat(line.empty() ? "M " : "; ", range, ": ", last);
  };
  int64_t before = 0;
  for (const int64_t m : kRows) {
    const GemmChoice c = dispatch(problem_of(family, o, m, aligned), d);
    const std::string choice = c.name == nullptr ? "none: " + c.reason
                               : tiles           ? to_string(c)
                                                 : c.name;
    if (choice != last) end(before), first = m, last = choice;
    before = m;
  }
  end(0);
  return line;
}

std::string operands_of(const Operands& o) { return concat(label(o.x), " x ", label(o.weight)); }

void write_names(std::ostream& out) {
  for (const auto& [family, title] : kFamilies) {
    out << "\n## " << title << "\n";
    for (const bool aligned : {true, false}) {
      // Devices with the same choices together, and formats.
      std::map<std::string, std::vector<std::string>> devices_of;
      std::vector<std::string> texts;
      const auto add = [&](const std::string& device, const GemmDevice& d) {
        std::vector<std::string> order;
        std::map<std::string, std::vector<std::string>> formats_of;
        for (const Operands& o : operands()) {
          const std::string line = choices_of(family, o, d, aligned, false);
          if (formats_of[line].empty()) order.push_back(line);
          formats_of[line].push_back(operands_of(o));
        }
        std::string text;
        for (const std::string& line : order) {
          text += "  " + line + "\n";
          for (const std::string& formats : formats_of[line]) text += "      " + formats + "\n";
        }
        if (devices_of[text].empty()) texts.push_back(text);
        devices_of[text].push_back(device);
      };
      for (const Arch arch : kArchs) add(name(arch), gpu(arch, false));
      if (family == Family::dense) {
        for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
          add(concat(name(arch), " with cuBLASLt"), gpu(arch, true));
        }
      }
      for (const std::string& text : texts) {
        out << "\n" << (aligned ? "aligned" : "on 2 bytes") << ":";
        for (const std::string& device : devices_of[text]) {
          out << (&device == &devices_of[text][0] ? " " : ", ") << device;
        }
        out << "\n" << text;
      }
    }
  }
}

void write_tiles(std::ostream& out) {
  for (const auto& [family, title] : kFamilies) {
    if (family == Family::gated || family == Family::shared_up) continue;
    for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
      out << "\n## tiles on " << name(arch) << ", " << title << "\n";
      for (const Operands& o : operands()) {
        out << operands_of(o) << "\n";
        std::string line = choices_of(family, o, gpu(arch, false), true, true);
        for (size_t at = 0; (at = line.find("; ", at)) != std::string::npos; at += 4) {
          line.replace(at, 2, "\n    ");
        }
        out << "    " << line << "\n";
      }
    }
  }
}

void write_cpu(std::ostream& out) {
  out << "\n## CPUs, whatever M\n";
  for (const CpuLevel level :
       {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16}) {
    GemmDevice d;
    d.level = level;
    std::vector<std::string> order;
    std::map<std::string, std::vector<std::string>> formats_of;
    const auto add = [&](const Operands& o, const GemmProblem& p, const char* as) {
      const std::string kernel = dispatch(p, d).name;
      if (formats_of[kernel].empty()) order.push_back(kernel);
      formats_of[kernel].push_back(operands_of(o) + as);
    };
    for (const Operands& o : operands()) {
      GemmProblem p = problem_of(Family::dense, o, 8, true);
      add(o, p, "");
      if (o.weight.format != F::int8) continue;
      p.x.quantize = parse_quantization("int8");
      add(o, p, ", x as int8");
    }
    out << "\n" << name(level) << "\n";
    for (const std::string& kernel : order) {
      out << "  " << kernel << "\n";
      for (const std::string& formats : formats_of[kernel]) out << "      " << formats << "\n";
    }
  }
}

std::string golden_text() {
  std::ostringstream out;
  out << "# Which kernel a GEMM runs: ops/gemm/dispatch.cpp. Written by\n"
         "# HALFTONE_WRITE_GOLDEN=1 build/release/tests/matmul/dispatch_test\n"
         "# M was tried at";
  for (const int64_t m : kRows) out << " " << m;
  out << ".\n";
  write_names(out);
  write_tiles(out);
  write_cpu(out);
  return out.str();
}

TEST(Dispatch, WholeTable) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the text has the levels of x86-64";
#endif
  const std::string path = source_path("tests/matmul/dispatch_golden.txt"), now = golden_text();
  if (std::getenv("HALFTONE_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  std::stringstream before;
  before << file.rdbuf();
  std::istringstream a(before.str()), b(now);
  std::string want, have;
  for (int line = 1; std::getline(b, have); ++line) {
    if (!std::getline(a, want)) want = "(nothing)";
    ASSERT_EQ(have, want) << path << ":" << line;
  }
  EXPECT_EQ(now, before.str());
}

// Every kernel of a device is either taken or has a reason, and the first without one is taken.
TEST(Dispatch, AReasonForEveryOtherKernel) {
  for (const Arch arch : kArchs) {
    std::set<std::string> names;
    for (const int64_t m : {1, 12, 300}) {
      for (const Operands& o : operands()) {
        const GemmChoice c =
            dispatch(problem_of(Family::dense, o, m, true), gpu(arch, true), /*explain=*/true);
        int taken = 0;
        for (const auto& [kernel, reason] : c.trace) {
          taken += reason.empty();
          if (m == 1) names.insert(kernel);
          EXPECT_EQ(reason.empty(), kernel == c.name) << kernel << ": " << reason;
        }
        EXPECT_EQ(taken, 1) << operands_of(o);
        EXPECT_EQ(c.trace.size(), 13u);
      }
    }
    EXPECT_EQ(names.size(), 13u) << "each kernel has a name of its own";
  }
}

// One alignment of bytes less, and the plan is for another kernel; a run that does not keep what
// was planned is an error that names the operand.
TEST(Dispatch, RunsWhatWasPlanned) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const int64_t n = 128, k = 512;
  const WeightSpec nvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
  for (const auto& [spec, m, kernel] : {std::tuple{WeightSpec{F::bf16}, int64_t{1}, "gemv_sm90"},
                                        {nvfp4, int64_t{1}, "gemv_sm90"},
                                        {nvfp4, int64_t{12}, "gemm_sm90_small_m_w4"},
                                        {WeightSpec{F::bf16}, int64_t{12}, "gemm_sm90_mixed"}}) {
    SCOPED_TRACE(concat(label(spec), " m ", m));
    const Weight w = random_weight(spec, n, k, 3);
    const Tensor x = random_tensor({m, k}, F::bf16, 4).to(device);
    MatmulTensors t;
    t.weight = w.tensor.to(device);
    t.out = Tensor::empty({m, n}, F::f32, device);
    // The same numbers, 2 bytes behind a multiple of 16.
    const Tensor wide = Tensor::empty({m, k + 8}, F::bf16, device);
    const Tensor off = wide.slice(1, 1, k + 1);
    for (int64_t i = 0; i < m; ++i) copy(x.slice(0, i, i + 1), off.slice(0, i, i + 1), stream);
    stream.synchronize();
    MatmulProblem p;
    p.m = m, p.n = n, p.k = k, p.x = F::bf16, p.out = F::f32;
    p.weight = spec.format, p.scaled = spec.scaled, p.scaling = spec.scaling;
    const MatmulPlan aligned = plan(p, device);
    EXPECT_TRUE(describe(aligned).starts_with(concat(kernel, ":"))) << describe(aligned);
    t.x = off;
    expect_error([&] { run(aligned, t, stream); },
                 {"rows of x begin on 2 bytes; they must on 16", kernel,
                  "MatmulProblem::alignment = alignment_of(tensors)"});
    p.alignment = alignment_of(t);
    EXPECT_EQ(p.alignment.x, 2);
    const MatmulPlan other = plan(p, device);
    const char* expected = m == 1 ? "gemv_sm80:" : "gemv_sm80:";
    EXPECT_TRUE(describe(other).starts_with(expected)) << describe(other);
    run(other, t, stream);
    stream.synchronize();
    const std::vector<float> of_off = to_floats(t.out.to(Device::cpu()));
    // Aligned operands do not change the kernel of the plan: the same bits.
    t.x = x;
    run(other, t, stream);
    stream.synchronize();
    EXPECT_EQ(to_floats(t.out.to(Device::cpu())), of_off);
    const Expected e = expect(to_floats(x.to(Device::cpu())), w.values, m, n, k);
    EXPECT_TRUE(within(of_off, e.values, gpu_bounds(e, k, F::f32, 10)));
  }
}

}  // namespace
}  // namespace halftone::test
