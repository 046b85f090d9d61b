#include "base/message.h"
#include "hw/image.h"
#include "ops/moe/gpu_grouped.h"
#include "ops/moe/gpu_groups.cuh"
#include "ops/moe/grouped_matmul.h"

namespace halftone::grouped {

namespace {

using experts::GroupedGemm;
using gemm::GpuSource;

struct Workspace {
  GroupedGemm product;
  Tensor sources, chunks, chunk_count;
};

}  // namespace

gemm::GemmProblem gemm_problem(const GroupedProblem& p) {
  gemm::GemmProblem g{p.rows,   p.n,      p.k,       p.groups, false,
                      p.weight, p.scaled, p.scaling, false,    x_spec(p)};
  g.out = p.out;
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment;
  return g;
}

std::shared_ptr<void> workspace_gpu(const GroupedProblem& p, const gemm::GemmChoice& choice,
                                    const Device& device, int64_t* bytes) {
  auto w = std::make_shared<Workspace>();
  w->product = {gemm_problem(p), choice};
  w->product.x.allocate(p.rows, device);
  w->sources = Tensor::empty({p.groups * int64_t{sizeof(GpuSource)}}, Format::u8, device);
  w->chunks = Tensor::empty({w->product.max_chunks(), 4}, Format::i32, device);
  w->chunk_count = Tensor::empty({1}, Format::i32, device);
  *bytes = w->product.x.bytes() + w->sources.bytes() + w->chunks.bytes() + w->chunk_count.bytes();
  return w;
}

void run_gpu(const GroupedPlan& plan, const GroupedTensors& t, Stream& stream) {
  const GroupedProblem& p = plan.problem;
  const auto& w = *static_cast<const Workspace*>(plan.workspace.get());
  gemm::GpuGemm g;
  set_weight(w.product.choice.weight, gemm::gpu_layout(t.weight, "weight"), &g);
  // Matrices lie evenly: the first two and the last say where all are.
  const int64_t last = p.groups - 1;
  const GpuSource some[] = {gemm::gpu_source(t.weight),
                            gemm::gpu_source(t.weight, std::min<int64_t>(1, last)),
                            gemm::gpu_source(t.weight, last)};
  const gemm::Sm90Matrices matrices = gemm::sm90_matrices(g.weight, some, 3);
  const gemm::GemmChoice& choice = w.product.choice;

  GpuGroupsParams s;
  s.counts = t.counts.data<int32_t>(), s.count_step = t.counts.stride(0);
  s.groups = static_cast<uint32_t>(p.groups), s.rows = static_cast<uint32_t>(p.rows);
  if (p.masked) s.slots = static_cast<uint32_t>(p.rows / p.groups);
  s.first = some[0];
  s.data_step = some[1].data - some[0].data;
  s.scale_step = some[1].scales - some[0].scales;
  s.zero_step = some[1].zeros - some[0].zeros;
  s.sources = w.sources.data<GpuSource>();
  s.chunks = {w.chunks.data<gemm::MChunk>(), w.chunk_count.data<uint32_t>(), choice.chunk_rows};
  s.faults = fault_reporter(stream.device());
  launch(hw::image_of<GpuGroups>("grouped_parts"), with_pdl(GpuGroups::shape(s), stream), s,
         stream);

  g.n = static_cast<uint32_t>(p.n);
  g.experts = s.sources, g.expert_step = 1;
  g.aligned_experts = choice.loop != gemm::GpuLoop::any;
  g.chunks = s.chunks.chunks, g.chunk_count = s.chunks.count, g.chunk_rows = choice.chunk_rows;
  g.epilogue.out = t.out.data<char>();
  g.epilogue.out_format = p.out;
  g.epilogue.out_row = t.out.stride(0) * bits(p.out) / 8;
  w.product.x.enter(t.x, p.rows, &g, stream, w.product.as_codes());
  w.product.launch(g, matrices, stream);
}

std::string accepts_gpu(const GroupedProblem& p) {
  constexpr int64_t kGroups = 4096, kRows = int64_t{1} << 21, kExtent = int64_t{1} << 30;
  if (p.groups > kGroups || p.rows > kRows || p.n > kExtent || p.k > kExtent) {
    return concat("groups is ", p.groups, ", rows ", p.rows, ", N ", p.n, " and K ", p.k,
                  "; GPUs take up to ", kGroups, ", ", kRows, ", ", kExtent, " and ", kExtent);
  }
  return gemm::refuse_gpu_x(x_spec(p));
}

}  // namespace halftone::grouped
