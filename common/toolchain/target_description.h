// A target as the schedules see it: no schedule, pass or importer asks which kind of device it is, but for the property
// that the question is about. A new device is a row of targets.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/api.h"
#include "common/toolchain/targets.h"

namespace zefuse {

// What its schedules take. What is false here is refused, or done in another way before they are asked.
struct SupportedForms {
  bool batches = false;   // one launch for the same work on several sets of tensors
  bool parts = false;     // one launch of several kernels side by side
  bool in_place = false;  // outputs in the memory of inputs
  // All matrix products, convolutions and attention are kernels. False: the host's library takes them, and only
  // products of types that it has no code for are kernels.
  bool products = false;
};

// Constants come from named factories, so that equal targets make equal code.
struct ZEFUSE_API TargetDescription {
  std::string name;      // "cpu", "dg2-g11": also the plan's and the cache's name of it
  bool on_host = false;  // kernels run on the host itself and reach all of its memory: nothing is copied for them

  // How work is spread. A group of one work-item walks over its share with explicit vectors and all stages of a row are
  // its own; in a larger one work-items are the lanes, and share local memory and barriers.
  int max_group_size = 1;      // work-items
  int subgroup_size = 1;       // of kernels that reduce or tile, where no matrix engine wants another
  int vector_width = 16;       // most lanes of an explicit vector (SPIR-V allows 2, 3, 4, 8, 16)
  int access_bytes = 64;       // of one work-item's load or store, at most
  int vector_alignment = 4;    // bytes: a work-item's vector access at a multiple of it is not split
  int index_bits = 64;         // of the widest integers that it divides without a call
  int64_t engines = 1;         // what a group stays on, of the largest variant
  int64_t resident_items = 1;  // work-items that the largest variant runs at a time

  // Memory beside the buffers.
  int64_t private_row_bytes = 0;  // a row value up to this size may be kept instead of recomputed; 0: none
  int64_t local_memory_bytes = 0;
  int64_t accumulator_bytes = 0;         // of a hardware thread's registers, that a product may fill
  int64_t engine_accumulator_bytes = 0;  // the same on the matrix engine
  // Bytes: every pointer that a launch is given is a multiple of it. On the host those are the caller's own tensors,
  // which may begin anywhere; of a GPU the executor sees to it (runtime/executor/device_side).
  int64_t buffer_alignment = 1;

  NativeOperations native;
  MatrixEngine matrix;
  std::string product_library;  // of the device's vendor, that takes large matrix products; empty: there is none
  SupportedForms supports;

  bool hasWorkGroups() const { return max_group_size > 1; }

  static TargetDescription cpu();
  static TargetDescription of(const GpuTarget& target);
  // "cpu", or a product or alias of gpuTargets(); none for another name.
  static std::optional<TargetDescription> named(std::string_view name);
};

}  // namespace zefuse
