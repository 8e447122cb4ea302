// Which launches of a plan must wait for earlier ones: Level Zero orders nothing by itself, and a barrier lets the
// device run dry.
#pragma once

#include "runtime/executor/binding.h"

namespace zefuse::executor {

// By step, for DeviceLayout::waits, from where buffers lie in the device's block: memory that one step has done with
// may be another's. Parameters are only read. Steps that use scratch memory use the same.
std::vector<uint8_t> launchesThatWait(const plan::Program& program, const DeviceLayout& layout,
                                      std::span<const size_t> buffer_bytes);

}  // namespace zefuse::executor
