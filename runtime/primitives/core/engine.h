// What every oneDNN primitive of the runtime shares: engine, stream, dtypes, exceptions.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "common/base/status.h"
#include "runtime/primitives/core/tensor_desc.h"

namespace zefuse::primitives {

// One CPU engine for the process; never destroyed, so that caches may outlive static destruction.
const dnnl::engine& engine();
// The calling thread's stream: oneDNN executes on the caller, so a stream holds no queue.
dnnl::stream& stream();

// f32, bf16, f16 and codes only: the caller has checked.
dnnl::memory::data_type dataType(plan::DType dtype);
dnnl::memory::desc memoryDesc(const TensorDesc& desc);

// For use in a catch (...): the current exception as a Status whose message begins with `what`.
Status currentError(const std::string& what);

// Runs `body`, which returns a Status; oneDNN's and the library's exceptions become one that begins with `what`.
template <typename Body> Status guarded(const std::string& what, const Body& body) {
  try {
    return body();
  } catch (...) {
    return currentError(what);
  }
}

}  // namespace zefuse::primitives
