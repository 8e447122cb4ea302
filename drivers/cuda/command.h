// Commands: what a list records, and what goes to a stream.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "drivers/cuda/event.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/product.h"

namespace zefuse::cuda {

// Arguments, group size and offset are those of the time of recording.
struct LaunchCommand {
  Ref<Module> module;
  CUfunction function;
  const std::string* name;  // of *module
  uint32_t groups[3], items[3];
  Parameters parameters;
  bool cooperative;
};

struct ProductCommand {
  Ref<Product> product;
  ze_extension::ProductOperands operands;
};

// `on_host`: from memory of the host to memory of the host, both USM. CUDA makes the caller do such a copy, after all
// that comes before it in the stream; so the stream calls a function of the host instead.
struct CopyCommand {
  void* destination;
  const void* source;
  size_t bytes;
  bool on_host = false;
};

// `pattern` is repeated; a shorter rest at the end gets the pattern's beginning.
struct FillCommand {
  void* destination;
  size_t bytes, pattern_bytes;
  std::byte pattern[128];
};

struct CopyRegionCommand {
  std::byte* destination;  // at the region's origin
  const std::byte* source;
  size_t width, height, depth;
  size_t destination_pitch, destination_slice_pitch, source_pitch, source_slice_pitch;
  bool on_host = false;
};

struct BarrierCommand {};  // waits and signals only: a stream is in order

struct ResetEventCommand {
  Ref<Event> event;
};

struct WriteTimestampCommand {
  uint64_t* destination;  // of USM
};

struct QueryTimestampsCommand {
  std::vector<Ref<Event>> events;
  std::byte* destination;
  std::vector<size_t> offsets;
  bool on_host = false;
};

using Operation = std::variant<LaunchCommand, CopyCommand, FillCommand, CopyRegionCommand, BarrierCommand,
                               ResetEventCommand, WriteTimestampCommand, QueryTimestampsCommand, ProductCommand>;

// The operation's `on_host`; false of one that copies nothing.
inline bool runsOnHost(const Operation& operation) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.on_host; })
          return each.on_host;
        else
          return false;
      },
      operation);
}

struct Command {
  Operation operation;
  std::vector<Ref<Event>> waits;
  Ref<Event> signal;
};

using CommandSequence = std::vector<Command>;

}  // namespace zefuse::cuda
