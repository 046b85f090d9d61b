#include "check/matmul.h"

#include <utility>

#include "base/message.h"
#include "check/accuracy_data.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

Tensor as_weight(const Tensor& weight, const std::string& format, Stream& stream) {
  if (format == "f32") return weight;
  if (format == "f16" || format == "bf16") return convert(weight, parse_format(format), stream);
  return quantize(weight, parse_quantization(format), stream);
}

}  // namespace

std::vector<AccuracyRow> check_matmul(const MatmulCheck& check, Stream& stream) {
  Stream& host = stream.device().is_cpu() ? stream : Stream::default_stream();
  std::vector<std::string> formats = check.formats;
  if (formats.empty()) {
    formats = {"f32", "f16", "bf16"};
    for (std::string& name : quantization_names()) formats.push_back(std::move(name));
  }
  std::vector<AccuracyRow> rows;
  for (const bool outliers : {false, true}) {
    const Tensor x = convert(random_matrix(check.m, check.k, outliers, check.seed), Format::bf16);
    const Tensor weight = random_matrix(check.n, check.k, outliers, check.seed + 1);
    const Tensor exact = matmul_reference(x, weight);
    for (const std::string& format : formats) {
      AccuracyRow row;
      row.mode = format;
      row.data = outliers ? "outliers" : "normal";
      const Tensor stored = as_weight(weight, format, host);
      const Tensor best = matmul_reference(x, stored);
      const Distance of_format = distance(best, exact);
      row.format_cosine = of_format.cosine;
      row.format_relative_l2 = of_format.relative_l2;
      row.format_max = of_format.max;
      const Tensor there = x.to(stream.device()), weights = stored.to(stream.device());
      const auto once = [&] {
        return matmul(there, weights, Format::f32, stream).to(Device::cpu());
      };
      const Tensor result = repeated(check.runs, once, &row);
      const Distance of_kernel = distance(result, best);
      row.kernel_cosine = of_kernel.cosine;
      row.kernel_relative_l2 = of_kernel.relative_l2;
      row.kernel_max = of_kernel.max;
      row.worst = concat("[", of_format.worst / check.n, ", ", of_format.worst % check.n, "] ",
                         best.data<float>()[of_format.worst], " for ",
                         exact.data<float>()[of_format.worst]);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace halftone
