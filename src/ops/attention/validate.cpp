// Rules of an attention problem and checks of its tensors.
#include <algorithm>
#include <limits>

#include "base/message.h"
#include "ops/attention/kernels.h"

namespace halftone {

namespace {

// Formats that dequantise exactly to `target`, the format of the products.
bool dequantises_to(Format f, Format target) {
  const bool quantised = f == Format::fp8_e4m3 || f == Format::int8 || is_block(f);
  switch (target) {
    case Format::f32:
      return quantised || is_plain_float(f);
    case Format::f16:
      return quantised || f == Format::f16;
    case Format::bf16:
      return quantised || f == Format::bf16;
    case Format::fp8_e4m3:  // with power-of-two block scales
      return f == Format::fp8_e4m3 ||
             (has_power_of_two_scales(f) && is_exact_in_e4m3(element_of(f)));
    default:
      return f == target;
  }
}

std::string length_error(const char* what, int64_t value, int64_t least) {
  return concat(what, " is ", value, "; it must be at least ", least);
}

}  // namespace

std::string attention_problem_error(const AttentionProblem& p) {
  if (!is_attention_mode(p.mode)) {
    return concat("mode is ", to_string(p.mode), ", which no attention kernel computes");
  }
  if (p.batch < 0) return length_error("batch", p.batch, 0);
  if (p.query_length < 0) return length_error("query_length", p.query_length, 0);
  if (p.key_length < 0) return length_error("key_length", p.key_length, 0);
  if (p.heads < 1) return length_error("heads", p.heads, 1);
  if (p.kv_heads < 1) return length_error("kv_heads", p.kv_heads, 1);
  if (p.heads % p.kv_heads != 0) {
    return concat("heads is ", p.heads, ", which is not a multiple of kv_heads ", p.kv_heads);
  }
  const int64_t dims[] = {p.head_dim, value_dim(p)};
  const char* const names[] = {"head_dim", "value_dim"};
  for (int i = 0; i < 2; ++i) {
    if (dims[i] < 1 || dims[i] > 1024) {
      return concat(names[i], " is ", dims[i], "; it must be from 1 to 1024");
    }
  }
  const Format formats[] = {p.q, p.k, p.v};
  const char* const operands[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    const int64_t group = group_of(formats[i]), dim = dims[i == 2];
    if (dim % group != 0) {
      return concat(names[i == 2], " is ", dim, "; ", operands[i], " in ", name(formats[i]),
                    " needs a multiple of ", group);
    }
  }
  if (!is_plain_float(p.q) && p.q != p.mode.qk) {
    return concat("q is ", name(p.q), "; mode ", to_string(p.mode), " takes f32, f16, bf16 or ",
                  name(p.mode.qk));
  }
  if (!dequantises_to(p.k, p.mode.qk)) {
    return concat("k is ", name(p.k), ", which does not dequantise exactly to the ",
                  name(p.mode.qk), " of mode ", to_string(p.mode));
  }
  if (!dequantises_to(p.v, p.mode.pv)) {
    return concat("v is ", name(p.v), ", which does not dequantise exactly to the ",
                  name(p.mode.pv), " of mode ", to_string(p.mode));
  }
  if (!is_plain_float(p.out))
    return concat("out is ", name(p.out), "; it must be f32, f16 or bf16");
  if (p.window_left < -1) return length_error("window_left", p.window_left, -1);
  if (p.window_right < -1) return length_error("window_right", p.window_right, -1);
  if (p.attention_chunk_size < 0) {
    return length_error("attention_chunk_size", p.attention_chunk_size, 0);
  }
  if (!(p.softcap >= 0) || p.softcap > std::numeric_limits<float>::max()) {
    return concat("softcap is ", p.softcap, "; it must be 0 (none) or positive and finite");
  }
  if (p.mask && *p.mask != Format::u8 && !is_plain_float(*p.mask)) {
    return concat("mask is ", name(*p.mask), "; it must be u8 (boolean), f32, f16 or bf16");
  }
  if (p.page_size && *p.page_size < 1) return length_error("page_size", *p.page_size, 1);
  return {};
}

AttentionSequence attention_sequence(const AttentionProblem& p, const AttentionTensors& t,
                                     int64_t b) {
  AttentionSequence s{0, p.query_length, 0, p.key_length};
  if (t.cu_seqlens_q.defined()) {
    const auto* cu = t.cu_seqlens_q.data<int32_t>();
    s.query_begin = cu[b], s.queries = cu[b + 1] - cu[b];
  }
  if (t.cu_seqlens_k.defined()) {
    const auto* cu = t.cu_seqlens_k.data<int32_t>();
    s.key_begin = cu[b], s.keys = cu[b + 1] - cu[b];
  }
  if (t.seqused_k.defined()) s.keys = t.seqused_k.data<int32_t>()[b];
  return s;
}

namespace {

void check_shape(const char* what, const Tensor& t, const Shape& shape, Format format) {
  require(t.defined(), what, " is missing");
  require(t.format() == format, what, " is ", name(t.format()), "; the plan says ", name(format));
  bool same = t.rank() == shape.rank();
  for (int i = 0; same && i < shape.rank(); ++i) same = shape[i] < 0 || t.size(i) == shape[i];
  if (!same) {
    std::string wanted;
    for (int64_t extent : shape) {
      wanted += (wanted.empty() ? "" : ", ") + (extent < 0 ? "any" : std::to_string(extent));
    }
    fail(ErrorCode::invalid_argument, what, " has shape ", to_string(t.shape()),
         "; the plan says [", wanted, "]");
  }
}

void check_operand(const char* what, const Tensor& t, const Shape& shape, Format format) {
  check_shape(what, t, shape, format);
  require(t.stride(-1) == 1 || t.size(-1) == 1, what, " has stride ", t.stride(-1),
          " in its last dimension; it must be 1");
  if (is_block(format)) require(t.has_scales(), what, " is ", name(format), " without scales");
  if (!t.has_scales()) return;
  const Scaling& scaling = t.scaling();
  require(scaling.layout == ScaleLayout::linear, what, " has scales in layout ",
          name(scaling.layout), "; attention reads linear scales");
  const Tensor& scales = t.scales();
  if (is_block(format)) {
    require(scaling.block_cols == group_of(format) && scaling.block_rows <= 1, what, " has scales ",
            shown(scaling), "; ", name(format), " has one per ", group_of(format),
            " elements of a row");
    require(scales.stride(-1) == 1 || scales.size(-1) == 1, what,
            ": the scales of a row must lie side by side");
    return;
  }
  require(scaling.format == Format::f32 && !scaling.asymmetric &&
              (scaling.block_cols == 0 || scaling.block_cols >= t.size(-1)) &&
              scaling.block_rows <= 1,
          what, " has scales ", shown(scaling),
          "; attention reads f32 scales per tensor, per head or per row");
}

// I32, contiguous, `count` elements. Those in GPU memory are read by kernels in stream order; the
// host does not look at them.
const int32_t* check_lengths(const char* what, const Tensor& t, int64_t count) {
  check_shape(what, t, {count}, Format::i32);
  require(t.contiguous(), what, " must be contiguous");
  return t.device().is_cpu() ? t.data<int32_t>() : nullptr;
}

void check_cumulative(const char* what, const Tensor& t, int64_t batch, int64_t total,
                      const char* length_name, int64_t length) {
  const int32_t* cu = check_lengths(what, t, batch + 1);
  if (!t.device().is_cpu()) return;
  require(cu[0] == 0, what, "[0] is ", cu[0], "; it must be 0");
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t own = int64_t{cu[b + 1]} - cu[b];
    require(own >= 0, what, "[", b + 1, "] is ", cu[b + 1], ", less than the one before, ", cu[b]);
    require(own <= length, what, ": sequence ", b, " has ", own, " rows, more than ", length_name,
            " ", length, " of the plan");
  }
  require(cu[batch] <= total, what, "[", batch, "] is ", cu[batch], ", beyond the ", total,
          " rows of its tensor");
}

}  // namespace

void check_attention_tensors(const AttentionProblem& p, const AttentionTensors& t,
                             const Device& device) {
  const Tensor* const tensors[] = {
      &t.q,     &t.k,          &t.v,         &t.out,          &t.lse,         &t.mask,
      &t.sinks, &t.page_table, &t.seqused_k, &t.cu_seqlens_q, &t.cu_seqlens_k};
  const char* const names[] = {"q",           "k",     "v",          "out",       "lse",
                               "mask",        "sinks", "page_table", "seqused_k", "cu_seqlens_q",
                               "cu_seqlens_k"};
  for (size_t i = 0; i < std::size(tensors); ++i) {
    const Tensor& tensor = *tensors[i];
    if (!tensor.defined()) continue;
    require(tensor.device() == device, names[i], " is on ", tensor.device().name(),
            ", the plan on ", device.name());
    // CPU plans read lengths from the tensors; GPU kernels are chosen by what the problem says.
    require(device.is_cpu() || i < 8 || p.variable_length, names[i],
            " is given, but the plan's problem has one length; set variable_length");
  }
  const int64_t dv = value_dim(p);
  const bool packed_q = t.cu_seqlens_q.defined(), packed_k = t.cu_seqlens_k.defined();
  require(!(packed_k && p.page_size), "cu_seqlens_k is given with a paged cache; give seqused_k");
  if (packed_q) {
    check_operand("q", t.q, {-1, p.heads, p.head_dim}, p.q);
    check_shape("out", t.out, {t.q.size(0), p.heads, dv}, p.out);
    check_cumulative("cu_seqlens_q", t.cu_seqlens_q, p.batch, t.q.size(0), "query_length",
                     p.query_length);
  } else {
    check_operand("q", t.q, {p.batch, p.query_length, p.heads, p.head_dim}, p.q);
    check_shape("out", t.out, {p.batch, p.query_length, p.heads, dv}, p.out);
  }
  require(t.out.stride(-1) == 1 || dv == 1, "out has stride ", t.out.stride(-1),
          " in its last dimension; it must be 1");
  if (p.page_size) {
    check_operand("k", t.k, {-1, *p.page_size, p.kv_heads, p.head_dim}, p.k);
    check_operand("v", t.v, {t.k.size(0), *p.page_size, p.kv_heads, dv}, p.v);
    check_shape("page_table", t.page_table, {p.batch, -1}, Format::i32);
    require(t.page_table.stride(-1) == 1 || t.page_table.size(-1) <= 1, "page_table has stride ",
            t.page_table.stride(-1), " in its last dimension; it must be 1");
  } else if (packed_k) {
    check_operand("k", t.k, {-1, p.kv_heads, p.head_dim}, p.k);
    check_operand("v", t.v, {t.k.size(0), p.kv_heads, dv}, p.v);
    check_cumulative("cu_seqlens_k", t.cu_seqlens_k, p.batch, t.k.size(0), "key_length",
                     p.key_length);
  } else {
    check_operand("k", t.k, {p.batch, -1, p.kv_heads, p.head_dim}, p.k);
    check_operand("v", t.v, {p.batch, t.k.size(1), p.kv_heads, dv}, p.v);
  }
  if (t.seqused_k.defined()) check_lengths("seqused_k", t.seqused_k, p.batch);
  // On a GPU the lengths of the plan, where no others are given.
  const bool own_lengths = packed_k || t.seqused_k.defined();
  for (int64_t b = 0; b < (device.is_cpu() ? p.batch : own_lengths ? 0 : 1); ++b) {
    const AttentionSequence s = device.is_cpu()
                                    ? attention_sequence(p, t, b)
                                    : AttentionSequence{0, p.query_length, 0, p.key_length};
    const int64_t room = p.page_size ? t.page_table.size(1) * *p.page_size
                         : packed_k  ? t.k.size(0) - s.key_begin
                                     : t.k.size(1);
    require(s.keys >= 0 && s.keys <= p.key_length && s.keys <= room, "sequence ", b, " has ",
            s.keys, " keys; the plan allows ", p.key_length, " and the cache holds ", room);
    if (!p.page_size || !device.is_cpu()) continue;
    const int32_t* pages = t.page_table.data<int32_t>() + b * t.page_table.stride(0);
    for (int64_t i = 0; i * *p.page_size < s.keys; ++i) {
      require(pages[i] >= 0 && pages[i] < t.k.size(0), "page_table[", b, ", ", i, "] is ", pages[i],
              "; the cache has ", t.k.size(0), " pages");
    }
  }
  if (p.lse) check_shape("lse", t.lse, {p.batch, p.heads, p.query_length}, Format::f32);
  require(p.mask || !t.mask.defined(), "mask is given, but the plan's problem has none; set mask");
  require(p.sinks || !t.sinks.defined(), "sinks are given, but the plan's problem has none; set ",
          "sinks");
  if (p.sinks) check_shape("sinks", t.sinks, {p.heads}, Format::f32);
  if (!p.mask) return;
  const auto extent = [&](int dim, int64_t whole) {
    return t.mask.defined() && t.mask.rank() == 4 && t.mask.size(dim) == 1 ? int64_t{1} : whole;
  };
  check_shape(
      "mask", t.mask,
      {extent(0, p.batch), extent(1, p.heads), extent(2, p.query_length), extent(3, p.key_length)},
      *p.mask);
}

}  // namespace halftone
