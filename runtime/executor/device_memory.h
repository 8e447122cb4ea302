// Memory of a GPU for tensors of callers that have no allocator there, and copies between them and the host's.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/executor/device_context.h"
#include "runtime/executor/executable.h"

namespace zefuse::executor {

// Aligned to 64 bytes. It may outlive every graph, but not the process' last use of the device; whoever gives it back
// waits for what calls have queued in streams. out_of_memory: after what nobody uses was given back.
Result<std::shared_ptr<std::byte>> allocateOnDevice(const std::shared_ptr<DeviceContext>& device, size_t bytes);

// One end of a copy: the first element, and strides in elements.
struct CopyEnd {
  void* data = nullptr;
  Place place = Place::host;
  std::span<const int64_t> strides;
};

// Copies a tensor, element by element, to another of the same sizes that does not overlap it. `device`: where they lie
// that do not lie on the host; null where both do. Both on the device, alike and dense, it is a copy there, queued in
// `stream` where there is one. All else is done when this returns, behind what calls have queued: between memory that
// differs in strides by way of the host, and what lies between the elements of a tensor on the device is then written
// back as it was. Errors: device; deadline after a minute; out_of_memory.
Status copyTensor(DeviceContext* device, ze::Stream stream, const CopyEnd& to, const CopyEnd& from,
                  std::span<const int64_t> sizes, size_t element_size);

}  // namespace zefuse::executor
