// Device memory from a pool of our own that keeps what it has, and page-locked host memory.
//
// Allocations and releases are in the order of the device's legacy default stream: streams made by
// make_stream wait for it and it for them, so memory released while kernels still use it is reused
// only after they have ended, with no bookkeeping and no waiting on the host.
#include <mutex>
#include <vector>

#include "base/backend.h"
#include "base/cuda/api.h"

namespace halftone::cuda {

namespace {

cudaMemPool_t pool_of(int index) {
  static std::mutex mutex;
  static std::vector<cudaMemPool_t> pools;
  const std::lock_guard lock(mutex);
  if (pools.size() <= static_cast<size_t>(index)) pools.resize(static_cast<size_t>(index) + 1);
  cudaMemPool_t& pool = pools[static_cast<size_t>(index)];
  if (pool != nullptr) return pool;
  cudaMemPoolProps how{};
  how.allocType = cudaMemAllocationTypePinned;
  how.location.type = cudaMemLocationTypeDevice;
  how.location.id = index;
  check(cudaMemPoolCreate(&pool, &how), "making the memory pool of cuda:", index);
  uint64_t keep = UINT64_MAX;  // give nothing back before the process is short of memory
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "configuring the memory pool of cuda:", index);
  return pool;
}

}  // namespace

DeviceMemory memory(const Device& device) {
  const OnDevice scope(device);
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for the memory of ", device.name());
  const cudaMemPool_t pool = pool_of(device.index());
  uint64_t reserved = 0, used = 0;
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
        "asking for the memory of ", device.name());
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used),
        "asking for the memory of ", device.name());
  return {static_cast<int64_t>(total), static_cast<int64_t>(available + reserved - used),
          static_cast<int64_t>(used)};
}

void* allocate(const Device& device, size_t bytes) {
  if (capturing) {
    fail(ErrorCode::invalid_argument, bytes, " bytes were to be allocated on ", device.name(),
         " during the capture of a graph; allocate before it");
  }
  const OnDevice scope(device);
  const cudaMemPool_t pool = pool_of(device.index());
  const size_t size = bytes == 0 ? 1 : bytes;
  void* data = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool, cudaStreamLegacy);
  if (error == cudaErrorMemoryAllocation) {
    // Blocks of other sizes may lie unused: give them back and try again.
    cudaGetLastError();
    check(cudaDeviceSynchronize(), "waiting for ", device.name());
    check(cudaMemPoolTrimTo(pool, 0), "emptying the memory pool of ", device.name());
    error = cudaMallocFromPoolAsync(&data, size, pool, cudaStreamLegacy);
  }
  if (error == cudaErrorMemoryAllocation) {
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    check(error, bytes, " bytes are needed on ", device.name(), ", where ", available, " of ",
          total, " are free");
  }
  check(error, "allocating ", bytes, " bytes on ", device.name());
  return data;
}

void deallocate(const Device& device, void* data, size_t) noexcept {
  int before = 0;
  // Nothing can be reported from here: a broken context reports itself at the next call.
  if (cudaGetDevice(&before) != cudaSuccess) return;
  if (before != device.index()) cudaSetDevice(device.index());
  if (cudaFreeAsync(data, cudaStreamLegacy) != cudaSuccess) cudaGetLastError();
  if (before != device.index()) cudaSetDevice(before);
}

void* allocate_pinned(size_t bytes) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes == 0 ? 1 : bytes, cudaHostAllocPortable), "page-locking ", bytes,
        " bytes");
  return data;
}

void deallocate_pinned(void* data) noexcept {
  if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
}

void fill(const Device& device, void* to, int byte, size_t bytes, Stream* stream) {
  const OnDevice scope(device);
  const cudaStream_t order = stream != nullptr ? native(*stream) : cudaStreamLegacy;
  check(cudaMemsetAsync(to, byte, bytes, order), "filling ", bytes, " bytes on ", device.name());
  if (stream == nullptr) {
    check(cudaStreamSynchronize(order), "filling ", bytes, " bytes on ", device.name());
  }
}

void copy(const Device& to_device, void* to, const Device& from_device, const void* from,
          size_t bytes, Stream* stream) {
  const bool to_gpu = to_device.kind() == Device::Kind::cuda;
  const bool from_gpu = from_device.kind() == Device::Kind::cuda;
  const bool peers = to_gpu && from_gpu && to_device.index() != from_device.index();
  const Device& where = stream != nullptr ? stream->device() : to_gpu ? to_device : from_device;
  const auto tried = [&] {
    return concat("copying ", bytes, " bytes from ", from_device.name(), " to ", to_device.name());
  };
  if (peers && stream == nullptr) {
    const OnDevice source(from_device);
    check(cudaStreamSynchronize(cudaStreamLegacy), tried());
  }
  const OnDevice scope(where);
  const cudaStream_t order = stream != nullptr ? native(*stream) : cudaStreamLegacy;
  const cudaError_t error =
      peers ? cudaMemcpyPeerAsync(to, to_device.index(), from, from_device.index(), bytes, order)
            : cudaMemcpyAsync(to, from, bytes,
                              to_gpu && from_gpu ? cudaMemcpyDeviceToDevice
                              : to_gpu           ? cudaMemcpyHostToDevice
                                                 : cudaMemcpyDeviceToHost,
                              order);
  if (error != cudaSuccess) check(error, tried());
  if (stream == nullptr) {
    const cudaError_t ended = cudaStreamSynchronize(order);
    if (ended != cudaSuccess) check(ended, tried());
  }
}

}  // namespace halftone::cuda
