// What a plan says of itself, without a device and without weights: what a caller gives and gets, and its steps.
// Thread-safe: all of it reads only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "runtime/package/manifest.h"

namespace zefuse::plan {
struct Plan;
}

namespace zefuse::package {

// An input or output as a caller must give it or will get it.
struct TensorInfo {
  std::string name;
  plan::DType dtype{};
  bool integer = false;                // a Python int: given as a tensor of one i64
  bool constant = false;               // what the program was traced with: may be left out, or a tensor of one number
  std::vector<int64_t> sizes;          // -1 where a call decides
  std::vector<int64_t> strides;        // of inputs, in elements; -1 where it follows from such a size
  std::vector<std::string> size_text;  // "32", "s0", "s0 * 2": equal letters are equal sizes
};

// A plan without a device, for reports. damaged: it fails its checks or is not the manifest's.
struct PlanDescription {
  std::vector<TensorInfo> inputs, outputs;  // the user's
  size_t kernels = 0, library_calls = 0;    // steps
  std::vector<std::string> aten;            // the operators that it calls
};
ZEFUSE_API Result<PlanDescription> describePlan(std::span<const std::byte> plan, const Manifest& manifest,
                                                const PlanEntry& entry);
ZEFUSE_API Result<PlanDescription> describeSteps(std::span<const std::byte> plan);  // without inputs and outputs

ZEFUSE_API std::string text(const TensorInfo& info);  // "f32[s0, 384]"

// What the plan's own tables say of the user's tensors. False: the manifest and the plan do not belong together.
bool describe(const Manifest& manifest, const PlanEntry& entry, const plan::Plan& plan, std::vector<TensorInfo>& inputs,
              std::vector<TensorInfo>& outputs);
// What steps write in place must be what the package says it changes: its own copy of a weight, or a tensor of the
// caller's that is no longer read only.
bool writesOnlyWhatItChanges(const PlanEntry& entry, const plan::Plan& plan);

}  // namespace zefuse::package
