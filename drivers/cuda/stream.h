// A CUDA stream as what runs commands: in order, whatever the flags of a list or queue ask for.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/command.h"
#include "drivers/cuda/device.h"

namespace zefuse::cuda {

// Not thread-safe, as the Level Zero calls on one list or queue. All functions answer through refuse(), naming `call`.
class Stream {
public:
  explicit Stream(Device& device) : device_(device) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // With a stream of its own, or the one that a descriptor's chain names (ze_extension::AdoptedStream).
  ze_result_t create(const char* call, const void* chain);
  ze_result_t submit(const char* call, Command& command);
  // A launch that waits for nothing and signals nothing. `name`: keptName; `parameters`: read before this returns.
  ze_result_t launch(const char* call, CUfunction function, const char* name, const LaunchShape& shape,
                     void** parameters);
  ze_result_t signalFence(const char* call, uint32_t* word);
  // The commands as one CUDA graph, launched; made at the first time and kept in `graph`. NOT_READY: CUDA cannot
  // capture them, and nothing was submitted.
  ze_result_t replay(const char* call, CommandSequence& commands, CUgraphExec& graph);
  // SUCCESS once all that was submitted ended, NOT_READY after `timeout` ns, or why it failed.
  ze_result_t wait(const char* call, uint64_t timeout);

  Device& device() const { return device_; }

private:
  ze_result_t run(const char* call, LaunchCommand& launch);
  ze_result_t run(const char* call, ProductCommand& product);
  ze_result_t run(const char* call, ConvolutionCommand& convolution);
  ze_result_t run(const char* call, CopyCommand& copy, bool on_host);
  ze_result_t run(const char* call, FillCommand& fill);
  ze_result_t run(const char* call, CopyRegionCommand& copy, bool on_host);
  ze_result_t runOnHost(const char* call, const CopyRegionCommand& copy);
  ze_result_t run(const char* call, BarrierCommand&) { return ZE_RESULT_SUCCESS; }
  ze_result_t run(const char* call, ResetEventCommand& reset);
  ze_result_t run(const char* call, WriteTimestampCommand& write);
  ze_result_t run(const char* call, QueryTimestampsCommand& query, bool on_host);
  ze_result_t writeClock(const char* call, uint64_t* destination);
  ze_result_t capture(const char* call, CommandSequence& commands, CUgraphExec& graph);

  Device& device_;
  CUstream stream_ = nullptr;
  bool adopted_ = false;        // the application's, null too: never destroyed here
  CUstream capture_ = nullptr;  // in place of an adopted stream, as CUDA's default stream cannot be captured
  bool capturing_ = false;
};

}  // namespace zefuse::cuda
