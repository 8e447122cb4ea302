#include "drivers/cuda/stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "common/ze_extension/stream.h"
#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/host_wait.h"
#include "drivers/level_zero/extensions.h"

namespace zefuse::cuda {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Whether the command waits for an event that the device was not told to signal.
bool awaitsOthers(const Command& command, const Device& device) {
  return std::ranges::any_of(command.waits, [&](const Ref<Event>& event) {
    return event->signaller.load(std::memory_order_relaxed) != &device;
  });
}

// Called by CUDA's own thread, which must not call CUDA. On a lost device it is not called: `data` is lost then.
void copyAndForget(void* data) {
  const std::unique_ptr<CopyRegionCommand> copy(static_cast<CopyRegionCommand*>(data));
  for (size_t z = 0; z < copy->depth; ++z)
    for (size_t y = 0; y < copy->height; ++y)
      std::memmove(copy->destination + z * copy->destination_slice_pitch + y * copy->destination_pitch,
                   copy->source + z * copy->source_slice_pitch + y * copy->source_pitch, copy->width);
}

}  // namespace

Stream::~Stream() {
  for (CUstream own : {adopted_ ? nullptr : stream_, capture_})
    if (own)
      DeferredReleases::instance().destroy(device_, own);
}

ze_result_t Stream::create(const char* call, const void* chain) {
  using ze_extension::AdoptedStream;
  if (ze_result_t result = device_.open(call))
    return result;
  const Current current(device_);
  if (const auto* given = level_zero::findExtension<AdoptedStream>(chain, AdoptedStream::kType)) {
    adopted_ = true;
    // Neither disturbs a capture that the application is at, unlike cuStreamQuery.
    int capturing = 0;
    if (given->stream)
      if (const CUresult result = cuda().cuStreamIsCapturing(static_cast<CUstream>(given->stream), &capturing))
        return device_.fail(call, "cuStreamIsCapturing, of the stream to adopt", result);
    stream_ = static_cast<CUstream>(given->stream);
    return ZE_RESULT_SUCCESS;
  }
  ZEFUSE_CUDA(device_, call, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::submit(const char* call, Command& command) {
  if (device_.lost()) [[unlikely]]
    return device_.refuseLost(call);
  const Current current(device_);
  std::unique_lock<std::mutex> waiting;
  if (!command.waits.empty() && !capturing_)
    waiting = DeferredReleases::instance().waiting(device_, stream_, awaitsOthers(command, device_));
  for (const Ref<Event>& event : command.waits)
    ZEFUSE_CUDA(device_, call, cuStreamWaitValue32, stream_, address(&event->slot.word), 1, CU_STREAM_WAIT_VALUE_EQ);
  if (waiting)
    waiting.unlock();
  Event* signal = command.signal.get();
  const bool timed = signal && signal->timestamped;
  if (timed)
    if (ze_result_t result = writeClock(call, &signal->slot.start))
      return result;
  auto runs = [&](auto& operation) {
    if constexpr (requires { run(call, operation, true); })
      return run(call, operation, command.on_host);
    else
      return run(call, operation);
  };
  if (ze_result_t result = std::visit(runs, command.operation))
    return result;
  if (timed)
    if (ze_result_t result = writeClock(call, &signal->slot.end))
      return result;
  if (signal) {
    signal->signaller.store(&device_, std::memory_order_relaxed);
    ZEFUSE_CUDA(device_, call, cuStreamWriteValue32, stream_, address(&signal->slot.word), 1, 0);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::signalFence(const char* call, uint32_t* word) {
  const Current current(device_);
  ZEFUSE_CUDA(device_, call, cuStreamWriteValue32, stream_, address(word), 1, 0);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::replay(const char* call, CommandSequence& commands, CUgraphExec& graph) {
  if (device_.lost())
    return device_.refuseLost(call);
  const Current current(device_);
  if (!graph) {
    if (adopted_ && !capture_)
      ZEFUSE_CUDA(device_, call, cuStreamCreate, &capture_, CU_STREAM_NON_BLOCKING);
    const CUstream runs = stream_;
    if (adopted_)
      stream_ = capture_;
    const ze_result_t result = capture(call, commands, graph);
    stream_ = runs;
    if (result)
      return result;
  }
  for (Command& command : commands) {
    if (auto* launch = std::get_if<LaunchCommand>(&command.operation))
      device_.launched(launch->name);
    if (command.signal)
      command.signal->signaller.store(&device_, std::memory_order_relaxed);
  }
  std::unique_lock<std::mutex> waiting;
  if (std::ranges::any_of(commands, [](const Command& command) { return !command.waits.empty(); }))
    waiting = DeferredReleases::instance().waiting(
        device_, stream_,
        std::ranges::any_of(commands, [&](const Command& command) { return awaitsOthers(command, device_); }));
  ZEFUSE_CUDA(device_, call, cuGraphLaunch, graph, stream_);
  return ZE_RESULT_SUCCESS;
}

// Makes `graph` of what the commands put into the stream. NOT_READY: CUDA cannot capture them.
ze_result_t Stream::capture(const char* call, CommandSequence& commands, CUgraphExec& graph) {
  if (cuda().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS)
    return ZE_RESULT_NOT_READY;  // an error that stays is told by the commands
  capturing_ = true;
  ze_result_t result = ZE_RESULT_SUCCESS;
  for (size_t i = 0; result == ZE_RESULT_SUCCESS && i < commands.size(); ++i)
    result = submit(call, commands[i]);
  CUgraph captured = nullptr;
  CUresult ended = cuda().cuStreamEndCapture(stream_, &captured);
  capturing_ = false;
  if (device_.lost())
    return device_.refuseLost(call);
  if (result == ZE_RESULT_SUCCESS && ended == CUDA_SUCCESS)
    ended = cuda().cuGraphInstantiateWithFlags(&graph, captured, 0);
  if (captured)
    cuda().cuGraphDestroy(captured);
  if (result == ZE_RESULT_SUCCESS && ended == CUDA_SUCCESS)
    return ZE_RESULT_SUCCESS;
  graph = nullptr;
  return ZE_RESULT_NOT_READY;
}

ze_result_t Stream::wait(const char* call, uint64_t timeout) {
  if (device_.lost())
    return device_.refuseLost(call);
  const Current current(device_);
  unsigned looks = 0;
  return hostWait(timeout, [&]() -> ze_result_t {
    const CUresult result = cuda().cuStreamQuery(stream_);
    if (result == CUDA_SUCCESS)
      return ZE_RESULT_SUCCESS;
    if (result != CUDA_ERROR_NOT_READY)
      return device_.fail(call, "cuStreamQuery", result);
    if (++looks % 64 != 0)
      return ZE_RESULT_NOT_READY;
    const ze_result_t state = device_.probeWithOthers(call);
    return state ? state : ZE_RESULT_NOT_READY;
  });
}

ze_result_t Stream::launch(const char* call, CUfunction function, const char* name, const LaunchShape& shape,
                           void** parameters) {
  const uint32_t *g = shape.groups, *n = shape.items;
  if (g[0] == 0 || g[1] == 0 || g[2] == 0)
    return ZE_RESULT_SUCCESS;  // no work, as Level Zero has it; CUDA would refuse
  const Current current(device_);
  device_.launched(name);
  const CUresult result = shape.cooperative
                              ? cuda().cuLaunchCooperativeKernel(function, g[0], g[1], g[2], n[0], n[1], n[2],
                                                                 shape.local_bytes, stream_, parameters)
                              : cuda().cuLaunchKernel(function, g[0], g[1], g[2], n[0], n[1], n[2], shape.local_bytes,
                                                      stream_, parameters, nullptr);
  return result ? device_.fail(call, "cuLaunchKernel", result, name) : ZE_RESULT_SUCCESS;
}

ze_result_t Stream::run(const char* call, LaunchCommand& launch) {
  return this->launch(call, launch.function, launch.name, launch.shape, launch.parameters.pointers().data());
}

ze_result_t Stream::run(const char* call, ProductCommand& product) {
  return product.product->run(call, product.operands, stream_);
}

ze_result_t Stream::run(const char* call, ConvolutionCommand& convolution) {
  return convolution.convolution->run(call, convolution.operands, stream_);
}

ze_result_t Stream::run(const char* call, CopyCommand& copy, bool on_host) {
  if (on_host)
    return runOnHost(call, {static_cast<std::byte*>(copy.destination), static_cast<const std::byte*>(copy.source),
                            copy.bytes, 1, 1, 0, 0, 0, 0});
  if (copy.bytes != 0)
    ZEFUSE_CUDA(device_, call, cuMemcpyAsync, address(copy.destination), address(copy.source), copy.bytes, stream_);
  return ZE_RESULT_SUCCESS;
}

// CUDA sets one, two or four bytes: a longer pattern goes word by word over its repetitions.
ze_result_t Stream::run(const char* call, FillCommand& fill) {
  const CUdeviceptr to = address(fill.destination);
  const size_t count = fill.bytes / fill.pattern_bytes, rest = fill.bytes % fill.pattern_bytes;
  auto word = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, fill.pattern + at, sizeof value);
    return value;
  };
  if (count != 0) {
    if (fill.pattern_bytes == 1) {
      ZEFUSE_CUDA(device_, call, cuMemsetD8Async, to, static_cast<unsigned char>(fill.pattern[0]), count, stream_);
    } else if (fill.pattern_bytes == 2) {
      uint16_t value;
      std::memcpy(&value, fill.pattern, sizeof value);
      ZEFUSE_CUDA(device_, call, cuMemsetD16Async, to, value, count, stream_);
    } else if (fill.pattern_bytes == 4) {
      ZEFUSE_CUDA(device_, call, cuMemsetD32Async, to, word(0), count, stream_);
    } else {
      for (size_t at = 0; at < fill.pattern_bytes; at += 4)
        ZEFUSE_CUDA(device_, call, cuMemsetD2D32Async, to + at, fill.pattern_bytes, word(at), 1, count, stream_);
    }
  }
  for (size_t i = 0; i < rest; ++i)
    ZEFUSE_CUDA(device_, call, cuMemsetD8Async, to + count * fill.pattern_bytes + i,
                static_cast<unsigned char>(fill.pattern[i]), 1, stream_);
  return ZE_RESULT_SUCCESS;
}

// CUDA's slices are whole numbers of rows; where a slice pitch is none, a slice is copied at a time.
ze_result_t Stream::run(const char* call, CopyRegionCommand& copy, bool on_host) {
  if (copy.width == 0 || copy.height == 0)
    return ZE_RESULT_SUCCESS;
  if (on_host)
    return runOnHost(call, copy);
  const bool whole =
      copy.destination_slice_pitch % copy.destination_pitch == 0 && copy.source_slice_pitch % copy.source_pitch == 0;
  CUDA_MEMCPY3D region{};
  region.srcMemoryType = region.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  region.srcPitch = copy.source_pitch;
  region.dstPitch = copy.destination_pitch;
  region.srcHeight = whole ? copy.source_slice_pitch / copy.source_pitch : copy.height;
  region.dstHeight = whole ? copy.destination_slice_pitch / copy.destination_pitch : copy.height;
  region.WidthInBytes = copy.width;
  region.Height = copy.height;
  region.Depth = whole ? copy.depth : 1;
  for (size_t slice = 0; slice < (whole ? 1 : copy.depth); ++slice) {
    region.srcDevice = address(copy.source + slice * copy.source_slice_pitch);
    region.dstDevice = address(copy.destination + slice * copy.destination_slice_pitch);
    ZEFUSE_CUDA(device_, call, cuMemcpy3DAsync, &region, stream_);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::runOnHost(const char* call, const CopyRegionCommand& copy) {
  auto data = std::make_unique<CopyRegionCommand>(copy);
  const auto waiting = DeferredReleases::instance().waiting(device_, stream_, false);  // nothing is freed before
  ZEFUSE_CUDA(device_, call, cuLaunchHostFunc, stream_, copyAndForget, data.get());
  data.release();
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::run(const char* call, ResetEventCommand& reset) {
  ZEFUSE_CUDA(device_, call, cuStreamWriteValue32, stream_, address(&reset.event->slot.word), 0, 0);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::run(const char* call, WriteTimestampCommand& write) { return writeClock(call, write.destination); }

ze_result_t Stream::run(const char* call, QueryTimestampsCommand& query, bool on_host) {
  for (size_t i = 0; i < query.events.size(); ++i) {
    std::byte* to = query.destination + query.offsets[i];
    const CUdeviceptr from = address(&query.events[i]->slot.start);
    static_assert(sizeof(ze_kernel_timestamp_data_t) == 16 && sizeof(ze_kernel_timestamp_result_t) == 32);
    if (on_host) {  // the same span twice
      if (ze_result_t result = runOnHost(
              call, {to, reinterpret_cast<const std::byte*>(&query.events[i]->slot.start), 16, 2, 1, 16, 0, 0, 0}))
        return result;
      continue;
    }
    ZEFUSE_CUDA(device_, call, cuMemcpyAsync, address(to + offsetof(ze_kernel_timestamp_result_t, global)), from, 16,
                stream_);
    ZEFUSE_CUDA(device_, call, cuMemcpyAsync, address(to + offsetof(ze_kernel_timestamp_result_t, context)), from, 16,
                stream_);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Stream::writeClock(const char* call, uint64_t* destination) {
  void* parameters[] = {&destination};
  ZEFUSE_CUDA(device_, call, cuLaunchKernel, device_.clockKernel(), 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
