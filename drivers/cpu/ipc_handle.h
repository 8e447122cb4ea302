// IPC handles: a memory file of one process, and which part of it, in 64 bytes that another process opens.
//
// A handle comes from wherever the application says, so nothing in it is trusted: what it names must be a sealed memory
// file of the right identity, and the part must lie within it. The file is found in two ways: by the descriptor in the
// handle's first four bytes, where the application sent it along (SCM_RIGHTS) and wrote its new number there; else
// through /proc, which lets a user's processes at each other's.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>

#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

enum class IpcKind : uint32_t { memory = 1, event_pool = 2 };

struct IpcPart {
  uint64_t offset;  // a whole number of pages
  uint64_t size;    // in bytes
  uint32_t count;   // events of a pool
  uint32_t flags;   // of the pool
};

// A memory file that may grow but not shrink, so that who maps a part never finds it gone. -1: errno says why.
int createSharedFile(const char* name);

// `file` is a descriptor of this process; the handle is good as long as it stays open.
void makeIpcHandle(IpcKind kind, int file, const IpcPart& part, char (&handle)[ZE_MAX_IPC_HANDLE_SIZE]);

// On success a descriptor that the caller closes. Refuses with INVALID_ARGUMENT.
ze_result_t openIpcHandle(const char* call, IpcKind kind, const char (&handle)[ZE_MAX_IPC_HANDLE_SIZE], int& file,
                          IpcPart& part);

// Whether the bytes are a handle of ours, without opening it; for the calls that give one back. Refuses likewise.
ze_result_t checkIpcHandle(const char* call, IpcKind kind, const char (&handle)[ZE_MAX_IPC_HANDLE_SIZE]);

}  // namespace zefuse::cpu
