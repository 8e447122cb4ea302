// The boundary to ATen for operators without a lowering. The executor sees only this header; the implementation,
// libzefuse_aten.so, links torch and is loaded when a plan needs it.
//
// Threads: every call is thread-safe. The GIL need not be held; Python kernels behind the dispatcher take it
// themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor/executable.h"

namespace zefuse::plan {
enum class ArgumentKind : uint8_t;
}

namespace zefuse {

struct AtenArgument {
  plan::ArgumentKind kind{};
  TensorRef tensor;     // tensor: `owner`, when set, is an at::Tensor* whose storage holds data
  int64_t integer = 0;  // integer, boolean, dtype, layout, memory_format
  double real = 0;
  std::string text;                 // text, device
  std::vector<AtenArgument> items;  // list
};

// A result. `owner` is a new at::Tensor* that the receiver must hand to AtenBridge::release or to the caller of the
// plan.
struct AtenResult {
  bool is_tensor = false;
  void* owner = nullptr;
  plan::DType dtype{};
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  int64_t integer = 0;  // for a result that is an int or SymInt
};

class AtenOp {
public:
  virtual ~AtenOp() = default;
  // Calls the boxed kernel for the CPU dispatch keys (below autograd). A result that shares storage with a TensorRef
  // that has no owner (arena memory) is cloned, keeping its strides. C++ exceptions become a Status that keeps torch's
  // message; index_error for c10::IndexError.
  virtual Result<std::vector<AtenResult>> call(std::span<const AtenArgument> arguments) const = 0;
};

class AtenBridge {
public:
  virtual ~AtenBridge() = default;
  virtual Result<std::unique_ptr<AtenOp>> resolve(const std::string& op, const std::string& overload) = 0;
  virtual void release(void* owner) = 0;
};

// Exported by libzefuse_aten.so with C linkage under the name "zefuse_aten_bridge"; a process-wide object.
using AtenBridgeFactory = AtenBridge* (*)();

}  // namespace zefuse
