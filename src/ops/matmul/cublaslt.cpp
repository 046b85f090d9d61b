#include "ops/matmul/cublaslt.h"

#include "base/message.h"
#include "ops/matmul/matmul_gpu.h"

#if HALFTONE_HAS_CUBLASLT
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <mutex>
#include <type_traits>

#include "base/cuda/api.h"
#include "halftone/elementwise.h"
#include "halftone/transpose.h"
#endif

namespace halftone::dense {

bool scaled_by_blocks(const MatmulProblem& p) { return gemm::scaled_by_blocks(gemm_problem(p)); }

#if HALFTONE_HAS_CUBLASLT

namespace {

bool plain(const Tensor& scales) {
  return scales.contiguous() && reinterpret_cast<uintptr_t>(scales.data()) % 16 == 0;
}

// Scales of blocks as cuBLASLt reads them. Of x [M, K], 1x128: [K/128, M], those of all rows side
// by side. Of a weight [N, K], 128x128: [N/128, K/128], with rows of whole 16 bytes. Those that lie
// so stay, others are copied by every run, into memory of the plan.
class BlockScales {
 public:
  BlockScales() = default;
  BlockScales(const MatmulProblem& p, const Device& device) {
    const int64_t along_k = (p.k + 127) / 128;
    x_ = Tensor::empty({along_k, p.m}, Format::f32, device);
    // What fills up a row is written here alone.
    w_ = Tensor::zeros({(p.n + 127) / 128, (along_k + 3) / 4 * 4}, Format::f32, device);
  }
  int64_t bytes() const { return x_.defined() ? x_.bytes() + w_.bytes() : 0; }

  const void* of_x(const Tensor& given, Stream& stream) const {  // [M, K/128]
    if (plain(given.transpose(0, 1))) return given.data();
    const PermuteProblem turn{given.shape(), {1, 0}, Format::f32};
    halftone::run(halftone::plan(turn, x_.device()), {given, x_}, stream);
    return x_.data();
  }
  const void* of_weight(const Tensor& given, Stream& stream) const {  // [N/128, K/128]
    if (plain(given) && given.size(1) == w_.size(1)) return given.data();
    const ElementwiseProblem copy{Elementwise::copy, given.shape(), Format::f32,
                                  Format::f32,       Format::f32,   Format::f32};
    halftone::run(halftone::plan(copy, w_.device()), {given, {}, {}, w_.slice(1, 0, given.size(1))},
                  stream);
    return w_.data();
  }

 private:
  Tensor x_, w_;
};

// The functions of the library, from where the loader finds it.
class Library {
 public:
#define HT_CUBLASLT_FUNCTIONS(each)                                                   \
  each(Create) each(Matmul) each(MatmulDescCreate) each(MatmulDescDestroy)            \
      each(MatmulDescSetAttribute) each(MatrixLayoutCreate) each(MatrixLayoutDestroy) \
          each(MatrixLayoutSetAttribute) each(MatmulPreferenceCreate)                 \
              each(MatmulPreferenceDestroy) each(MatmulPreferenceSetAttribute)        \
                  each(MatmulAlgoGetHeuristic) each(GetStatusString)
#define HT_DECLARE(function) decltype(&::cublasLt##function) function = nullptr;
  HT_CUBLASLT_FUNCTIONS(HT_DECLARE)
#undef HT_DECLARE
  std::string missing;  // why it is not there

  static const Library& get() {
    static const Library library;
    return library;
  }
  void check(cublasStatus_t status, const char* what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::device,
         "cuBLASLt: ", what, ": ", GetStatusString(status));
  }
  // One for each device, for as long as the process lives.
  cublasLtHandle_t handle(const Device& device) const {
    static std::mutex mutex;
    static std::array<cublasLtHandle_t, 64> handles{};
    const std::lock_guard lock(mutex);
    cublasLtHandle_t& own = handles.at(static_cast<size_t>(device.index()));
    const cuda::OnDevice on(device);
    if (own == nullptr) check(Create(&own), "creating a handle");
    return own;
  }

 private:
  Library() {
    const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      missing = concat("cuBLASLt is not there: ", dlerror());
      return;
    }
#define HT_LOAD(function)                                                                \
  function = reinterpret_cast<decltype(function)>(dlsym(library, "cublasLt" #function)); \
  if (function == nullptr) missing = concat(file, " has no cublasLt" #function);
    HT_CUBLASLT_FUNCTIONS(HT_LOAD)
#undef HT_LOAD
#undef HT_CUBLASLT_FUNCTIONS
  }
};

cudaDataType_t type_of(Format f) {
  switch (f) {
    case Format::f16:
      return CUDA_R_16F;
    case Format::bf16:
      return CUDA_R_16BF;
    case Format::fp8_e4m3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

// A cuBLASLt object and the function that ends it.
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

// cuBLASLt's matrices are column-major: W is its A and x its B, [K, N] and [K, M], and the result
// [N, M].
class Product : public CublasLtGemm {
 public:
  Product(const MatmulProblem& p, const Device& device)
      : lt_(Library::get()),
        handle_(lt_.handle(device)),
        problem_(p),
        device_(device),
        operation_(made<cublasLtMatmulDesc_t>(
            [&](auto* d) {
              return lt_.MatmulDescCreate(
                  d,
                  p.tf32 && p.x == Format::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                  CUDA_R_32F);
            },
            lt_.MatmulDescDestroy)),
        w_(p.weight_transposed ? matrix(p.weight, p.n, p.k) : matrix(p.weight, p.k, p.n)),
        x_(matrix(p.weight, p.k, p.m)),  // as x enters
        out_(matrix(p.out, p.n, p.m)) {
    const cublasOperation_t turn = p.weight_transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, turn);
    if (!p.scaled) return;
    set_scales(this, this);  // some, so that the algorithm is one that takes them
    if (p.scaling.block_rows == 1 && p.scaling.block_cols == 0) {
      set_modes(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    } else if (scaled_by_blocks(p)) {
      set_modes(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    }
  }

  // False: there is no algorithm.
  bool choose() {
    const auto preference =
        made<cublasLtMatmulPreference_t>(lt_.MatmulPreferenceCreate, lt_.MatmulPreferenceDestroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      lt_.check(lt_.MatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof value),
                "setting a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{32} << 20);
    // Neither parts of K that are added in the format of the result, nor in any order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const uint32_t sixteen = 16;
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(what, sixteen);
    }
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cuda::OnDevice on(device_);
    const cublasStatus_t status =
        lt_.MatmulAlgoGetHeuristic(handle_, operation_.get(), w_.get(), x_.get(), out_.get(),
                                   out_.get(), preference.get(), 1, &found, &count);
    // An older library may not know the scales: that is as good as none.
    const bool none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                      status == CUBLAS_STATUS_INVALID_VALUE ||
                      (status == CUBLAS_STATUS_SUCCESS && count == 0);
    if (none) return false;
    lt_.check(status, "asking for an algorithm");
    algorithm_ = found.algo;
    const auto bytes = static_cast<int64_t>(found.workspaceSize);
    if (bytes > 0) workspace_ = Tensor::empty({bytes}, Format::u8, device_);
    if (scaled_by_blocks(problem_)) blocks_ = BlockScales(problem_, device_);
    return true;
  }

  int64_t bytes() const override { return workspace_bytes() + blocks_.bytes(); }

  void run(const MatmulTensors& t, const Codes& codes, Stream& stream) const override {
    lead(w_.get(), t.weight), lead(out_.get(), t.out);
    if (codes.data == nullptr) lead(x_.get(), t.x);
    if (scaled_by_blocks(problem_)) {
      set_scales(blocks_.of_weight(t.weight.scales(), stream),
                 blocks_.of_x(codes.data == nullptr ? t.x.scales() : block_scales(codes), stream));
    } else if (problem_.scaled) {
      set_scales(t.weight.scales().data(),
                 codes.data == nullptr ? t.x.scales().data() : codes.scales);
    }
    const float one = 1, beta = problem_.residual ? 1 : 0;
    const Tensor& c = problem_.residual ? t.residual : t.out;
    const cuda::OnDevice on(device_);
    lt_.check(lt_.Matmul(handle_, operation_.get(), &one, t.weight.data(), w_.get(),
                         codes.data == nullptr ? t.x.data() : codes.data, x_.get(), &beta, c.data(),
                         out_.get(), t.out.data(), out_.get(), &algorithm_,
                         workspace_.defined() ? workspace_.data() : nullptr,
                         static_cast<size_t>(workspace_bytes()), cuda::native(stream)),
              "multiplying");
  }

 private:
  template <class T, class Make>
  Owned<T> made(Make make, cublasStatus_t (*destroy)(T)) const {
    T object = nullptr;
    lt_.check(make(&object), "describing a product");
    return Owned<T>(object, destroy);
  }
  Owned<cublasLtMatrixLayout_t> matrix(Format f, int64_t rows, int64_t columns) const {
    return made<cublasLtMatrixLayout_t>(
        [&](auto* layout) {
          return lt_.MatrixLayoutCreate(layout, type_of(f), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), rows);
        },
        lt_.MatrixLayoutDestroy);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) const {
    lt_.check(lt_.MatmulDescSetAttribute(operation_.get(), what, &value, sizeof value),
              "describing a product");
  }
  void set_scales(const void* w, const void* x) const {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, x);
  }
  void set_modes(int32_t w, int32_t x) const {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, w);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, x);
  }
  Tensor block_scales(const Codes& codes) const {
    return Tensor::view(const_cast<float*>(codes.scales), {problem_.m, (problem_.k + 127) / 128},
                        Format::f32, device_);
  }
  int64_t workspace_bytes() const { return workspace_.defined() ? workspace_.bytes() : 0; }
  // Elements from row to row.
  void lead(cublasLtMatrixLayout_t layout, const Tensor& t) const {
    const int64_t rows = t.size(0) <= 1 ? t.size(1) : t.stride(0);
    lt_.check(lt_.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &rows, sizeof rows),
              "describing a matrix");
  }

  const Library& lt_;
  cublasLtHandle_t handle_;
  MatmulProblem problem_;
  Device device_;
  Owned<cublasLtMatmulDesc_t> operation_;
  Owned<cublasLtMatrixLayout_t> w_, x_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
  Tensor workspace_;
  BlockScales blocks_;
};

}  // namespace

std::string cublaslt_missing() { return Library::get().missing; }

std::unique_ptr<CublasLtGemm> cublaslt_gemm(const MatmulProblem& p, const Device& device) {
  auto product = std::make_unique<Product>(p, device);
  if (!product->choose()) return nullptr;
  return product;
}

#else

std::string cublaslt_missing() { return "this build has no cuBLASLt"; }

std::unique_ptr<CublasLtGemm> cublaslt_gemm(const MatmulProblem&, const Device&) { return nullptr; }

#endif

}  // namespace halftone::dense
