#include "ops/matmul/matmul_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/message.h"
#include "formats/row_quantizer.h"
#include "formats/scale_layout.h"
#include "halftone/activation.h"
#include "halftone/transpose.h"
#include "ops/gemm/cpu/weights.h"

namespace halftone::dense {

namespace {

using gemm::Job;
using gemm::Kernels;
using gemm::Weights;

// Of the weight, or of the up half of a gate; `tiled` is the place for its scales.
Weights weights_of(const MatmulProblem& p, const Tensor& weight, const char* name,
                   const Tensor& tiled, ThreadPool& pool) {
  if (!tiled.defined()) return gemm::view_of(weight, name);
  // Read again by every run: the caller may have changed them.
  const int64_t rows = weight_rows(p), groups = tiled.numel() / rows;
  gemm::parallel(pool, rows, 64, rows * groups * 16, [&](int64_t begin, int64_t end) {
    linear_scales(weight.scales().data<uint8_t>(), p.scaling.layout, rows, groups, begin, end,
                  tiled.data<uint8_t>());
  });
  return gemm::view_of(weight, name, 0, tiled.data<uint8_t>());
}

// Biases of gate and up, in the order of their own rows.
void split_bias(const MatmulProblem& p, const Tensor& bias, const Workspace& w, Job* job) {
  job->bias = bias.data();
  job->bias_format = bias.format();
  if (!p.gated) return;
  const int64_t size = bits(bias.format()) / 8;
  if (!p.interleaved) {
    job->up_bias = bias.data<char>() + p.n * size;
    return;
  }
  float* out = w.bias.data<float>();
  for (int64_t i = 0; i < 2 * p.n; ++i) {
    float value;
    format_kernels().convert(bias.format(), Format::f32, bias.data<char>() + i * size, 1, &value);
    out[i % 2 * p.n + i / 2] = value;
  }
  job->bias = out;
  job->up_bias = out + p.n;
  job->bias_format = Format::f32;
}

// Quantises rows [m0, m0 + m) of the results, with scales within rows. False when a scale
// overflows.
void quantise_rows(const QuantizeOptions& q, const Recipe& recipe, const float* results, int64_t m0,
                   int64_t m, const Tensor& out, ThreadPool& pool) {
  const int64_t n = out.size(1), code_row = n * bits(q.format) / 8;
  const Tensor& scales = out.scales();
  const bool one = per_tensor(q);
  const float multiplier =
      one ? 1.0f / scales.data<float>()[0] : 1.0f;  // as quantize_rows_with_scale
  const int64_t scale_row = one ? 0 : scales.size(1) * halftone::scale_bytes(recipe.scale_format);
  bool fits = true;
  gemm::parallel(pool, m, 1, m * n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint8_t* codes = out.data<uint8_t>() + (m0 + i) * code_row;
      const float* row = results + i * n;
      if (one) {
        format_kernels().encode(Format::f32, q.format, row, n, multiplier, kInt4Zero, codes);
      } else if (!format_kernels().quantize_row(recipe, Format::f32, row, n, codes,
                                                scales.data<uint8_t>() + (m0 + i) * scale_row,
                                                nullptr)) {
        __atomic_store_n(&fits, false, __ATOMIC_RELAXED);
      }
    }
  });
  require(fits, "out: a scale is above 65504, the largest f16; choose f32 scales");
}

float largest(const float* x, int64_t rows, int64_t columns) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < rows; ++i) {
    bits = std::max(bits, format_kernels().amax(Format::f32, x + i * columns, columns));
  }
  return bits_float(bits);
}

// The recipe, with the scales that belong to the whole tensor written.
Recipe output_recipe(const QuantizeOptions& q, const float* results, int64_t m, const Tensor& out) {
  Recipe recipe = make_recipe(q);
  const bool given = q.tensor_scale.has_value();
  const float amax = given ? 0 : largest(results, m, out.size(1));
  if (has_tensor_scale(q.format)) {
    if (!given && std::isfinite(amax)) set_tensor_amax(amax, &recipe);
    *out.tensor_scale().data<float>() = recipe.tensor_scale;
  } else if (per_tensor(q)) {
    *out.scales().data<float>() = given ? *q.tensor_scale
                                  : std::isfinite(amax)
                                      ? block_scale(recipe, float_bits(amax)).value
                                      : amax;
  }
  return recipe;
}

}  // namespace

gemm::XSpec x_spec(const MatmulProblem& p) { return {p.x, p.x_scaled, p.x_scaling, p.quantize_x}; }

int64_t weight_rows(const MatmulProblem& p) { return p.gated && !p.separate_up ? 2 * p.n : p.n; }

MatmulTensors turned(const MatmulPlan& made, const MatmulTensors& t, Stream& stream) {
  if (!made.problem.weight_transposed) return t;
  const PermuteProblem turn{t.weight.shape(), {1, 0}, t.weight.format()};
  run(plan(turn, made.device), {t.weight, made.turned}, stream);
  MatmulTensors all = t;
  all.weight = made.turned;
  return all;
}

MatmulTensors normalised(const MatmulPlan& made, const MatmulTensors& t, Stream& stream) {
  run(made.norm, {t.x, t.norm, made.normed, {}}, stream);
  MatmulTensors all = t;
  all.x = made.normed;
  return all;
}

bool per_tensor(const QuantizeOptions& q) {
  return q.scaling.block_rows == 0 && q.scaling.block_cols == 0;
}

bool needs_all(const MatmulProblem& p) {
  if (!p.quantize_out || p.quantize_out->tensor_scale) return false;
  return per_tensor(*p.quantize_out) || has_tensor_scale(p.quantize_out->format);
}

std::string refuse_output(const MatmulProblem& p) {
  if (!p.quantize_out) {
    if (is_plain_float(p.out)) return "";
    return concat("out is ", name(p.out), "; it must be f32, f16 or bf16, or say quantize_out");
  }
  const QuantizeOptions& q = *p.quantize_out;
  if (p.out != q.format) {
    return concat("out is ", name(p.out), " and quantize_out ", name(q.format),
                  "; they must be the same");
  }
  if (q.format == Format::int4) return "quantize_out is int4; choose int8, fp8 or a block format";
  if (q.scaling.layout != ScaleLayout::linear) {
    return concat("quantize_out has ", to_string(q.scaling),
                  " scales; the product writes linear ones, see convert_scale_layout");
  }
  if (q.scaling.block_rows != 1 && !(per_tensor(q) && q.scaling.format == Format::f32)) {
    return concat("quantize_out has ", to_string(q.scaling),
                  " scales; they must lie within one row, or be one f32 for the tensor");
  }
  QuantizeOptions within = q;
  if (per_tensor(q) && q.tensor_scale) {
    if (!(*q.tensor_scale > 0 && std::isfinite(*q.tensor_scale))) {
      return concat("quantize_out has tensor_scale ", *q.tensor_scale,
                    "; it must be finite and above 0");
    }
    within.tensor_scale.reset();
  }
  const Support support = can_quantize({std::max<int64_t>(p.m, 1), p.n}, within);
  return support.ok ? "" : concat("quantize_out: ", support.reason);
}

std::string refuse_gated(const MatmulProblem& p) {
  if (!p.gated) {
    return p.interleaved   ? "interleaved is set; only gated products have interleaved rows"
           : p.separate_up ? "separate_up is set, by up or by itself; only gated GEMMs have a gate "
                             "and an up half"
                           : "";
  }
  if (p.separate_up && (p.interleaved || p.weight_transposed)) {
    return concat("separate_up is set beside ", p.interleaved ? "interleaved" : "weight_transposed",
                  "; separate gate and up are [N, K] each");
  }
  if (p.activation.kind != Activation::identity) {
    return "activation is given beside gated; the gated unit has its own function";
  }
  Weights w;
  w.scales = p.scaled ? reinterpret_cast<const uint8_t*>(&w) : nullptr;
  w.block_rows = p.scaling.block_rows;
  if (!p.separate_up && !gemm::can_take_rows(w, p.interleaved ? 1 : p.n, p.interleaved ? 2 : 1)) {
    return concat("weight has ", to_string(p.scaling), " scales and N is ", p.n,
                  "; no block of scales may hold rows of both halves of a gate");
  }
  return "";
}

void prepare(const MatmulProblem& p, const Kernels& kernels, Workspace* w) {
  const bool octets = gemm::octet_order(gemm::code_of(p.weight, p.scaled, p.scaling));
  w->rows = gemm::XRows(x_spec(p), octets, p.k);
  if (kernels.integer) w->rows.use_integers();
  const int64_t m = std::min(p.m, gemm::kPanelRows);
  if (m == 0) return;
  w->panel = Tensor::empty({w->rows.panel_bytes(kernels, m)}, Format::u8);
  if (const int64_t scales = w->rows.scale_bytes(kernels, m); scales > 0) {
    w->x_scales = Tensor::empty({scales / 4}, Format::f32);
  }
  if (kernels.integer) w->row_offsets = Tensor::empty({m}, Format::i32);
  if (w->rows.has_row_scales()) w->row_scales = Tensor::empty({m}, Format::f32);
  if (p.scaled && p.scaling.layout != ScaleLayout::linear) {
    for (Tensor* tiled : {&w->tiled, &w->up_tiled}) {
      if (tiled == &w->up_tiled && !p.separate_up) continue;
      *tiled =
          Tensor::empty({weight_rows(p) * gemm::ceil_div(p.k, p.scaling.block_cols)}, Format::u8);
    }
  }
  if (p.bias && p.gated && p.interleaved) w->bias = Tensor::empty({2 * p.n}, Format::f32);
  if (p.quantize_out) w->results = Tensor::empty({needs_all(p) ? p.m : m, p.n}, Format::f32);
}

int64_t bytes(const Workspace& w) {
  int64_t total = 0;
  for (const Tensor* t : {&w.panel, &w.x_scales, &w.row_scales, &w.row_offsets, &w.tiled,
                          &w.up_tiled, &w.bias, &w.results}) {
    if (t->defined()) total += t->bytes();
  }
  return total;
}

void run_panels(const MatmulProblem& p, const Kernels& kernels, const MatmulTensors& t,
                Workspace* workspace, ThreadPool& pool) {
  Workspace& w = *workspace;
  const Weights all = weights_of(p, t.weight, "weight", w.tiled, pool);
  Weights gate, up;
  if (p.separate_up) {
    gate = all, up = weights_of(p, t.up, "up", w.up_tiled, pool);
  } else if (p.gated) {
    gate = gemm::take_rows(all, 0, p.interleaved ? 2 : 1, p.n);
    up = gemm::take_rows(all, p.interleaved ? 1 : p.n, p.interleaved ? 2 : 1, p.n);
  }
  gemm::XRows::Panel panel;
  panel.x = w.panel.data();
  if (w.x_scales.defined()) panel.scales = w.x_scales.data<float>();
  if (w.row_scales.defined()) panel.row_scales = w.row_scales.data<float>();
  if (w.row_offsets.defined()) panel.row_offsets = w.row_offsets.data<uint32_t>();

  Job job;
  job.weights = p.gated ? &gate : &all;
  if (p.gated) job.up = &up, job.gated = *p.gated;
  job.activation = p.activation;
  job.x_scales = panel.scales;
  job.row_scales = panel.row_scales;
  job.row_offsets = panel.row_offsets;
  if (p.bias) split_bias(p, t.bias, w, &job);
  job.out_format = p.quantize_out ? Format::f32 : p.out;
  const int64_t out_size = bits(job.out_format) / 8;
  job.out_row = p.quantize_out ? p.n * 4 : t.out.stride(0) * out_size;
  if (p.residual) {
    job.residual_format = t.residual.format();
    job.residual_row = t.residual.stride(0) * bits(t.residual.format()) / 8;
  }
  const int64_t x_row = t.x.stride(0) * bits(p.x) / 8;
  const bool by_panel = p.quantize_out && !needs_all(p);
  Recipe recipe;
  if (by_panel) recipe = output_recipe(*p.quantize_out, nullptr, 0, t.out);
  for (int64_t m0 = 0; m0 < p.m; m0 += gemm::kPanelRows) {
    panel.m = job.m = std::min(gemm::kPanelRows, p.m - m0);
    job.x = panel.x;
    job.x_row = 0;
    const char* x = t.x.data<char>() + m0 * x_row;
    if (!p.quantize_x && gemm::reads_rows(kernels, *job.weights, p.x, x, x_row)) {
      job.x = x;
      job.x_row = x_row;
      job.x_block = int64_t{kernels.chunk} * kernels.block_chunks * kernels.element_bytes;
    } else {
      gemm::parallel(pool, job.m, 4, job.m * p.k * 4, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m) w.rows.pack(kernels, t.x, m0 + m, panel, m);
      });
    }
    job.out = p.quantize_out ? w.results.data<char>() + (by_panel ? 0 : m0) * job.out_row
                             : t.out.data<char>() + m0 * job.out_row;
    if (p.residual) job.residual = t.residual.data<char>() + m0 * job.residual_row;
    gemm::run_jobs(kernels, {&job, 1}, pool);
    if (by_panel) {
      quantise_rows(*p.quantize_out, recipe, w.results.data<float>(), m0, job.m, t.out, pool);
    }
  }
  if (!p.quantize_out || by_panel) return;
  recipe = output_recipe(*p.quantize_out, w.results.data<float>(), p.m, t.out);
  quantise_rows(*p.quantize_out, recipe, w.results.data<float>(), 0, p.m, t.out, pool);
}

}  // namespace halftone::dense
