#include "engine/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/message.h"

namespace halftone {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};  // several writers in one process
  partial_ = concat(path_, ".partial-", getpid(), "-", counter++);
  file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) failed("created");
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(partial_.c_str());
}

void AtomicFile::failed(const char* what) const {
  fail(ErrorCode::io, path_, " cannot be ", what, ": ", std::strerror(errno));
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) failed("written");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  // The data must reach the disk before the name does.
  if (fsync(file_) != 0) failed("written");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) failed("renamed into place");
  close(file_);
  file_ = -1;
}

}  // namespace halftone
