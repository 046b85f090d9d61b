// Non-maximum suppression: rules, plan, the CPU driver, run and one-liner.
#include "halftone/nms.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "formats/row_reader.h"
#include "ops/nms/gpu.h"
#include "ops/nms/kernels.h"

namespace halftone {

struct NmsKernel : KernelRow<NmsProblem, CpuOrGpu<NmsFunction, NmsGpuFunction>> {};

struct NmsWorkspace {
  std::vector<int32_t> order, suppressed, classes;
  std::vector<float> scores, x1, y1, x2, y2, area;
  std::vector<int64_t> names;  // of classes, sorted
  Tensor on_device;            // of a GPU: everything
};

namespace {

std::string accepts(const NmsProblem& p) {
  if (p.boxes < 0 || p.boxes > std::numeric_limits<int32_t>::max()) {
    return concat("nms: boxes is ", p.boxes, "; it must be from 0 to 2^31 - 1");
  }
  if (!is_plain_float(p.format)) {
    return concat("nms: boxes are ", name(p.format), "; they must be f32, f16 or bf16");
  }
  if (!(p.iou_threshold >= 0 && p.iou_threshold <= 1)) {
    return concat("nms: iou_threshold is ", p.iou_threshold, "; it must be from 0 to 1");
  }
  if (std::isnan(p.score_threshold)) return "nms: score_threshold is nan; it must be a number";
  return "";
}

constexpr NmsKernel kKernels[] = {HALFTONE_LEVEL_ROWS("nms", accepts, nms_suppress)
                                      HALFTONE_GPU_ROW("nms", accepts, nms_gpu)};

int64_t class_at(const Tensor& classes, int64_t i) {
  const int64_t at = i * classes.stride(0);
  return classes.format() == Format::i64 ? classes.data<int64_t>()[at]
                                         : classes.data<int32_t>()[at];
}

void check(const NmsPlan& plan, const NmsTensors& t) {
  const NmsProblem& p = plan.problem;
  const auto fits = [&](const char* argument, const Tensor& x, const Shape& shape, bool format,
                        const char* formats) {
    require(x.defined() && x.shape() == shape && format && x.device() == plan.device,
            "nms: ", argument, " is ", x.defined() ? to_string(x) : std::string("undefined"),
            "; it must be ", formats, " ", shown(shape), " on ", plan.device.name());
  };
  fits("boxes", t.boxes, {p.boxes, 4}, t.boxes.format() == p.format, name(p.format));
  fits("scores", t.scores, {p.boxes}, t.scores.format() == p.format, name(p.format));
  fits("keep", t.keep, {p.boxes}, t.keep.format() == Format::i64 && t.keep.contiguous(), "i64");
  fits("count", t.count, {1}, t.count.format() == Format::i64, "i64");
  require(t.classes.defined() == p.classes, "nms: classes are ", p.classes ? "missing" : "given",
          ", the plan was made ", p.classes ? "with" : "without", " them");
  if (p.classes) {
    fits("classes", t.classes, {p.boxes}, is_integer_index(t.classes.format()), "i32 or i64");
  }
  for (const Tensor* in : {&t.boxes, &t.scores, &t.classes}) {
    if (!in->defined()) continue;
    check_overlap("nms", "keep", t.keep, "an operand", *in);
  }
}

void run_on_gpu(const NmsPlan& plan, const NmsTensors& t, Stream& stream) {
  const NmsProblem& p = plan.problem;
  const int64_t bytes = bits(p.format) / 8;
  NmsGpuArgs args;
  args.boxes = t.boxes.data<char>(), args.scores = t.scores.data<char>();
  args.format = p.format;
  args.box_stride = t.boxes.stride(0) * bytes, args.coordinate_stride = t.boxes.stride(1) * bytes;
  args.score_stride = t.scores.stride(0) * bytes;
  if (p.classes) {
    args.classes = t.classes.data();
    args.class_stride = t.classes.stride(0);
    args.wide_classes = t.classes.format() == Format::i64;
  }
  args.n = p.boxes;
  args.iou_threshold = p.iou_threshold, args.score_threshold = p.score_threshold;
  args.keep = t.keep.data<int64_t>(), args.count = t.count.data<int64_t>();
  args.labels = plan.workspace->on_device.data<int64_t>();
  auto* words = reinterpret_cast<uint32_t*>(args.labels + p.boxes);
  args.candidates = words;
  args.order = words + 2, args.suppressed = args.order + p.boxes;
  auto* floats = reinterpret_cast<float*>(args.suppressed + p.boxes);
  args.x1 = floats, args.y1 = args.x1 + p.boxes, args.x2 = args.y1 + p.boxes;
  args.y2 = args.x2 + p.boxes, args.area = args.y2 + p.boxes;
  plan.kernel->function.gpu(args, stream);
}

}  // namespace

std::string describe(const NmsPlan& plan) {
  const NmsProblem& p = plan.problem;
  return concat(plan.kernel->name, ": nms of ", p.boxes, " boxes, ", name(p.format),
                ", overlap above ", p.iou_threshold, p.classes ? ", by class" : "", ", on ",
                plan.device.name());
}
Support can_run(const NmsProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
NmsPlan plan(const NmsProblem& problem, const Device& device) {
  NmsPlan made{problem, device, kernel_for(kKernels, problem, device),
               std::make_shared<NmsWorkspace>()};
  const auto n = static_cast<size_t>(problem.boxes);
  NmsWorkspace& w = *made.workspace;
  if (made.kernel->function.gpu != nullptr) {
    w.on_device = Tensor::empty({problem.boxes * kNmsWorkspaceBytes + 8}, Format::u8, device);
    return made;
  }
  for (auto* v : {&w.order, &w.suppressed}) v->reserve(n);
  for (auto* v : {&w.scores, &w.x1, &w.y1, &w.x2, &w.y2, &w.area}) v->resize(n);
  if (problem.classes) {
    w.classes.resize(n);
    w.names.reserve(n);
  }
  return made;
}

void run(const NmsPlan& plan, const NmsTensors& t, Stream& stream) {
  const NmsProblem& p = plan.problem;
  require(plan.kernel != nullptr, "nms: the plan is empty; make it with plan()");
  require(stream.device() == plan.device, "nms: the stream is on ", stream.device().name(),
          ", the plan was made for ", plan.device.name());
  check(plan, t);
  if (plan.kernel->function.gpu != nullptr) return run_on_gpu(plan, t, stream);
  NmsWorkspace& w = *plan.workspace;
  w.order.clear();
  const Tensor score_rows =
      Tensor::view(t.scores.data(), {p.boxes, 1}, {t.scores.stride(0), 1}, p.format, plan.device);
  const RowReader scores(score_rows), boxes(t.boxes);
  for (int64_t i = 0; i < p.boxes; ++i) {
    float buffer[4];
    const float score = w.scores[static_cast<size_t>(i)] = *scores.read(i, 0, 1, buffer);
    require(!std::isnan(score), "nms: scores[", i, "] is nan; it must be a number");
    if (score >= p.score_threshold) w.order.push_back(static_cast<int32_t>(i));
  }
  // Ties by index: a strict order, so that no sort needs to be stable.
  std::sort(w.order.begin(), w.order.end(), [&](int32_t a, int32_t b) {
    const float x = w.scores[static_cast<size_t>(a)], y = w.scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  w.suppressed.assign(w.order.size(), 0);
  if (p.classes) {
    w.names.clear();
    for (int64_t i = 0; i < p.boxes; ++i) w.names.push_back(class_at(t.classes, i));
    std::sort(w.names.begin(), w.names.end());
  }
  for (size_t i = 0; i < w.order.size(); ++i) {
    float buffer[4];
    const float* b = boxes.read(w.order[i], 0, 4, buffer);
    const bool finite =
        std::isfinite(b[0]) && std::isfinite(b[1]) && std::isfinite(b[2]) && std::isfinite(b[3]);
    require(finite && b[0] <= b[2] && b[1] <= b[3], "nms: boxes[", w.order[i], "] is [", b[0], ", ",
            b[1], ", ", b[2], ", ", b[3], "]; it must be finite with x1 <= x2 and y1 <= y2");
    w.x1[i] = b[0], w.y1[i] = b[1], w.x2[i] = b[2], w.y2[i] = b[3];
    w.area[i] = (b[2] - b[0]) * (b[3] - b[1]);
    if (!p.classes) continue;
    const int64_t label = class_at(t.classes, w.order[i]);
    const auto rank = std::lower_bound(w.names.begin(), w.names.end(), label) - w.names.begin();
    w.classes[i] = static_cast<int32_t>(rank);
  }
  const NmsArgs args{w.x1.data(),         w.y1.data(),    w.x2.data(),
                     w.y2.data(),         w.area.data(),  p.classes ? w.classes.data() : nullptr,
                     w.suppressed.data(), p.iou_threshold};
  int64_t kept = 0;
  const auto candidates = static_cast<int64_t>(w.order.size());
  for (int64_t i = 0; i < candidates; ++i) {
    if (w.suppressed[static_cast<size_t>(i)] != 0) continue;
    t.keep.data<int64_t>()[kept++] = w.order[static_cast<size_t>(i)];
    plan.kernel->function.cpu(args, i, candidates);
  }
  *t.count.data<int64_t>() = kept;
}

Tensor nms(const Tensor& boxes, const Tensor& scores, float iou_threshold, const Tensor& classes,
           float score_threshold, Stream& stream) {
  require(boxes.defined() && boxes.rank() == 2 && boxes.size(1) == 4, "nms: boxes is ",
          boxes.defined() ? to_string(boxes) : std::string("undefined"), "; it must be [n, 4]");
  const NmsProblem problem{boxes.size(0), boxes.format(), iou_threshold, score_threshold,
                           classes.defined()};
  const Tensor keep = Tensor::empty({boxes.size(0)}, Format::i64, boxes.device());
  const Tensor count = Tensor::zeros({1}, Format::i64, boxes.device());
  run(plan(problem, boxes.device()), {boxes, scores, keep, count, classes}, stream);
  stream.synchronize();
  return keep.slice(0, 0, *count.to(Device::cpu()).data<int64_t>());
}

}  // namespace halftone
