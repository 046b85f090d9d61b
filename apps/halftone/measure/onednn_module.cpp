// Products by oneDNN 2.x, for `halftone bench` to measure beside ours: a module of its own, so that
// the command neither needs nor loads the library.
#include "measure/onednn_module.h"

#include <cstring>
#include <dnnl.hpp>
#include <exception>
#include <unordered_map>
#include <vector>

namespace {

using Memory = dnnl::memory;

struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  std::vector<Memory> weights;  // in the layout that the library likes best
  Memory x, out;

  // f32: x, W and the result in f32; bf16: in bf16; int8: x and W in int8, the result in i32.
  Product(OneDnnType type, int64_t m, int64_t n, int64_t k, const void* from_x, const void* from_w,
          int copies) {
    using Type = Memory::data_type;
    const Type in = type == OneDnnType::f32    ? Type::f32
                    : type == OneDnnType::bf16 ? Type::bf16
                                               : Type::s8;
    const Memory::desc x_desc({m, k}, in, Memory::format_tag::ab);
    const Memory::desc out_desc({m, n}, type == OneDnnType::int8 ? Type::s32 : in,
                                Memory::format_tag::ab);
    const Memory::desc any({k, n}, in, Memory::format_tag::any);
    const dnnl::matmul::primitive_desc description({x_desc, any, out_desc}, engine);
    product = dnnl::matmul(description);
    Memory ours({{k, n}, in, Memory::format_tag::ba}, engine, const_cast<void*>(from_w));
    for (int i = 0; i < copies; ++i) {
      weights.emplace_back(description.weights_desc(), engine);
      dnnl::reorder(ours, weights.back()).execute(stream, ours, weights.back());
    }
    stream.wait();
    x = Memory(x_desc, engine);
    std::memcpy(x.get_data_handle(), from_x, x_desc.get_size());
    out = Memory(out_desc, engine);
  }
};

}  // namespace

extern "C" void* halftone_onednn_open(OneDnnType type, int64_t m, int64_t n, int64_t k,
                                      const void* x, const void* w, int copies) {
  try {
    return new Product(type, m, n, k, x, w, copies);
  } catch (const std::exception&) {
    return nullptr;  // this processor or release has no such product
  }
}
extern "C" void halftone_onednn_run(void* product, int turn) {
  auto& p = *static_cast<Product*>(product);
  p.product.execute(p.stream,
                    {{DNNL_ARG_SRC, p.x},
                     {DNNL_ARG_WEIGHTS, p.weights[static_cast<size_t>(turn) % p.weights.size()]},
                     {DNNL_ARG_DST, p.out}});
  p.stream.wait();
}
extern "C" void halftone_onednn_close(void* product) { delete static_cast<Product*>(product); }
