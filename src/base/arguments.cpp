#include "base/arguments.h"

#include "base/message.h"

namespace halftone {

namespace {

void check_kind(const char* operation, const char* argument, const Tensor& x, Format format,
                const Device& device) {
  require(x.defined(), operation, ": ", argument, " is undefined; pass a tensor of ", name(format));
  require(x.format() == format, operation, ": ", argument, " is ", name(x.format()),
          ", the plan was made for ", name(format));
  if (!(x.device() == device)) {  // names are made only to complain
    fail(ErrorCode::invalid_argument, operation, ": ", argument, " is on ", x.device().name(),
         ", the plan was made for ", device.name());
  }
  require(x.rank() == 0 || x.size(-1) <= 1 || x.stride(-1) == 1, operation, ": ", argument,
          " has a last stride of ", x.rank() == 0 ? 1 : x.stride(-1),
          "; it must be 1 (contiguous_copy() makes it so)");
}

// First and one-past-last byte that a tensor touches.
struct Span {
  const char *begin, *end;
};
Span span_of(const Tensor& x) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t reach = (x.size(i) - 1) * x.stride(i);
    (reach < 0 ? low : high) += reach;
  }
  const auto* base = static_cast<const char*>(x.data());
  return {base + low * bits(x.format()) / 8, base + ((high + 1) * bits(x.format()) + 7) / 8};
}

}  // namespace

void check_stream(const char* operation, const Stream& stream, const Device& device) {
  if (stream.device() == device) return;
  fail(ErrorCode::invalid_argument, operation, ": the stream is on ", stream.device().name(),
       ", the plan was made for ", device.name());
}

void check_tensor(const char* operation, const char* argument, const Tensor& x, const Shape& shape,
                  Format format, const Device& device) {
  check_kind(operation, argument, x, format, device);
  require(x.shape() == shape, operation, ": ", argument, " has shape ", shown(x.shape()),
          ", the plan was made for ", shown(shape));
}

Rows check_rows(const char* operation, const char* argument, const Tensor& x, int64_t rows,
                int64_t columns, Format format, const Device& device) {
  check_kind(operation, argument, x, format, device);
  const int64_t bytes = bits(format) / 8;
  if (x.rank() == 2 && x.size(0) == rows && x.size(1) == columns) {
    return {x.data<char>(), 1, x.stride(0) * bytes, 0};
  }
  if (x.rank() == 3 && x.size(0) * x.size(1) == rows && x.size(2) == columns) {
    return {x.data<char>(), std::max<int64_t>(x.size(1), 1), x.stride(0) * bytes,
            x.stride(1) * bytes};
  }
  fail(ErrorCode::invalid_argument, operation, ": ", argument, " has shape ", to_string(x.shape()),
       ", the plan was made for ", rows, " rows of ", columns);
}

void check_overlap(const char* operation, const char* out_name, const Tensor& out,
                   const char* in_name, const Tensor& in) {
  if (out.numel() == 0 || in.numel() == 0) return;
  const Span a = span_of(out), b = span_of(in);
  if (a.end <= b.begin || b.end <= a.begin) return;
  const bool same_place = out.data() == in.data() && out.format() == in.format();
  if (same_place && out.shape() == in.shape() && out.strides() == in.strides()) return;
  // Column slices of one matrix interleave without sharing an element.
  if (out.rank() == 2 && in.rank() == 2 && out.format() == in.format() &&
      out.stride(0) == in.stride(0) && out.stride(0) > 0) {
    const int64_t pitch = out.stride(0) * bits(out.format()) / 8;
    const int64_t ahead = ((b.begin - a.begin) % pitch + pitch) % pitch;
    if (ahead >= out.size(1) * bits(out.format()) / 8 &&
        pitch - ahead >= in.size(1) * bits(in.format()) / 8) {
      return;
    }
  }
  fail(ErrorCode::invalid_argument, operation, ": ", out_name, " overlaps ", in_name,
       " without being the same tensor; use separate memory or pass the same tensor");
}

int64_t row_count(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.size(i);
  return rows;
}

Tensor as_rows(const char* operation, const char* argument, const Tensor& x) {
  require(x.defined(), operation, ": ", argument, " is undefined");
  require(x.rank() >= 1, operation, ": ", argument,
          " is a scalar; it needs at least one dimension");
  if (x.contiguous()) return x.reshape({row_count(x), x.size(-1)});
  require(x.rank() == 2 || x.rank() == 3, operation, ": ", argument, " of shape ",
          to_string(x.shape()), " has strides ", to_string(x.strides()),
          "; above rank 3 it must be row-major");
  return x;
}

}  // namespace halftone
