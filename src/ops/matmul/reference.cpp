#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/codec.h"
#include "halftone/activation.h"
#include "halftone/matmul.h"
#include "ops/gemm/cpu/weights.h"

namespace halftone {

namespace {

// The elements of a matrix of any format, in double precision.
std::vector<double> values_of(const Tensor& t, const char* name) {
  const std::string reason = gemm::refuse_weight(
      t.format(), t.has_scales(), t.has_scales() ? t.scaling() : Scaling{}, t.size(0), t.size(1));
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  const Tensor linear = with_linear_scales(t);
  const gemm::Weights w = gemm::view_of(linear, name);
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (int64_t i = 0; i < w.n; ++i) gemm::weight_row(w, i, values.data() + i * w.k);
  return values;
}

// x as the GEMM uses it: each row quantised by itself where the problem says so.
std::vector<double> rows_of(const Tensor& x, const MatmulOptions& o) {
  if (!o.quantize_x) return values_of(x, "x");
  std::vector<double> all;
  for (int64_t i = 0; i < x.size(0); ++i) {
    QuantizeOptions q = *o.quantize_x;
    const Tensor row = x.slice(0, i, i + 1).contiguous_copy();
    const bool given = q.scaling.block_rows == 0;
    if (!given) {
      const std::vector<double> one = values_of(quantize(row, q), "x");
      all.insert(all.end(), one.begin(), one.end());
      continue;
    }
    const float scale = *q.tensor_scale;
    const Tensor f32 = convert(row, Format::f32), scaled = Tensor::empty(row.shape(), Format::f32);
    for (int64_t k = 0; k < row.numel(); ++k) {
      scaled.data<float>()[k] = f32.data<float>()[k] * (1.0f / scale);
    }
    // Scale 1 for a row whose largest element is the format's largest.
    q.tensor_scale.reset();
    const Tensor codes = Tensor::empty(row.shape(), q.format);
    for (int64_t k = 0; k < row.numel(); ++k) {
      codes.data<uint8_t>()[k] = encode_element(q.format, scaled.data<float>()[k], 0);
    }
    for (double v : values_of(codes, "x")) all.push_back(v * double{scale});
  }
  return all;
}

}  // namespace

Tensor matmul_reference(const Tensor& x, const Tensor& weight) {
  return matmul_reference(x, weight, MatmulOptions{});
}

namespace {

Tensor with_residual(const Tensor& y, const Tensor& residual) {
  if (!residual.defined()) return y;
  const Tensor added = convert(residual, Format::f32);
  for (int64_t i = 0; i < y.numel(); ++i) y.data<float>()[i] += added.data<float>()[i];
  return y;
}

}  // namespace

Tensor matmul_reference(const Tensor& x, const Tensor& weight, const MatmulOptions& o) {
  require(weight.defined() && weight.rank() == 2, "weight must have two dimensions, [N, K]");
  if (o.weight_transposed) {
    MatmulOptions plain = o;
    plain.weight_transposed = false;
    return matmul_reference(x, weight.transpose(0, 1).contiguous_copy(), plain);
  }
  if (o.up.defined()) {
    require(o.gated.has_value(), "up is given; only gated products have two halves");
    const auto half = [&](const Tensor& w, int64_t at) {
      MatmulOptions plain = o;
      plain.up = plain.residual = {};
      plain.gated.reset();
      const int64_t n = w.size(0);
      if (o.bias.defined()) plain.bias = o.bias.slice(0, at * n, (at + 1) * n);
      return matmul_reference(x, w, plain);
    };
    return with_residual(gated_reference(half(weight, 0), half(o.up, 1), *o.gated), o.residual);
  }
  if (o.norm.defined()) {  // rounded to the format of x
    MatmulOptions plain = o;
    plain.norm = {};
    return matmul_reference(convert(rms_norm_reference(x, o.norm, o.norm_eps), x.format()), weight,
                            plain);
  }
  const int64_t rows = weight.size(0), k = weight.size(1);
  require(x.defined() && x.rank() >= 1 && x.size(-1) == k, "x ", to_string(x.shape()),
          " and weight ", to_string(weight.shape()), " differ in their last dimension, K");
  const std::vector<double> w = values_of(weight, "weight");
  const int64_t m = x.numel() / k, n = o.gated ? rows / 2 : rows;
  const Tensor matrix = x.rank() == 2 ? x : x.contiguous_copy().reshape({m, k});
  const std::vector<double> xs =
      m > 0 ? rows_of(matrix.stride(1) == 1 ? matrix : matrix.contiguous_copy(), o)
            : std::vector<double>();
  const Tensor y = Tensor::empty({m, rows}, Format::f32);
  const Tensor bias = o.bias.defined() ? convert(o.bias, Format::f32) : Tensor();
  const auto columns = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        const double *a = xs.data() + i * k, *b = w.data() + j * k;
        double sum = bias.defined() ? bias.data<float>()[j] : 0;
        for (int64_t e = 0; e < k; ++e) sum += a[e] * b[e];
        y.data<float>()[i * rows + j] = static_cast<float>(sum);
      }
    }
  };
  Stream::default_stream().pool().parallel_for(rows, 8, columns);
  Tensor out = y;
  if (o.gated) {
    const Tensor gate = Tensor::empty({m, n}, Format::f32), up = Tensor::empty({m, n}, Format::f32);
    for (int64_t i = 0; i < m * n; ++i) {
      const float* row = y.data<float>() + i / n * rows;
      const int64_t j = i % n;
      gate.data<float>()[i] = row[o.interleaved ? 2 * j : j];
      up.data<float>()[i] = row[o.interleaved ? 2 * j + 1 : n + j];
    }
    out = gated_reference(gate, up, *o.gated);
  } else if (o.activation.kind != Activation::identity) {
    out = activation_reference(y, o.activation);
  }
  out = with_residual(out, o.residual);
  Shape shape = x.shape();
  shape[x.rank() - 1] = n;
  return out.reshape(shape);
}

}  // namespace halftone
