#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/message.h"

namespace halftone {

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  return std::shared_ptr<const MappedFile>(new MappedFile(path));
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail(ErrorCode::io, path_, " cannot be opened: ", std::strerror(errno));
  struct stat info = {};
  const bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) {
    close(file);
    fail(ErrorCode::io, path_, " is not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {  // an empty mapping is an error of the system
    void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    if (memory == MAP_FAILED) {
      close(file);
      fail(ErrorCode::io, path_, " (", size_, " bytes) cannot be mapped: ", std::strerror(error));
    }
    data_ = static_cast<const char*>(memory);
    watched_ = watch_mapping(data_, size_);
  }
  close(file);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(watched_);
  munmap(const_cast<char*>(data_), size_);
}

}  // namespace halftone
