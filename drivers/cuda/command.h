// Commands: what a list records, and what goes to a stream.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "drivers/cuda/convolution.h"
#include "drivers/cuda/event.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/product.h"
#include "drivers/level_zero/commands.h"

namespace zefuse::cuda {

// Arguments, group size and offset are those of the time of recording.
struct LaunchCommand {
  Ref<Module> module;
  CUfunction function;
  const char* name;  // keptName
  LaunchShape shape;
  Parameters parameters;
};

struct ProductCommand {
  Ref<Product> product;
  ze_extension::ProductOperands operands;
};

struct ConvolutionCommand {
  Ref<Convolution> convolution;
  ze_extension::ConvolutionOperands operands;
};

using ResetEventCommand = ResetEvent<Event>;
using QueryTimestampsCommand = QueryTimestamps<Event>;

using Operation =
    std::variant<LaunchCommand, CopyCommand, FillCommand, CopyRegionCommand, BarrierCommand, ResetEventCommand,
                 WriteTimestampCommand, QueryTimestampsCommand, ProductCommand, ConvolutionCommand>;

// `on_host`: copies from memory of the host to memory of the host, both USM. CUDA makes the caller do such a copy,
// after all that comes before it in the stream; so the stream calls a function of the host instead.
struct Command {
  Operation operation;
  std::vector<Ref<Event>> waits;
  Ref<Event> signal;
  bool on_host = false;
};

using CommandSequence = std::vector<Command>;

}  // namespace zefuse::cuda
