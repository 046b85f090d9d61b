#include "ops/gemm/sm80/launch.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/message.h"
#include "formats/gpu/kernels.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm80/gather.cuh"
#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuLayout gpu_layout(const Tensor& t, const char* name) {
  GpuLayout l;
  l.format = t.format();
  require(t.stride(-1) == 1 || t.size(-1) == 1, name, " has strides ", shown(t.strides()),
          "; its last dimension must be contiguous");
  const int64_t row_bits = t.stride(-2) * bits(l.format);
  require(row_bits % 8 == 0 || t.size(-2) == 1, name, " has strides ", shown(t.strides()),
          "; rows must start at whole bytes");
  l.row_bytes = row_bits / 8;
  l.tensor_rows = static_cast<uint32_t>(t.size(-2));
  l.columns = static_cast<uint32_t>(t.size(-1));
  if (!t.has_scales()) return l;
  const Scaling& s = t.scaling();
  l.scale_format = s.format;
  l.scales = s.layout;
  l.block_rows = static_cast<uint32_t>(s.block_rows);
  l.group = static_cast<uint32_t>(s.block_cols);
  if (s.layout != ScaleLayout::linear) return l;
  l.scale_row = t.scales().stride(-2) * bits(s.format) / 8;
  l.scale_step = t.scales().stride(-1) * bits(s.format) / 8;
  if (s.asymmetric) {
    l.zero_row = t.zero_points().stride(-2);
    l.zero_step = t.zero_points().stride(-1);
  }
  return l;
}

GpuSource gpu_source(const Tensor& t, int64_t matrix) {
  const auto at = [&](const Tensor& chunk) {
    const bool own = matrix > 0 && chunk.size(0) > 1;
    return chunk.data<uint8_t>() + (own ? matrix * chunk.stride(0) * bits(chunk.format()) / 8 : 0);
  };
  GpuSource s;
  s.data = at(t);
  if (!t.has_scales()) return s;
  s.scales = at(t.scales());
  if (t.scaling().layout != ScaleLayout::linear && matrix > 0) {
    const int64_t groups = ceil_div(t.size(-1), t.scaling().block_cols);
    s.scales = t.scales().data<uint8_t>() +
               matrix * scale_layout_bytes(t.scaling().layout, t.size(-2), groups);
  }
  if (t.scaling().asymmetric) s.zeros = at(t.zero_points());
  if (t.tensor_scale().defined()) s.tensor_scale = t.tensor_scale().data<float>();
  return s;
}

GpuWeight gpu_weight(const XSpec& x, Format weight, bool scaled, const Scaling& scaling) {
  GpuWeight w;
  const bool grouped = scaled && scaling.block_cols > 0;
  switch (element_of(weight)) {
    case Element::f32:
      w.code = GpuCode::f32;
      break;
    case Element::f16:
      w.code = x.format == Format::f16 && !x.quantize ? GpuCode::f16 : GpuCode::f16_terms;
      break;
    case Element::bf16:
      w.code = GpuCode::bf16;
      break;
    case Element::e4m3:
      w.code = GpuCode::e4m3;
      break;
    case Element::e5m2:
      w.code = GpuCode::e5m2;
      break;
    case Element::int8:
      w.code = GpuCode::int8;
      break;
    case Element::e2m1:
      w.code = GpuCode::e2m1;
      break;
    case Element::int4:
      w.code = GpuCode::int4;
      break;
    default: {  // no type of its own
      const bool exact = is_exact_in_bf16(element_of(weight)) && scaling.format == Format::ue8m0;
      w.code = exact ? GpuCode::dequantised : GpuCode::f32;
      w.dequantise = true;
      return w;
    }
  }
  if (!grouped) return w;
  // E2M1 times E4M3 has six significant bits: a bf16 number.
  w.pairs =
      w.code == GpuCode::e2m1 && scaling.format == Format::fp8_e4m3 && scaling.block_cols % 16 == 0;
  w.scaled = !w.pairs && !is_plain_float(weight) && scaling.block_cols % 32 == 0;
  w.dequantise = !w.pairs && !w.scaled;
  if (w.dequantise) w.code = GpuCode::f32;
  return w;
}

std::string refuse_gpu_x(const XSpec& x) {
  if (x.quantize && x.quantize->adaptive) {
    return "x is to be quantised with adaptive scales; GPU kernels take those of the recipe";
  }
  return "";
}

GpuX::GpuX(const XSpec& spec, const GpuWeight& weight, int64_t k) : k_(k) {
  Format codes = spec.format;
  bool scaled = spec.scaled;
  Scaling s = spec.scaling;
  if (spec.quantize) {
    const QuantizeOptions& q = *spec.quantize;
    codes = q.format, scaled = true, s = q.scaling;
    params_.quantise = true;
    params_.recipe = make_recipe(q);
    params_.row_tensor_scale = has_tensor_scale(q.format) && !q.tensor_scale;
    if (s.block_rows == 0) params_.given = *q.tensor_scale;
  }
  codes_ = codes;
  one_scale_ = s.block_rows == 0;
  plain_scales_ = scaled && !spec.quantize && s.format == Format::f32 &&
                  (one_scale_ ? s.block_cols == 0 : s.block_rows == 1);
  const bool f16 =
      codes == Format::f16 && (weight.code == GpuCode::f16 || weight.code == GpuCode::f16_sums);
  direct_ = codes == Format::bf16 || f16;
  if (direct_) return;
  if (is_plain_float(codes)) {
    params_.terms = codes == Format::f16 ? 2 : 3;
    return;
  }
  group_ = scaled ? s.block_cols : 0;
  params_.groups = static_cast<uint32_t>(group_ > 0 ? ceil_div(k, group_) : 1);
  if (group_ == 0) {
    params_.entry = GpuEntry::code;
  } else if (s.format == Format::ue8m0 || (bits(codes) < 8 && s.format == Format::fp8_e4m3)) {
    params_.entry = GpuEntry::value;  // exact in bf16
  } else if (group_ % 32 == 0) {
    params_.entry = GpuEntry::code;
  } else {
    params_.terms = 3;
  }
}

void GpuX::allocate(int64_t m, const Device& device, bool copied) {
  if (direct_ && !copied) return;
  // Whole chunks of 16 bytes, so that rows are copied as they are.
  const int64_t stride = ceil_div(k_, 8) * 8;
  rows_ = Tensor::empty({m * params_.terms, stride}, Format::bf16, device);
  if (direct_ || (params_.terms > 1 && group_ == 0)) return;  // plain floats
  row_scales_ = Tensor::empty({m}, Format::f32, device);
  if (params_.entry == GpuEntry::code && group_ > 0) {
    scales_ = Tensor::empty({m, static_cast<int64_t>(params_.groups)}, Format::f32, device);
  }
}

int64_t GpuX::bytes() const {
  int64_t total = 0;
  for (const Tensor* t : {&rows_, &scales_, &row_scales_}) {
    if (t->defined()) total += t->bytes();
  }
  return total;
}

void GpuX::enter(const Tensor& x, int64_t m, GpuGemm* gemm, Stream& stream, bool as_codes,
                 const int32_t* order) const {
  gemm->k = static_cast<uint32_t>(k_);
  gemm->m = static_cast<uint32_t>(m);
  gemm->terms = params_.terms;
  if (direct_ && order == nullptr) {
    gemm->x = x.data<uint8_t>();
    gemm->x_row = m > 1 ? x.stride(0) * 2 : ceil_div(k_, 8) * 16;  // a single row has no stride
    return;
  }
  if (direct_) {
    const GpuGatherParams p{x.data<uint8_t>(),
                            x.stride(0) * 2,
                            order,
                            rows_.data<uint8_t>(),
                            rows_.stride(0) * 2,
                            static_cast<uint32_t>(m),
                            static_cast<uint32_t>(k_ * 2)};
    gemm->x = p.out;
    gemm->x_row = p.out_row;
    launch(hw::image_of<GpuGather>("product_gather"), with_pdl(GpuGather::shape(p), stream), p,
           stream);
    return;
  }
  if (group_ > 0 && params_.entry == GpuEntry::code) {
    gemm->x_group = static_cast<uint32_t>(group_);
    const auto chunks = static_cast<uint32_t>(group_ / 32);
    gemm->period = gemm->period > 0 ? std::gcd(gemm->period, chunks) : chunks;
  }
  // Codes and scales as they lie, if the copy engine takes them.
  if (as_codes && plain_scales_ && order == nullptr && !x.tensor_scale().defined() &&
      (group_ == 0 || x.scales().stride(1) == 1) &&
      reinterpret_cast<uintptr_t>(x.data()) % 16 == 0 && x.stride(0) % 16 == 0) {
    gemm->x = x.data<uint8_t>();
    gemm->x_row = x.stride(0);
    if (group_ == 0) {
      gemm->epilogue.row_scales = x.scales().data<float>();
      gemm->epilogue.row_scale_step = one_scale_ ? 0 : static_cast<uint32_t>(x.scales().stride(0));
      return;
    }
    gemm->x_scales = x.scales().data<float>();
    gemm->x_scale_row = x.scales().stride(0);
    return;
  }
  if (as_codes && order == nullptr && params_.quantise && params_.given == 0 &&
      params_.recipe.scale_format == Format::f32) {
    return enter_quantised(x, m, gemm, stream);
  }
  GpuRowsParams p = params_;
  p.layout = gpu_layout(x, "x");
  p.source = gpu_source(x);
  p.order = order;
  p.rows = static_cast<uint32_t>(m), p.columns = static_cast<uint32_t>(k_);
  p.out = rows_.data<uint16_t>();
  p.out_row = rows_.stride(0);
  gemm->x = rows_.data<uint8_t>();
  gemm->x_row = rows_.stride(0) * 2;
  if (as_codes) p.codes = rows_.data<uint8_t>(), p.out_row = gemm->x_row;
  if (row_scales_.defined()) gemm->epilogue.row_scales = p.row_scales = row_scales_.data<float>();
  if (scales_.defined()) {
    gemm->x_scales = p.scales = scales_.data<float>();
    gemm->x_scale_row = p.groups;
  }
  launch(hw::image_of<GpuRows>("product_rows"), with_pdl(GpuRows::shape(p), stream), p, stream);
}

void GpuX::enter_quantised(const Tensor& x, int64_t m, GpuGemm* gemm, Stream& stream) const {
  QuantizeArgs q;
  q.recipe = params_.recipe;
  q.source = x.format();
  q.x = {x.data<char>(), 1, x.stride(0) * bits(x.format()) / 8, 0};
  q.rows = m, q.columns = k_;
  q.codes = rows_.data<uint8_t>();
  q.scales = (group_ > 0 ? scales_ : row_scales_).data<uint8_t>();
  quantize_gpu(q, stream);
  gemm->x = q.codes, gemm->x_row = k_;
  if (group_ == 0) {
    gemm->epilogue.row_scales = row_scales_.data<float>();
  } else {
    gemm->x_scales = scales_.data<float>(), gemm->x_scale_row = params_.groups;
  }
}

void set_weight(const GpuWeight& w, const GpuLayout& layout, GpuGemm* p) {
  p->weight = layout;
  p->scaled = w.scaled, p->dequantise = w.dequantise, p->pairs = w.pairs;
  p->alpha = w.pairs ? CodePolicy<GpuCode::e2m1>::kFactor : 1.0f;
  if (w.scaled) p->period = layout.group / 32;
}

uint32_t rows_of_chunk(uint32_t terms, bool many, int64_t average) {
  // Experts have more rows than the average, and two parts read their weights twice; but sixteen
  // columns cost a fifth more where eight would do (docs/findings/gpu-gemv.md).
  const uint32_t few = average * terms > 6 ? 16 : 8;
  return (many ? kLargeTile.columns : few) / terms;
}

bool is_plain(const GpuSource& s) {
  return reinterpret_cast<uintptr_t>(s.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(s.scales) % 16 == 0 && s.zeros == nullptr;
}

namespace {

// Whether a span's scales of a row lie together, in bytes that are copied at once.
bool scales_in_spans(const GpuGemm& p, uint32_t depth, GpuSpans* spans) {
  const GpuLayout& l = p.weight;
  if (!p.scaled && !p.pairs) return true;
  const bool e4m3 = l.scale_format == Format::fp8_e4m3;
  if (l.scales != ScaleLayout::linear || e4m3 != p.pairs) return false;
  const uint32_t size = scale_bytes(l.scale_format);
  if (p.scaled && l.group % depth == 0) {
    const uint32_t together = l.group / depth;
    spans->scale_bytes = size;
    spans->scale_shift = static_cast<uint32_t>(std::countr_zero(together));
    spans->scale_pitch = static_cast<uint32_t>(l.scale_step);
    spans->octet_shift = 31;
    return std::has_single_bit(together) && l.scale_step % size == 0;
  }
  if (p.pairs ? l.group != 16 : depth % l.group != 0) return false;
  spans->scale_bytes = spans->scale_pitch = depth / l.group * size;
  spans->octet_shift = static_cast<uint32_t>(std::countr_zero(l.group / 32));
  return l.scale_step == size && l.scale_row % std::min(spans->scale_bytes, 16u) == 0;
}

bool is_fp(GpuCode code) {
  return code == GpuCode::e2m1 || code == GpuCode::e4m3 || code == GpuCode::e5m2;
}

GpuSpans spans_of(const GpuWeight& w, const GpuGemm& p) {
  constexpr uint32_t kSpan = GpuGemv<GpuCode::bf16, 1>::kSpan;
  const uint32_t depth = kSpan * 8 / static_cast<uint32_t>(bits(p.weight.format));
  GpuSpans spans;
  const bool plain =
      p.experts != nullptr ? p.aligned_experts : is_plain(p.source[0]) && is_plain(p.source[1]);
  const bool whole = plain && !w.dequantise && p.k % depth == 0 && p.weight.row_bytes % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_row % 16 == 0;
  if (!whole || !scales_in_spans(p, depth, &spans)) return spans;
  const uint32_t same = p.period * 32;  // elements that have the same scales
  const bool joined = w.code != GpuCode::e2m1;
  const bool powers = is_fp(w.code) && p.weight.scale_format == Format::ue8m0;
  spans.halves = same % depth != 0;
  if (p.x_scales == nullptr && powers && p.weight.group == 32) {
    spans.loop = GpuLoop::ue8m0;
  } else if (p.x_scales == nullptr && (!p.scaled || (joined && same % (depth / 2) == 0))) {
    spans.loop = GpuLoop::wide;
  } else if (!p.pairs) {
    spans.loop = GpuLoop::narrow;
  }
  return spans;
}

// The GEMM of few rows as `launch_gemv` will see it, with alignments for addresses and strides.
GpuGemm planned_gemv(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  const OperandAlignment& a = p.alignment;
  const auto at = [](int64_t bytes) { return reinterpret_cast<const uint8_t*>(bytes); };
  GpuLayout l;
  l.format = p.weight;
  l.row_bytes = a.weight;
  if (p.scaled) {
    l.scale_format = p.scaling.format, l.scales = p.scaling.layout;
    l.block_rows = static_cast<uint32_t>(p.scaling.block_rows);
    l.group = static_cast<uint32_t>(p.scaling.block_cols);
    l.scale_row = a.weight_scales;
    l.scale_step = bits(l.scale_format) / 8 * (a.packed_scales ? 1 : 2);
  }
  GpuGemm g;
  set_weight(w, l, &g);
  g.m = static_cast<uint32_t>(p.m), g.n = static_cast<uint32_t>(p.n);
  g.k = static_cast<uint32_t>(p.k), g.terms = x.terms();
  g.epilogue.gate = p.gate;
  g.x = at(x.direct() ? a.x : 16), g.x_row = x.direct() ? a.x : 16;
  if (x.scale_group() > 0) {
    static const float some = 1;
    const auto chunks = static_cast<uint32_t>(x.scale_group() / 32);
    g.x_scales = &some;
    g.period = g.period > 0 ? std::gcd(g.period, chunks) : chunks;
  }
  for (GpuSource& source : g.source) {
    source.data = at(a.weight);
    source.scales = p.scaled ? at(a.scale_storage) : nullptr;
    source.zeros = p.scaled && p.scaling.asymmetric ? at(1) : nullptr;
  }
  return g;
}

// Whether a launch is of persistent CTAs: every block has some tiles, all its warps share the K of
// a tile, and three blocks a multiprocessor have room for x beside their rings.
bool is_persistent(const GpuWeight& w, const GpuGemm& p, uint32_t tiles, uint32_t multiprocessors,
                   int shared_per_sm) {
  using Persistent = GpuGemvPersistent<GpuCode::bf16>;  // of every code alike
  const uint64_t spans = uint64_t{p.k} * static_cast<uint64_t>(bits(p.weight.format)) / 1024;
  const uint64_t x_bytes = uint64_t{p.m} * p.terms * p.k * 2;
  if (w.code == GpuCode::f32 || w.code == GpuCode::f16_terms) return false;
  if (p.spans.loop != GpuLoop::wide && p.spans.loop != GpuLoop::ue8m0) return false;
  if (p.m * p.terms > 8 || p.chunks != nullptr || p.x_rows != nullptr) return false;
  // All warps; within 32 bits.
  if (spans < 2 * Persistent::kWarps || x_bytes > 32 * 1024) return false;
  return Persistent::kMinBlocks * (Persistent::shared_bytes(p) + 1024) <=
             static_cast<uint32_t>(shared_per_sm) &&
         tiles > Persistent::kMinBlocks * multiprocessors;
}

GpuInstance instance_of(const GpuWeight& w, uint32_t columns) {
  return is_plain(w.code)       ? gpu_w16(w.code, columns)
         : bits_of(w.code) == 8 ? gpu_w8(w.code, columns)
                                : gpu_w4(w.code, columns);
}

}  // namespace

GpuGemm rows_of(GpuGemm p, int64_t first, int64_t count) {
  GpuEpilogue& f = p.epilogue;
  p.m = static_cast<uint32_t>(count);
  p.x += first * p.terms * p.x_row;
  if (p.x_scales != nullptr) p.x_scales += first * p.x_scale_row;
  f.out += first * f.out_row;
  if (f.residual != nullptr) f.residual += first * f.residual_row;
  if (f.row_scales != nullptr) f.row_scales += first * f.row_scale_step;
  if (f.row_weights != nullptr) f.row_weights += first;
  return p;
}

GpuLoop loop_of_gemv(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  return spans_of(w, planned_gemv(p, w, x)).loop;
}

OperandNeeds needs_gemv(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  OperandNeeds needs;
  const GpuGemm g = planned_gemv(p, w, x);
  const GpuSpans spans = spans_of(w, g);
  if (spans.loop == GpuLoop::any) return needs;
  needs.weight = 16;
  if (x.direct()) needs.x = 16;
  if (p.scaled) needs.scale_storage = 16;
  // Scales that several spans share are copied one by one.
  const uint32_t depth = 1024 / static_cast<uint32_t>(bits(p.weight));
  if ((!g.scaled && !g.pairs) || (g.scaled && g.weight.group % depth == 0)) return needs;
  needs.weight_scales = static_cast<int>(std::min(spans.scale_bytes, 16u));
  needs.packed_scales = true;
  return needs;
}

bool gemv_is_persistent(const GemmProblem& p, const GpuWeight& w, const GpuX& x,
                        int multiprocessors, int shared_per_sm) {
  if (p.experts > 0) return false;
  GpuGemm g = planned_gemv(p, w, x);
  g.spans = spans_of(w, g);
  const uint32_t tiles = instance_of(w, g.terms * g.m).shape(g, 0).grid.x;
  return is_persistent(w, g, tiles, static_cast<uint32_t>(multiprocessors), shared_per_sm);
}

void launch_gemv(const GpuWeight& w, GpuGemm p, GpuLoop loop, uint32_t chunks, Stream& stream,
                 uint32_t multiprocessors) {
  const GpuInstance instance = instance_of(w, p.terms * (chunks > 0 ? p.chunk_rows : p.m));
  if (loop != GpuLoop::any) {
    p.spans = spans_of(w, p);
    require(p.spans.loop == loop, "operands of gemv_sm80 lie otherwise than planned");
  }
  LaunchShape shape = instance.shape(p, chunks);
  // Few rows of a matrix begin with the weights' way from memory. Waiting in place for a turn makes
  // it 0.7 us longer than a launch of its own does, unless weights may come before the turn
  // (docs/findings/gpu-gemv.md).
  p.static_weights = p.static_weights && chunks == 0;
  if (chunks > 0 || p.static_weights) shape = with_pdl(shape, stream);
  const DeviceProperties& d = properties(stream.device());
  if (multiprocessors == 0) multiprocessors = static_cast<uint32_t>(d.sm_count);
  if (!is_persistent(w, p, shape.grid.x, multiprocessors, d.shared_per_sm)) {
    return launch(instance.image, shape, p, stream);
  }
  using Persistent = GpuGemvPersistent<GpuCode::bf16>;
  shape.shared_bytes = Persistent::shared_bytes(p);
  shape.block.x = Persistent::kThreads;
  shape.grid.x = Persistent::kMinBlocks * multiprocessors;
  launch(is_plain(w.code)       ? gpu_w16_persistent(w.code)
         : bits_of(w.code) == 8 ? gpu_w8_persistent(w.code, p.spans.loop)
                                : gpu_w4_persistent(w.code, p.spans.loop),
         shape, p, stream);
}

void launch_gemm(const GpuWeight& w, GpuGemm p, uint32_t chunks, Stream& stream) {
  const GpuInstance instance = instance_of(w, kLargeTile.columns);
  p.static_weights = false;
  launch(instance.image, with_pdl(instance.shape(p, chunks), stream), p, stream);
}

}  // namespace halftone::gemm
