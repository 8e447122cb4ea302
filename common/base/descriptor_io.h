// Whole transfers on a file descriptor or socket: a system call may move a part, or be interrupted.
#pragma once

#include <cstddef>

namespace zefuse {

// Moves `size` bytes. False when the file ends before or a call fails (errno; EAGAIN when a socket's time-out passed).
// Blocks; thread-safe as far as the descriptor is.
bool readAll(int file, void* data, size_t size);
bool writeAll(int file, const void* data, size_t size);
// For a socket whose other end may be gone: an error (EPIPE), no signal.
bool sendAll(int socket, const void* data, size_t size);

}  // namespace zefuse
