// Embedding lookup: rules, plan, run and one-liner.
#include "halftone/embedding.h"

#include "base/arguments.h"
#include "base/format_traits.h"
#include "base/kernel_table.h"
#include "ops/embedding/kernels.h"

namespace halftone {

struct EmbeddingKernel
    : KernelRow<EmbeddingProblem, CpuOrGpu<EmbeddingFunction, EmbeddingGpuFunction>> {};

namespace {

bool is_weight_format(Format f) { return is_plain_float(f) || is_quantised(f); }

bool is_scale_format(Format f) {
  return is_plain_float(f) || f == Format::fp8_e4m3 || f == Format::ue8m0;
}

std::string accepts(const EmbeddingProblem& p) {
  for (const auto& [argument, value] :
       {std::pair{"tokens", p.tokens}, {"vocabulary", p.vocabulary}, {"columns", p.columns}}) {
    if (value < 0)
      return concat("embedding: ", argument, " is ", value, "; it must not be negative");
  }
  if (!is_weight_format(p.table)) {
    return concat("embedding: the table is ", name(p.table), "; it must be a weight format");
  }
  if (!is_plain_float(p.out)) {
    return concat("embedding: out is ", name(p.out), "; it must be f32, f16 or bf16");
  }
  if (is_block(p.table) && !p.scaled) {
    return concat("embedding: a table of ", name(p.table), " needs scales; quantize() makes them");
  }
  if (!p.scaled) return "";
  if (is_plain_float(p.table)) {
    return concat("embedding: a table of ", name(p.table), " takes no scales");
  }
  if (!is_scale_format(p.scaling.format)) {
    return concat("embedding: scales are ", name(p.scaling.format),
                  "; they must be f32, f16, bf16, fp8_e4m3 or ue8m0");
  }
  if (p.scaling.layout != ScaleLayout::linear) {
    return concat("embedding: scales are in the ", name(p.scaling.layout),
                  " layout; convert_scale_layout() makes it linear");
  }
  if (p.scaling.block_rows < 0 || p.scaling.block_cols < 0 ||
      p.scaling.block_cols % elements_of_unit(p.table) != 0) {
    return concat("embedding: scale blocks are ", to_string(p.scaling),
                  "; they must not be negative and hold whole bytes of ", name(p.table));
  }
  if (p.scaling.asymmetric && !may_have_zero_points(p.table)) {
    return concat("embedding: zero points go with int4, not with ", name(p.table));
  }
  return "";
}

constexpr EmbeddingKernel kKernels[] = {HALFTONE_LEVEL_ROWS("embedding", accepts, embedding_rows)
                                            HALFTONE_GPU_ROW("embedding", accepts, embedding_gpu)};

int64_t id_at(const Tensor& ids, int64_t i) {
  const int64_t where = i * ids.stride(0);
  return ids.format() == Format::i64 ? ids.data<int64_t>()[where] : ids.data<int32_t>()[where];
}

}  // namespace

std::string describe(const EmbeddingPlan& plan) {
  const EmbeddingProblem& p = plan.problem;
  return concat(plan.kernel->name, ": embedding of ", p.tokens, " tokens, table [", p.vocabulary,
                ", ", p.columns, "] ", name(p.table),
                p.scaled ? concat(" (", to_string(p.scaling), " scales)") : std::string(), " to ",
                name(p.out), ", on ", plan.device.name());
}

Support can_run(const EmbeddingProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
EmbeddingPlan plan(const EmbeddingProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const EmbeddingPlan& plan, const EmbeddingTensors& t, Stream& stream) {
  const EmbeddingProblem& p = plan.problem;
  require(plan.kernel != nullptr, "embedding: the plan is empty; make it with plan()");
  check_stream("embedding", stream, plan.device);
  const bool on_gpu = plan.kernel->function.gpu != nullptr;
  const bool fits = t.ids.defined() && is_integer_index(t.ids.format()) && t.ids.rank() == 1 &&
                    t.ids.size(0) == p.tokens && t.ids.device() == plan.device;
  if (!fits) {
    fail(ErrorCode::invalid_argument, "embedding: ids is ",
         t.ids.defined() ? to_string(t.ids) : std::string("undefined"), "; it must be i32 or i64 [",
         p.tokens, "] on ", plan.device.name());
  }
  check_tensor("embedding", "table", t.table, {p.vocabulary, p.columns}, p.table, plan.device);
  check_tensor("embedding", "out", t.out, {p.tokens, p.columns}, p.out, plan.device);
  check_overlap("embedding", "out", t.out, "table", t.table);
  require(t.table.has_scales() == p.scaled && (!p.scaled || t.table.scaling() == p.scaling),
          "embedding: the table's scales (",
          t.table.has_scales() ? to_string(t.table.scaling()) : std::string("none"),
          ") are not those of the plan (", p.scaled ? to_string(p.scaling) : std::string("none"),
          ")");
  for (int64_t i = 0; i < p.tokens && !on_gpu; ++i) {  // the GPU kernel checks itself
    const int64_t id = id_at(t.ids, i);
    require(id >= 0 && id < p.vocabulary, "embedding: ids[", i, "] is ", id,
            ", outside the table of ", p.vocabulary, " rows");
  }
  EmbeddingArgs args{};
  args.ids = t.ids.data();
  args.id_stride = t.ids.stride(0);
  args.wide_ids = t.ids.format() == Format::i64;
  args.table = t.table.data<char>();
  args.table_stride = t.table.stride(0) * bits(p.table) / 8;
  require(t.table.stride(0) % elements_of_unit(p.table) == 0 || p.vocabulary <= 1,
          "embedding: rows of the ", name(p.table), " table start inside a byte (row stride ",
          t.table.stride(0), "); it must be a multiple of ", elements_of_unit(p.table));
  args.format = p.table;
  args.out_format = p.out;
  args.out = t.out.data<char>();
  args.out_stride = t.out.stride(0) * bits(p.out) / 8;
  args.columns = p.columns;
  args.tensor_scale = 1;
  if (p.scaled) {
    const Tensor& scales = t.table.scales();
    args.scales = scales.data<char>();
    args.scale_format = scales.format();
    args.block_rows = p.scaling.block_rows;
    args.block_columns = p.scaling.block_cols;
    args.scale_row_stride = scales.stride(0);
    args.scale_column_stride = scales.stride(1);
    if (on_gpu && t.table.tensor_scale().defined()) {
      args.tensor_scale_at = t.table.tensor_scale().data<float>();
    } else {
      args.tensor_scale = t.table.tensor_scale_value();
    }
    if (p.scaling.asymmetric) {
      const Tensor& zeros = t.table.zero_points();
      require(zeros.format() == Format::u8, "embedding: zero points are ", name(zeros.format()),
              "; they must be u8");
      args.zero_points = zeros.data<uint8_t>();
      args.zero_row_stride = zeros.stride(0);
      args.zero_column_stride = zeros.stride(1);
    }
  }
  if (on_gpu) return plan.kernel->function.gpu(args, {p.tokens, p.vocabulary}, stream);
  for_rows(stream, p.tokens, p.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
}

Tensor embedding(const Tensor& ids, const Tensor& table, Format out, Stream& stream) {
  require(ids.defined() && ids.rank() == 1, "embedding: ids must be one-dimensional");
  require(table.defined() && table.rank() == 2,
          "embedding: the table must be [vocabulary, columns]");
  const EmbeddingProblem problem{ids.size(0),
                                 table.size(0),
                                 table.size(1),
                                 table.format(),
                                 table.has_scales() ? table.scaling() : Scaling{},
                                 table.has_scales(),
                                 out};
  Tensor result = Tensor::empty({ids.size(0), table.size(1)}, out, table.device());
  run(plan(problem, table.device()), {ids, table, result}, stream);
  return result;
}

}  // namespace halftone
