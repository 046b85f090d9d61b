// Joins the two halves of every step, and makes what a launch needs. Compiled by the host compiler,
// so the kernels it sees are the simulated ones; steps.cu has their entries for the GPU.
#include "ladder.h"

#include "base/message.h"
#include "entries.h"
#include "pipe/tensor_map.h"

namespace halftone::ladder {

namespace {

constexpr int kSteps = 9;
constexpr Step kTable[kSteps] = {
    {1, "naive", "a thread for every element", Arch::sm_80},
    {2, "shared tiles", "tiles in shared memory, 8 x 8 elements a thread", Arch::sm_80},
    {3, "mma.sync", "tensor cores on plain row-major tiles", Arch::sm_80},
    {4, "swizzle", "chunks permuted by row, read by ldmatrix", Arch::sm_80},
    {5, "cp.async stages", "copies three stages deep, past the registers", Arch::sm_80},
    {6, "TMA ring", "boxes by the copy engine, barriers per stage", Arch::sm_90a},
    {7, "wgmma", "warpgroups multiply from shared memory", Arch::sm_90a},
    {8, "warp roles and clusters", "a warp that loads; blocks share B by multicast", Arch::sm_90a},
    {9, "persistent", "blocks walk over tiles; results leave beside the next", Arch::sm_90a},
};

template <class Kernel>
KernelImage image(const Step& step) {
  return {step.name,
          step.arch,
          gpu_entry_of<Kernel>(),
          &hw::sim_body<Kernel>,
          sizeof(typename Kernel::Params),
          Kernel::kThreads,
          Kernel::kMinBlocks};
}

// Steps 1 to 5: plain pointers.
template <class Kernel>
void run_plain(const Step& step, const Product& p, Stream& stream) {
  launch(image<Kernel>(step), Kernel::shape(p), p, stream);
}

hw::TensorMap map_of(const void* matrix, uint32_t rows, uint32_t columns, uint32_t box_rows,
                     const Device& device) {
  return pipe::make_tensor_map(
      pipe::matrix_box(hw::Type::bf16, const_cast<void*>(matrix), rows, columns,
                       uint64_t{columns} * 2, box_rows, kBoxWidth, tile::Swizzle::b128),
      device);
}

// Steps 6 to 9: tensor maps.
template <class Kernel>
void run_mapped(const Step& step, const Product& p, const LaunchShape& shape, Stream& stream) {
  const Device& device = stream.device();
  MappedProduct params{};
  params.product = p;
  params.a = map_of(p.a, p.m, p.k, Kernel::kBox.a, device);
  params.b = map_of(p.b, p.n, p.k, Kernel::kBox.b, device);
  if constexpr (Kernel::kBox.c > 0) params.c = map_of(p.c, p.m, p.n, Kernel::kBox.c, device);
  launch(image<Kernel>(step), shape, params, stream);
}

void check(const char* argument, const Tensor& x, const Device& device) {
  require(x.defined() && x.rank() == 2, "ladder: ", argument, " must be a matrix");
  require(x.format() == Format::bf16, "ladder: ", argument, " is ", name(x.format()),
          "; the steps multiply bf16");
  require(x.contiguous(), "ladder: ", argument, " must be contiguous");
  require(x.device() == device, "ladder: ", argument, " is on ", x.device().name(),
          ", the stream on ", device.name());
  require(x.size(0) > 0 && x.size(1) > 0 && x.size(0) < int64_t{1} << 31 &&
              x.size(1) < int64_t{1} << 31,
          "ladder: ", argument, " has extents ", to_string(x.shape()), "; each is 1 to 2^31 - 1");
  require(x.size(1) % 8 == 0, "ladder: ", argument, " has ", x.size(1),
          " columns; rows start on 16 bytes, so that must be a multiple of 8");
}

}  // namespace

std::span<const Step> steps() { return kTable; }

void multiply(int step_number, const Tensor& a, const Tensor& b, const Tensor& c, Stream& stream,
              const Options& options) {
  require(step_number >= 1 && step_number <= kSteps, "ladder: there is no step ", step_number,
          "; they are 1 to ", kSteps);
  const Device& device = stream.device();
  check("a", a, device);
  check("b", b, device);
  check("c", c, device);
  require(b.size(1) == a.size(1), "ladder: b has ", b.size(1), " columns, a ", a.size(1));
  require(c.size(0) == a.size(0) && c.size(1) == b.size(0), "ladder: c is ", to_string(c.shape()),
          "; it must be [", a.size(0), ", ", b.size(0), "], the rows of a and of b");

  const Product p{a.data<uint16_t>(),
                  b.data<uint16_t>(),
                  c.data<uint16_t>(),
                  static_cast<uint32_t>(a.size(0)),
                  static_cast<uint32_t>(b.size(0)),
                  static_cast<uint32_t>(a.size(1))};
  const Step& step = kTable[step_number - 1];
  switch (step_number) {
    case 1:
      return run_plain<Naive>(step, p, stream);
    case 2:
      return run_plain<SharedTiles>(step, p, stream);
    case 3:
      return run_plain<MmaSync>(step, p, stream);
    case 4:
      return run_plain<Swizzled>(step, p, stream);
    case 5:
      return run_plain<Stages>(step, p, stream);
    case 6:
      return run_mapped<TmaRing>(step, p, TmaRing::shape(p), stream);
    case 7:
      return run_mapped<Wgmma>(step, p, Wgmma::shape(p), stream);
    case 8:
      return run_mapped<WarpRoles>(step, p, WarpRoles::shape(p), stream);
    case 9: {
      const int sms =
          options.multiprocessors > 0 ? options.multiprocessors : properties(device).sm_count;
      require(sms >= static_cast<int>(Persistent::kCluster), "ladder: step 9 works on clusters of ",
              Persistent::kCluster, " multiprocessors; there are ", sms);
      return run_mapped<Persistent>(step, p, Persistent::shape(p, static_cast<uint32_t>(sms)),
                                    stream);
    }
  }
}

}  // namespace halftone::ladder
