// A program with its symbols bound: every size known and checked, the arena placed, library calls
// prepared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/plan/expr.h"
#include "common/plan/program.h"
#include "common/ze_extension/convolution.h"
#include "runtime/primitives/core/primitive.h"

namespace zefuse::executor {

struct BoundValue {
  uint32_t buffer = 0;
  plan::DType dtype{};
  int64_t offset = 0;  // elements
  size_t offset_bytes = 0;
  std::span<const int64_t> sizes, strides;
  int64_t elements = 0;
};

struct BoundInput {
  std::span<const int64_t> sizes, strides;
};

struct BoundLaunch {
  uint32_t groups = 0;  // 0: nothing to do
                        // What a library of the device's vendor is asked for instead, one of the two at most; nothing:
                        // the kernel runs.
  std::optional<ze_extension::ProductDesc> product;
  std::optional<ze_extension::ConvolutionDesc> convolution;
  std::vector<int64_t> symbols;

  bool asksALibrary() const { return product || convolution; }
};

// A Matmul, Convolution or Attention step.
struct BoundLibraryCall {
  std::shared_ptr<const primitives::Primitive> primitive;
  // When the primitive packs b (a convolution's weight): the parameter behind it, or the buffer of what is kept of
  // parameters.
  int32_t packed_input = -1, packed_kept = -1;
};

// The device's side of a plan for a GPU: one block that holds all buffers but parameters, and one on the host through
// which what is copied passes.
struct DeviceLayout {
  std::vector<size_t> offset, staging_offset;  // by buffer
  size_t bytes = 0, staging_bytes = 0;
  size_t scratch_bytes = 0;
  // By step: whether its launch must wait for those since the last that waited. The others touch nothing that these
  // write, and write nothing that these touch.
  std::vector<uint8_t> waits;
};

// Where what is made of parameters alone lies (Program::kept): by buffer, in a block of its own, which is the same in
// all bindings; of no bytes where it would take much more memory than those parameters. It has room among the others
// too, for calls that keep nothing.
struct KeptLayout {
  std::vector<size_t> offset;
  size_t bytes = 0;
};

// Immutable; shared by the frames that use it.
struct Binding {
  std::vector<int64_t> symbols;
  int threads = 1;
  plan::ExprValues exprs;
  std::vector<int64_t> pool;  // sizes and strides of values and inputs
  std::vector<BoundInput> inputs;
  std::vector<BoundValue> values;
  std::vector<size_t> buffer_bytes;  // arena: declared; input, output: as far as values reach
  std::vector<size_t> arena_offset;
  size_t arena_bytes = 0;
  size_t scratch_bytes = 0;
  DeviceLayout device;
  KeptLayout kept;
  std::vector<BoundLaunch> launches;            // by step; only launch steps are filled
  std::vector<BoundLibraryCall> library_calls;  // likewise

  // invalid_argument when an input's size makes no sense for the plan; damaged when a value leaves
  // its buffer.
  static Result<std::shared_ptr<const Binding>> make(const plan::Program& program, std::span<const int64_t> symbols,
                                                     int threads);
};

// Elements from the first to one past the last that sizes and strides reach; nothing on overflow or
// negative values.
std::optional<int64_t> reach(std::span<const int64_t> sizes, std::span<const int64_t> strides);

}  // namespace zefuse::executor
