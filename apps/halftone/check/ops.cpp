#include "check/ops.h"

#include <functional>
#include <utility>

#include "base/message.h"
#include "check/accuracy_data.h"
#include "halftone/halftone.h"

namespace halftone {

namespace {

constexpr int64_t kRows = 64, kColumns = 1024;
constexpr float kEps = 1e-5f;

// An operation and its FP64 reference, of two operands [kRows, kColumns] and a vector [kColumns].
struct Operation {
  std::string name;
  std::function<Tensor(const Tensor&x, const Tensor&y, const Tensor&v)> kernel, reference;
};

std::vector<Operation> operations(Stream& stream) {
  std::vector<Operation> all;
  using T = const Tensor&;
  all.push_back({"rms norm", [&](T x, T, T v) { return rms_norm(x, v, kEps, stream); },
                 [](T x, T, T v) { return rms_norm_reference(x, v, kEps); }});
  all.push_back({"layer norm", [&](T x, T, T v) { return layer_norm(x, v, v, kEps, stream); },
                 [](T x, T, T v) {
                   NormProblem p;
                   p.kind = NormKind::layer, p.bias = true, p.eps = kEps;
                   return norm_reference(p, x, v, v);
                 }});
  all.push_back({"softmax", [&](T x, T, T) { return softmax(x, stream); },
                 [](T x, T, T) { return softmax_reference(x); }});
  for (int i = 1; i < kActivationCount; ++i) {
    const ActivationFunction f{.kind = static_cast<Activation>(i)};
    all.push_back({name(f.kind), [&, f](T x, T, T) { return activation(x, f, stream); },
                   [f](T x, T, T) { return activation_reference(x, f); }});
  }
  for (const auto& [text, g] : {std::pair{"swiglu", GatedActivation::swiglu()},
                                {"geglu (erf)", GatedActivation::geglu_erf()},
                                {"clamped swiglu", GatedActivation::clamped_swiglu()},
                                {"gpt-oss gate", GatedActivation::gpt_oss()}}) {
    all.push_back({text, [&, g = g](T x, T y, T) { return gated(x, y, g, stream); },
                   [g = g](T x, T y, T) { return gated_reference(x, y, g); }});
  }
  for (const Elementwise op : {Elementwise::add, Elementwise::multiply, Elementwise::divide}) {
    all.push_back({name(op), [&, op](T x, T y, T) { return elementwise(op, x, y, {}, {}, stream); },
                   [op](T x, T y, T) { return elementwise_reference(op, x, y); }});
  }
  for (const Reduction r : {Reduction::sum, Reduction::mean, Reduction::sum_of_squares}) {
    all.push_back({concat(name(r), " of a row"),
                   [&, r](T x, T, T) { return reduce(r, x, -1, stream); },
                   [r](T x, T, T) { return reduce_reference(r, x); }});
  }
  all.push_back({"dot", [&](T x, T y, T) { return dot(x, y, stream); },
                 [](T x, T y, T) { return reduce_reference(Reduction::dot, x, -1, y); }});
  // x as 64 channels of 1024 positions, y as 16 x 64 x 64 weights of which three taps are used.
  const auto weights = [](T y) { return y.reshape({16, 64, 64}).slice(2, 0, 3).contiguous_copy(); };
  const Conv1dOptions same{.padding = 1};
  all.push_back({"conv1d, k 3",
                 [&, same, weights](T x, T y, T) {
                   return conv1d(x.reshape({1, kRows, kColumns}), weights(y), {}, same, stream);
                 },
                 [same, weights](T x, T y, T) {
                   return conv1d_reference(x.reshape({1, kRows, kColumns}), weights(y), {}, same);
                 }});
  return all;
}

}  // namespace

std::vector<AccuracyRow> check_ops(const std::vector<std::string>& formats, uint64_t seed,
                                   Stream& stream, int64_t runs) {
  std::vector<Format> chosen;
  for (const std::string& text : formats) {
    chosen.push_back(parse_format(text));
    require(is_plain_float(chosen.back()), "check: --mode is ", text,
            "; with ops it must be f32, f16 or bf16");
  }
  if (chosen.empty()) chosen = {Format::f32, Format::f16, Format::bf16};
  std::vector<AccuracyRow> rows;
  for (const Operation& operation : operations(stream)) {
    for (const bool outliers : {false, true}) {
      const Tensor x = random_matrix(kRows, kColumns, outliers, seed);
      const Tensor y = random_matrix(kRows, kColumns, outliers, seed + 1);
      const Tensor v = random_matrix(1, kColumns, outliers, seed + 2).reshape({kColumns});
      const Tensor exact = operation.reference(x, y, v);
      for (const Format format : chosen) {
        const auto stored = [&](const Tensor& t) {
          return format == Format::f32 ? t : convert(t, format, stream);
        };
        const Tensor a = stored(x), b = stored(y), c = stored(v);
        const Tensor best = operation.reference(a, b, c);
        AccuracyRow row;
        const Tensor result = repeated(
            runs, [&] { return operation.kernel(a, b, c); }, &row);
        const Distance of_format = distance(best, exact);
        const Distance of_kernel =
            distance(result.format() == Format::f32 ? result : convert(result, Format::f32), best);
        row.mode = concat(operation.name, ", ", name(format));
        row.data = outliers ? "outliers" : "normal";
        row.format_cosine = of_format.cosine;
        row.format_relative_l2 = of_format.relative_l2;
        row.format_max = of_format.max;
        row.kernel_cosine = of_kernel.cosine;
        row.kernel_relative_l2 = of_kernel.relative_l2;
        row.kernel_max = of_kernel.max;
        row.worst = concat("[", of_kernel.worst, "] ", best.data<float>()[of_kernel.worst]);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace halftone
