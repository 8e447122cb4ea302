// A package ready to be called on one device, without Python and torch: the plans that fit the device, bound to the
// package's weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "runtime/executor/executable.h"
#include "runtime/package/manifest.h"
#include "runtime/package/plan_description.h"

namespace zefuse::ze {
struct Device;
}

namespace zefuse::package {

struct ModelOptions {
  std::string device = "cpu";          // "cpu", "gpu:N"
  std::string cache_dir;               // for native code that the package has none of; empty: none is kept
  int build_threads = 0;               // 0: one per core
  JitConsent jit = JitConsent::never;  // this and the rest: as ExecutableOptions'
  int jit_timeout_s = 120;
  std::function<bool(const std::string& device, const std::string& kernel, size_t number, size_t count)> jit_progress;
  CancelCheck cancelled;        // asked before each plan too
  bool device_tensors = false;  // calls will bring tensors that lie on the GPU (ExecutableOptions::in_streams)
};

// Memory of the model's GPU for a result, from the caller; it goes when nobody has it any more.
using AllocateResult = std::function<Result<std::shared_ptr<std::byte>>(size_t bytes)>;

// Where the results of a call lie, the stream that its work goes into, and who allocates results on the device.
struct CallOn {
  CallPlace place;
  AllocateResult allocate;  // nothing: by the device's driver, and whoever frees it waits for the device
};

// A result of a call: memory of its own, row-major but where the plan says otherwise.
struct Tensor {
  std::shared_ptr<std::byte> storage;  // null for None
  Place place = Place::host;
  void* data = nullptr;  // first element, inside storage
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;
};

// Thread-safe. Calls run at the same time, except those of a model that changes its own buffers: they take turns.
class Model {
public:
  // Takes the plans compiled for `options.device`. Errors: not_found (device; the message names what the package
  // holds), unsupported (a plan that calls ATen, each operator named), damaged, cancelled.
  static Result<std::unique_ptr<Model>> load(std::shared_ptr<const Reader> reader, const ModelOptions& options);
  ~Model();

  // Of the first set of shapes; all sets have the same names, dtypes and numbers of dimensions.
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;
  const Manifest& manifest() const;

  // What the package carries under this name. not_found: the names that it has.
  Result<std::span<const std::byte>> file(std::string_view name) const;

  // One tensor per input, borrowed for the call; an output that the model makes of an input's memory is a copy. The
  // first call checks the weights' hash (WeightsCheck::at_first_use) before it computes anything. With a stream: as
  // Executable::call. A number, given or returned, lies on the host.
  Result<std::vector<Tensor>> call(std::span<const TensorRef> inputs, const CallOn& on = {});
  // Waits for what calls have queued in streams, and tells the first check of theirs that failed and was not told yet.
  Status synchronize();
  // The GPU that the model is on; null: the CPU. It lives as long as the model.
  const ze::Device* gpu() const;
  // A tensor with the same elements, row-major, in memory of its own at `place`, behind what calls have queued.
  Result<Tensor> copyTo(Place place, const TensorRef& tensor);
  // What the first call would do besides computing: check the hash of the weights.
  Status checkWeights() const;

private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  Status checkCall(std::span<const TensorRef> given, const CallOn& on) const;
  std::unique_ptr<Impl> impl_;
};

// The manifest's plans for a device, in its order. not_found: what the package holds instead, or a GPU that nobody
// knows; unsupported: a package of torch.compile's graphs alone.
ZEFUSE_API Result<std::vector<const PlanEntry*>> plansFor(const Reader& reader, const Manifest& manifest,
                                                          const std::string& device);

// The sections' names of native code for a kernel module of `target`, best first, on this host.
ZEFUSE_API std::vector<std::string> nativeTargets(std::string_view target);

}  // namespace zefuse::package
