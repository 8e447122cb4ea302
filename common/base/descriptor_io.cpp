#include "common/base/descriptor_io.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace zefuse {
namespace {

template <typename Byte, typename Transfer> bool transferAll(Byte* at, size_t size, Transfer transfer) {
  while (size) {
    const ssize_t part = transfer(at, size);
    if (part < 0 && errno == EINTR)
      continue;
    if (part <= 0)
      return false;
    at += part;
    size -= size_t(part);
  }
  return true;
}

}  // namespace

bool readAll(int file, void* data, size_t size) {
  return transferAll(static_cast<char*>(data), size, [&](char* at, size_t left) { return read(file, at, left); });
}

bool writeAll(int file, const void* data, size_t size) {
  return transferAll(static_cast<const char*>(data), size,
                     [&](const char* at, size_t left) { return write(file, at, left); });
}

bool sendAll(int socket, const void* data, size_t size) {
  return transferAll(static_cast<const char*>(data), size,
                     [&](const char* at, size_t left) { return send(socket, at, left, MSG_NOSIGNAL); });
}

}  // namespace zefuse
