// What every oneDNN primitive of the runtime shares: engine, stream, dtypes, exceptions.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <string>

#include "runtime/onednn/matmul.h"

namespace zefuse::onednn {

// One CPU engine for the process; never destroyed, so that caches may outlive static destruction.
const dnnl::engine& engine();
// The calling thread's stream: oneDNN executes on the caller, so a stream holds no queue.
dnnl::stream& stream();

// f32 and bf16 only: the caller has checked.
dnnl::memory::data_type dataType(plan::DType dtype);
dnnl::memory::desc memoryDesc(const TensorDesc& desc);

// Runs `body`; turns oneDNN's and the library's exceptions into a Status whose message begins with
// `what`.
Status guarded(const std::string& what, const std::function<Status()>& body);

} // namespace zefuse::onednn
