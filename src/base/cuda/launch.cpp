// Starting a kernel on a CUDA device.
#include <map>
#include <mutex>

#include "base/cuda/load_kernel.h"
#include "base/cuda/stream.h"
#include "base/launch.h"

namespace halftone::cuda {

namespace {

std::string describe(const KernelImage& kernel, const LaunchShape& s, const Device& device) {
  const auto dim = [](const Dim3& d) { return concat(d.x, "x", d.y, "x", d.z); };
  return concat("kernel ", kernel.name, " (grid ", dim(s.grid), ", block ", dim(s.block),
                ", cluster ", dim(s.cluster), ", ", s.shared_bytes, " bytes of shared memory) on ",
                device.name());
}

// Above 48 KB the function must be told once how much dynamic shared memory it may be given; it is
// told of the device's whole limit, so that later launches of other sizes need nothing.
void allow_shared_memory(const KernelImage& kernel, const LaunchShape& shape,
                         const Device& device) {
  if (shape.shared_bytes <= 48 * 1024) return;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, uint32_t> allowed;
  const std::lock_guard lock(mutex);
  uint32_t& limit = allowed[{kernel.gpu_entry, device.index()}];
  if (shape.shared_bytes <= limit) return;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel.gpu_entry), "looking up ",
        describe(kernel, shape, device));
  const int most =
      halftone::properties(device).shared_per_block - static_cast<int>(attributes.sharedSizeBytes);
  check(cudaFuncSetAttribute(kernel.gpu_entry, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
        "allowing ", most, " bytes of shared memory to ", describe(kernel, shape, device));
  limit = static_cast<uint32_t>(most);
}

void expect_entry(const KernelImage& kernel) {
  if (kernel.gpu_entry == nullptr) {
#if HALFTONE_CUDA_SAMPLE
    constexpr const char* kWhy =
        ", which has one instance of each kernel template: configure with HALFTONE_CUDA_SAMPLE=OFF";
#else
    constexpr const char* kWhy = "";
#endif
    fail(ErrorCode::unsupported, "kernel ", kernel.name, " was not compiled for GPUs in this build",
         kWhy);
  }
}

void check_image(cudaError_t error, const KernelImage& kernel, const Device& device) {
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) return;
  cudaGetLastError();
  fail(ErrorCode::unsupported, "kernel ", kernel.name, " was not compiled for ",
       name(device.arch()), ", which ", device.name(), " is");
}

}  // namespace

void load(const KernelImage& kernel, const Device& device) {
  expect_entry(kernel);
  const OnDevice scope(device);
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.gpu_entry);
  check_image(error, kernel, device);
  check(error, "loading kernel ", kernel.name, " on ", device.name());
}

void launch(const KernelImage& kernel, const LaunchShape& shape, const void* params,
            Stream& stream) {
  const Device& device = stream.device();
  expect_entry(kernel);
  const OnDevice scope(device);
  allow_shared_memory(kernel, shape, device);

  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = {shape.grid.x, shape.grid.y, shape.grid.z};
  config.blockDim = {shape.block.x, shape.block.y, shape.block.z};
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = native(stream);
  config.attrs = attributes;
  if (shape.cluster.count() > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = shape.cluster.x;
    a.val.clusterDim.y = shape.cluster.y;
    a.val.clusterDim.z = shape.cluster.z;
  }
  if (shape.programmatic) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  void* arguments[] = {const_cast<void*>(params)};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.gpu_entry, arguments);
  static_cast<CudaStream*>(stream.state())->last_kernel = kernel.name;
  if (error == cudaSuccess) return;
  check_image(error, kernel, device);
  check(error, "starting ", describe(kernel, shape, device));
}

}  // namespace halftone::cuda
