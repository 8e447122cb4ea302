#include "drivers/cpu/ipc_handle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "drivers/cpu/pages.h"

namespace zefuse::cpu {
namespace {

constexpr uint32_t kMagic = magicOf("ZIPC");

struct Fields {
  int32_t descriptor;  // of the process that made the handle, or of the one that received it
  uint32_t magic;
  uint32_t kind;
  uint32_t process;
  uint64_t device, inode;  // of the file
  IpcPart part;
  uint32_t sum;  // of all but the descriptor: damage is told from a file that is gone
  uint32_t reserved;
};
static_assert(sizeof(Fields) == ZE_MAX_IPC_HANDLE_SIZE);

uint32_t sumOf(Fields fields) {
  fields.descriptor = 0;
  fields.sum = 0;
  unsigned char bytes[sizeof fields];
  std::memcpy(bytes, &fields, sizeof bytes);
  uint32_t sum = 2166136261u;  // FNV-1a
  for (unsigned char byte : bytes)
    sum = (sum ^ byte) * 16777619u;
  return sum;
}

bool isFile(const struct stat& found, const Fields& fields) {
  return S_ISREG(found.st_mode) && found.st_dev == fields.device && found.st_ino == fields.inode;
}

// -1: nowhere.
int findFile(const Fields& fields) {
  struct stat found;
  if (fields.descriptor >= 0 && fstat(fields.descriptor, &found) == 0 && isFile(found, fields))
    return fcntl(fields.descriptor, F_DUPFD_CLOEXEC, 3);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", fields.process, fields.descriptor);
  // Looked at before it is opened: opening a device or a pipe may do things.
  if (stat(path, &found) != 0 || !isFile(found, fields))
    return -1;
  return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

// Whether the part lies within what the file is now, and the file cannot shrink.
bool holds(int file, const Fields& fields) {
  struct stat found;
  const int seals = fcntl(file, F_GET_SEALS);
  return fstat(file, &found) == 0 && isFile(found, fields) && seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
         fields.part.size > 0 && fields.part.offset % pageSize() == 0 &&
         fields.part.size <= static_cast<uint64_t>(found.st_size) &&
         fields.part.offset <= static_cast<uint64_t>(found.st_size) - fields.part.size;
}

ze_result_t read(const char* call, IpcKind kind, const char (&handle)[ZE_MAX_IPC_HANDLE_SIZE], Fields& fields) {
  std::memcpy(&fields, handle, sizeof fields);
  if (fields.magic != kMagic || fields.kind != static_cast<uint32_t>(kind) || fields.reserved != 0 ||
      fields.sum != sumOf(fields))
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: not an IPC handle of this driver for %s", call,
                  kind == IpcKind::memory ? "memory" : "an event pool");
  return ZE_RESULT_SUCCESS;
}

}  // namespace

int createSharedFile(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    close(file);
    return -1;
  }
  return file;
}

void makeIpcHandle(IpcKind kind, int file, const IpcPart& part, char (&handle)[ZE_MAX_IPC_HANDLE_SIZE]) {
  struct stat found = {};
  fstat(file, &found);
  Fields fields = {
      file, kMagic, static_cast<uint32_t>(kind), static_cast<uint32_t>(getpid()), found.st_dev, found.st_ino, part,
      0,    0};
  fields.sum = sumOf(fields);
  std::memcpy(handle, &fields, sizeof fields);
}

ze_result_t checkIpcHandle(const char* call, IpcKind kind, const char (&handle)[ZE_MAX_IPC_HANDLE_SIZE]) {
  Fields fields;
  return read(call, kind, handle, fields);
}

ze_result_t openIpcHandle(const char* call, IpcKind kind, const char (&handle)[ZE_MAX_IPC_HANDLE_SIZE], int& file,
                          IpcPart& part) {
  Fields fields;
  if (ze_result_t result = read(call, kind, handle, fields))
    return result;
  file = findFile(fields);
  if (file < 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "%s: the file of process %u is not found: it is gone, or that process is another user's, or in "
                  "another container; then send its descriptor along, and write its number to the handle's first 4 "
                  "bytes",
                  call, fields.process);
  if (!holds(file, fields)) {
    close(file);
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the handle names %llu bytes at %llu, which its file lacks",
                  call, static_cast<unsigned long long>(fields.part.size),
                  static_cast<unsigned long long>(fields.part.offset));
  }
  part = fields.part;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
