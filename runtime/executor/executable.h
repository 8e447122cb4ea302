// An executable: a verified plan bound to a device, with its kernels built and its library calls
// prepared.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"

namespace zefuse::plan {
struct Plan;
enum class DType : uint8_t;
}  // namespace zefuse::plan

namespace zefuse {

// Where a tensor of the caller's lies: in memory that the host reaches, or in memory of the plan's GPU that its driver
// knows (Level Zero's allocations; with the driver over CUDA, whatever CUDA allocated), where it is used without a
// copy. There nothing may read or write it from before the call to its end, but for what comes in order in the call's
// stream.
enum class Place : uint8_t { host, device };

// Where a call's results are to lie, and the stream of the caller's that its work goes into (runtime/ze/command_list.h:
// a CUstream of the device's primary context; null is CUDA's default stream). With a stream a call whose tensors all
// lie on the device returns when its work is queued: what it was given must stay until the stream has come past it, and
// a kernel's check that fails (an index out of range) is told by a later call or by synchronize(). Nothing: the call
// waits.
struct CallPlace {
  Place results = Place::host;
  std::optional<void*> stream;
};

// A tensor of the caller's, not owned. `data` is the first element (storage offset included).
struct TensorRef {
  void* data = nullptr;
  plan::DType dtype{};
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;  // elements
  uint64_t version = 0;              // torch's version counter; 0 where there is none (then only the address and
                                     // the fingerprint tell whether a parameter changed)
  void* owner = nullptr;             // opaque: the ATen bridge's handle of this tensor (an at::Tensor*), or nullptr
  Place place = Place::host;
  uint64_t storage = 0;  // of memory on a device: no two that ever lay at one address have the same number; 0: nobody
                         // knows whose it is, or it has no version
};

// One argument of a call: a tensor, or an integer for inputs of kind `integer`.
struct CallInput {
  bool is_tensor = true;
  TensorRef tensor;
  int64_t integer = 0;   // of a real number its bits
  bool is_real = false;  // a number that is no integer
};

// What the caller must allocate: called once per output buffer, before the first step.
struct OutputRequest {
  size_t index;  // output buffer number (order of first use in Plan.outputs)
  size_t bytes;  // to allocate, 64-byte aligned
  Place place;   // where
};
using AllocateOutput = std::function<Result<void*>(const OutputRequest&)>;

// One result of a call, in the order of Plan.outputs.
struct CallOutput {
  enum class Kind { output_buffer, input, external, integer, none } kind = Kind::none;
  size_t index = 0;       // output_buffer: its number; input: input number
  void* owner = nullptr;  // external: the ATen bridge's handle, ownership passes to the caller
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // elements from the buffer's start (for input: from that input's data pointer)
  int64_t integer = 0;
};

// Whether a GPU's driver may compile kernels itself, which may take minutes. `warn`: as allow, but the caller says so.
enum class JitConsent { never, warn, allow };

struct ExecutableOptions {
  std::string device = "cpu";
  std::string cache_dir;                     // native code; empty: no disk cache
  uint64_t cache_limit = uint64_t(2) << 30;  // bytes of the folder's entries; the least recently used go
  int build_threads = 0;                     // 0: as many as cores
  int device_timeout_s = 60;                 // how long one step may take on a GPU before the device counts as lost
  bool in_streams = false;   // calls bring a stream (CallPlace): nothing is allocated before the first one
  bool synchronous = false;  // such a call waits for its work all the same, and tells its own errors
  bool allow_aten = true;    // false: a plan that calls ATen is refused, each operator named
  // Native code that our own compiler makes for a GPU is made beside the caller's work: create() returns before, the
  // first call that needs it waits (isBuiltWithin), and what is wrong with it is told there.
  bool build_beside = false;
  bool build = true;  // false: a kernel module without native code, given or in the cache, is an error (not_found)
  // Where no installed compiler covers a GPU: its driver, in a child process that this ends after so long a kernel.
  JitConsent jit = JitConsent::never;
  int jit_timeout_s = 120;
  // Before each such kernel: device, entry point, its number from 1, how many at most. From any thread, one call at a
  // time; false ends the work with `cancelled`.
  std::function<bool(const std::string& device, const std::string& kernel, size_t number, size_t count)> jit_progress;
  CancelCheck cancelled;  // asked before each kernel too
  // Native code that a package holds for a kernel module: (module id, target) to bytes, or empty.
  // The bytes must be verified already and stay valid during create(). What the device refuses is
  // built from SPIR-V instead.
  std::function<std::span<const std::byte>(std::string_view, std::string_view)> native_binary;
};

// Counters since creation, for explain, tests and CI. Read at any time.
struct ExecutionCounters {
  uint64_t calls = 0, launches = 0, library_calls = 0, aten_calls = 0, copies = 0;
  // Copies of weights in a library's layout: made to be kept, used again, made for one use (a weight's first). On a GPU
  // launches whose results are kept (Program::derived): made, and left out.
  uint64_t weights_packed = 0, weight_packs_reused = 0, weights_streamed = 0;
  uint64_t native_cache_hits = 0, native_cache_misses = 0;
  uint64_t arena_bytes = 0;  // largest so far
  // Plans for a GPU: commands that moved data and their bytes, parameters (again) made resident among them; steps that
  // ran on the host.
  uint64_t copies_to_device = 0, copies_to_host = 0, bytes_to_device = 0, bytes_to_host = 0;
  uint64_t parameters_uploaded = 0, host_steps = 0;
  uint64_t replays = 0;       // calls whose commands were recorded before and submitted as one
  std::string cache_failure;  // why native code could not be kept, once; empty: it could
};

// What one step took, summed over the calls since timing was switched on.
struct StepTime {
  uint64_t calls = 0;
  double seconds = 0;         // by the clock
  double thread_seconds = 0;  // processor time of the calling thread, which other programs do not lengthen
};

// Told of each step on the calling thread, for a profiler. Steps that a GPU replays as one are not told.
class StepObserver {
public:
  virtual void begin(size_t step) = 0;  // in the order of Plan.steps
  virtual void end() = 0;               // also after a step that failed

protected:
  ~StepObserver() = default;
};

// Thread-safe: any number of calls may run at the same time; each takes an arena of its own from a
// free list.
class ZEFUSE_API Executable {
public:
  // Verifies `plan` (any bytes are safe to pass), finds or builds native code for each kernel
  // module. The bytes are copied.
  static Result<std::unique_ptr<Executable>> create(std::span<const std::byte> plan, const ExecutableOptions& options);
  ~Executable();

  // Runs every step on the calling thread, or on the plan's GPU and waits for it. On error no output escapes. Errors:
  // invalid_argument (inputs do not match the plan: names which), index_error, out_of_memory, device; deadline when a
  // GPU does not answer, after which every call fails. `place`: where `allocate` is asked for memory, among others; an
  // error that names an earlier call is one of a call that did not wait. unsupported: a
  // step on the host uses a tensor that lies on a device, or the plan is for the CPU.
  Result<std::vector<CallOutput>> call(std::span<const CallInput> inputs, const AllocateOutput& allocate,
                                       StepObserver* observer = nullptr, CallPlace place = {});
  // Whether no kernel is being built beside (build_beside) any more within that time: a call would not wait.
  bool isBuiltWithin(std::chrono::milliseconds time) const;
  // Waits for what calls have queued in streams, and tells the first check of theirs that failed and was not told yet.
  Status synchronize();

  const plan::Plan& plan() const;
  std::span<const std::byte> planBytes() const;
  bool hasHostSteps() const;        // of a plan for a GPU
  size_t numOutputBuffers() const;  // how often a call asks `allocate`, at most
  ExecutionCounters counters() const;

  // From now on (or no longer) each step is timed, from zero: half a microsecond a step. Off, it costs one branch a
  // call.
  void timeSteps(bool on);
  // In the order of Plan.steps; empty if timing was never on.
  std::vector<StepTime> stepTimes() const;

  // Native code of each kernel module, in the order of Plan.modules, for a package. Empty where the
  // device gives none.
  Result<std::vector<std::vector<std::byte>>> nativeBinaries() const;

  // Forget derived weights (packed or folded); the next call makes them anew.
  void invalidateWeights();

  // Frees what calls that have ended left for the next ones, which then make it anew; gives the bytes. Of a plan for a
  // GPU nothing: the device may still be at work there.
  size_t freeIdleMemory();

private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Ends early what is being built beside (ExecutableOptions::build_beside), in all executables: before a process exits,
// whose static objects compilers use. A later call builds what it needs.
ZEFUSE_API void endBuilding();

// Asked once before a device is out of memory: gives back what others of this process keep of it and do not use
// (torch's cache), false where there is nothing. Called from any thread, with no lock held. Set once, at start.
ZEFUSE_API void setLastResort(bool (*give_back)());

}  // namespace zefuse
