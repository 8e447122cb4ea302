// A libcuda for tests of the driver on a machine without a GPU: streams are queues in order, words are waited for and
// written, memory is the host's, and of kernels nothing happens but that they are noted. Everything runs when somebody
// asks whether something ended, so the order is the same each time.
//
// A kernel whose name begins with "fail_" ends with an illegal address, which the context does not survive; one that
// begins with "hang_" ends when fake_cuda_release() was called. What happened is in fake_cuda_log(), what is alive in
// fake_cuda_alive().
//
// FAKE_CUDA_DEVICES=90,75,86: the compute capabilities of as many devices; one of 9.0 without it. Each has a context of
// its own, which streams, memory and functions belong to: a call with another one current, or a launch of another one's
// function, fails, and an illegal address ends this context alone. What happens on any but the first is noted with
// its number: "gpu 2: launch".
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "drivers/cuda/cuda_api.h"

using namespace zefuse::cuda;

struct Operation {
  std::string note;
  std::function<bool()> run;  // false: not yet
};

namespace zefuse::cuda {
struct CUctx_st {
  int ordinal;
  int capability;
  CUresult sticky = CUDA_SUCCESS;
};
struct CUstream_st {
  CUcontext context;
  std::deque<Operation> pending;
  bool capturing = false;
  std::vector<Operation> captured;
};
struct CUgraph_st {
  std::vector<Operation> operations;
};
struct CUgraphExec_st {
  std::vector<Operation> operations;
};
struct CUfunc_st {
  CUcontext context;
  std::string name;
  std::vector<size_t> parameters;
};
struct CUmod_st {
  std::map<std::string, CUfunc_st> functions;
};
struct CUlinkState_st {
  std::string text;
};
}  // namespace zefuse::cuda

namespace {

constexpr auto kInvalidContext = CUresult(201), kInvalidHandle = CUresult(400);  // nothing of the driver's names them
constexpr size_t kMemoryBytes = size_t(1) << 30;  // of a device, and the most of the host's that can be pinned

struct State {
  std::recursive_mutex mutex;
  std::set<CUstream> streams;
  std::map<std::string, int> alive;
  std::set<void*> memory;
  std::map<char*, size_t> pinned;
  std::string log;
  std::vector<CUctx_st> contexts;
  bool released = false;
  uint64_t clock = 1'000'000;
  std::string fail_function;
  CUresult fail_code = CUDA_SUCCESS;
};
State& state() {
  static State* made = [] {
    auto* made = new State;
    const char* devices = std::getenv("FAKE_CUDA_DEVICES");
    std::istringstream capabilities(devices ? devices : "90");
    for (std::string each; std::getline(capabilities, each, ',');)
      made->contexts.push_back({int(made->contexts.size()), std::stoi(each)});
    return made;
  }();
  return *made;
}

struct Counts {
  int launches = 0, contexts = 0;
};
std::atomic<bool> counting{false};
thread_local Counts counts;

thread_local std::vector<CUcontext> current_contexts;
CUcontext current() { return current_contexts.empty() ? nullptr : current_contexts.back(); }
// "stream", on another device than the first "stream 1".
std::string numbered(const std::string& kind, CUcontext context) {
  return context->ordinal ? kind + " " + std::to_string(context->ordinal) : kind;
}

void note(const std::string& line) { state().log += line + "\n"; }

// Runs what can run, in all streams, until nothing moves.
void pump() {
  State& s = state();
  for (bool moved = true; moved;) {
    moved = false;
    for (CUstream stream : s.streams)
      while (!stream->pending.empty() && !stream->context->sticky) {
        if (!stream->pending.front().run())
          break;
        if (!stream->pending.front().note.empty())
          note(stream->pending.front().note);
        stream->pending.pop_front();
        moved = true;
      }
  }
}

// As CUDA's functions that free: until all streams of the context are idle, and every other call waits. Five seconds at
// most, so that a test fails.
void waitForAll() {
  for (int i = 0; i < 5000; ++i) {
    pump();
    if (current()->sticky || std::ranges::all_of(state().streams, [](CUstream stream) {
          return stream->context != current() || stream->pending.empty();
        }))
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// As CUDA's copies between pinned memory and pinned memory: the caller waits for the stream. Five seconds at most.
void waitBeforeCopying(CUstream stream, CUdeviceptr to, CUdeviceptr from) {
  auto pinned = [](CUdeviceptr pointer) {
    auto* at = reinterpret_cast<char*>(pointer);
    auto after = state().pinned.upper_bound(at);
    return after != state().pinned.begin() && size_t(at - std::prev(after)->first) < std::prev(after)->second;
  };
  if (!pinned(to) || !pinned(from))
    return;
  for (int i = 0; i < 5000 && !stream->pending.empty() && !stream->context->sticky; ++i) {
    pump();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

CUresult enter(const char* function) {
  State& s = state();
  if (s.fail_function == function) {
    s.fail_function.clear();
    return s.fail_code;
  }
  const CUcontext now = current();
  return now ? now->sticky : kInvalidContext;
}
#define ENTER                                                                                                          \
  std::lock_guard lock(state().mutex);                                                                                 \
  if (CUresult failed = enter(__func__))                                                                               \
  return failed

CUresult submit(CUstream stream, std::string what, std::function<bool()> run) {
  if (stream->context != current())
    return kInvalidContext;
  if (stream->context->ordinal && !what.empty())
    what = "gpu " + std::to_string(stream->context->ordinal) + ": " + what;
  if (stream->capturing)
    stream->captured.push_back({std::move(what), std::move(run)});
  else
    stream->pending.push_back({std::move(what), std::move(run)});
  return CUDA_SUCCESS;
}

// ".visible .entry name(" and its ".param" lines, of PTX.
std::map<std::string, CUfunc_st> parse(const std::string& ptx) {
  std::map<std::string, CUfunc_st> functions;
  std::istringstream lines(ptx);
  CUfunc_st* open = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (size_t at = line.find(".entry "); at != std::string::npos) {
      std::string name = line.substr(at + 7, line.find('(', at) - at - 7);
      open = &functions[name];
      open->name = name;
      open->context = current();
      if (line.find(".param") == std::string::npos)
        continue;
    }
    if (open && line.find(".param") != std::string::npos) {
      size_t bytes = line.find("64 ") != std::string::npos ? 8 : 4;
      if (size_t b = line.find('['); b != std::string::npos)
        bytes = std::strtoul(line.c_str() + b + 1, nullptr, 10);
      open->parameters.push_back(bytes);
    }
    if (line.find(')') != std::string::npos)
      open = nullptr;
  }
  return functions;
}

std::string shape(unsigned x, unsigned y, unsigned z) {
  return std::to_string(x) + "x" + std::to_string(y) + "x" + std::to_string(z);
}

CUresult launch(CUfunction f, std::string grid, std::string block, unsigned shared, CUstream stream, void** parameters,
                const char* kind) {
  if (f->context != stream->context)
    return kInvalidHandle;
  if (f->name == "zf_clock") {
    auto* to = *static_cast<uint64_t**>(parameters[0]);
    return submit(stream, "clock", [to] {
      *to = state().clock += 1000;
      return true;
    });
  }
  std::ostringstream text;
  text << kind << " " << f->name << " " << grid << " of " << block << " local " << shared << " arguments";
  for (size_t i = 0; i < f->parameters.size(); ++i) {
    uint64_t value = 0;
    std::memcpy(&value, parameters[i], std::min<size_t>(f->parameters[i], 8));
    if (state().memory.count(reinterpret_cast<void*>(value)))
      text << " memory";
    else
      text << " " << value;
  }
  const std::string name = f->name;
  return submit(stream, text.str(), [name, context = stream->context] {
    if (name.starts_with("hang_"))
      return state().released;
    if (name.starts_with("fail_")) {
      context->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
      return false;
    }
    return true;
  });
}

void* word(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* fake_cuda_log() {
  std::lock_guard lock(state().mutex);
  pump();
  return state().log.c_str();
}
// From now on launches do nothing, and they and what makes a context current are counted; returns the counts so far.
EXPORT Counts fake_cuda_count() {
  counting = true;
  return counts;
}
EXPORT void fake_cuda_clear() { state().log.clear(); }
EXPORT void fake_cuda_release() { state().released = true; }
EXPORT int fake_cuda_alive(const char* kind) { return state().alive[kind]; }
EXPORT void fake_cuda_fail_next(const char* function, int code) {
  state().fail_function = function;
  state().fail_code = CUresult(code);
}

// For fake_cublaslt.cpp: what a library queues.
EXPORT void fake_cuda_submit(CUstream stream, const char* what, const std::function<void()>* run) {
  std::lock_guard lock(state().mutex);
  submit(stream, what, [run = *run] { return run(), true; });
}

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                              : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult, const char** text) { return *text = "as the fake says", CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int* count) { return *count = int(state().contexts.size()), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  std::snprintf(name, size_t(length), "%s", numbered("Fake GPU", &state().contexts[size_t(device)]).c_str());
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memcpy(uuid->bytes, "fake gpu number1", 16);
  uuid->bytes[15] = char('1' + device);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice) {
  std::snprintf(id, size_t(length), "ffff:ff:1f.7");
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state().contexts[size_t(device)].capability / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state().contexts[size_t(device)].capability % 10; break;
  case CU_DEVICE_ATTRIBUTE_INTEGRATED: *value = 0; break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
  case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *value = 1; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1'000'000; break;
  default: *value = 1024; break;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { return *bytes = kMemoryBytes, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) { return *can = 0, CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return *context = &state().contexts[size_t(device)], CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  ++counts.contexts;
  return *context = current(), CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ++counts.contexts;
  return current_contexts.push_back(context), CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ++counts.contexts;
  if (current_contexts.empty())
    return kInvalidContext;
  *context = current();
  return current_contexts.pop_back(), CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  ENTER;
  if (bytes > kMemoryBytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  void* made = std::aligned_alloc(256, (bytes + 255) & ~size_t(255));
  *pointer = reinterpret_cast<CUdeviceptr>(made);
  state().memory.insert(made);
  ++state().alive[numbered("device memory", current())];
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  ENTER;
  if (bytes > kMemoryBytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = std::aligned_alloc(4096, (bytes + 4095) & ~size_t(4095));
  state().memory.insert(*pointer);
  state().pinned[static_cast<char*>(*pointer)] = bytes;
  ++state().alive[numbered("host memory", current())];
  return CUDA_SUCCESS;
}
// Memory of the fake's own tests begins at what cuMemAlloc gave.
EXPORT CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
  ENTER;
  if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || !state().memory.contains(word(pointer)))
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(value) =
      state().pinned.contains(static_cast<char*>(word(pointer))) ? 1 : CU_MEMORYTYPE_DEVICE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  std::lock_guard lock(state().mutex);
  waitForAll();
  if (!state().memory.erase(word(pointer)))
    return CUDA_ERROR_INVALID_VALUE;
  --state().alive[numbered("device memory", current())];
  std::free(word(pointer));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFreeHost(void* pointer) {
  std::lock_guard lock(state().mutex);
  waitForAll();
  if (!state().memory.erase(pointer))
    return CUDA_ERROR_INVALID_VALUE;
  --state().alive[numbered("host memory", current())];
  state().pinned.erase(static_cast<char*>(pointer));
  std::free(pointer);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER;
  waitBeforeCopying(stream, to, from);
  return submit(stream, "copy " + std::to_string(bytes),
                [=] { return std::memmove(word(to), word(from), bytes), true; });
}
EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  ENTER;
  const CUDA_MEMCPY3D c = *copy;
  waitBeforeCopying(stream, c.dstDevice, c.srcDevice);
  return submit(stream, "copy region", [c] {
    for (size_t z = 0; z < c.Depth; ++z)
      for (size_t y = 0; y < c.Height; ++y)
        std::memmove(static_cast<char*>(word(c.dstDevice)) + (z * c.dstHeight + y) * c.dstPitch,
                     static_cast<char*>(word(c.srcDevice)) + (z * c.srcHeight + y) * c.srcPitch, c.WidthInBytes);
    return true;
  });
}
template <typename T> static CUresult set(CUdeviceptr to, T value, size_t count, size_t pitch, CUstream stream) {
  return submit(stream, "fill " + std::to_string(count * sizeof(T)), [=] {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(static_cast<char*>(word(to)) + i * pitch, &value, sizeof value);
    return true;
  });
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  ENTER;
  return set(to, value, count, 1, stream);
}
EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  ENTER;
  return set(to, value, count, 2, stream);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  ENTER;
  return set(to, value, count, 4, stream);
}
EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                                   CUstream stream) {
  ENTER;
  return width == 1 ? set(to, value, height, pitch, stream) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  ENTER;
  const std::string text = static_cast<const char*>(image);
  if (text.find(".version") == std::string::npos)
    return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{parse(text)};
  ++state().alive[numbered("module", current())];
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  std::lock_guard lock(state().mutex);
  waitForAll();
  --state().alive[numbered("module", current())];
  delete module;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER;
  auto found = module->functions.find(name);
  if (found == module->functions.end())
    return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; }
EXPORT CUresult cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState* made) {
  ENTER;
  *made = new CUlinkState_st;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLinkAddData_v2(CUlinkState link, int, void* data, size_t bytes, const char*, unsigned, CUjit_option*,
                                 void**) {
  ENTER;
  link->text.assign(static_cast<char*>(data), bytes);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLinkComplete(CUlinkState link, void** cubin, size_t* bytes) {
  ENTER;
  *cubin = link->text.data();
  *bytes = link->text.size();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLinkDestroy(CUlinkState link) { return delete link, CUDA_SUCCESS; }
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  return *blocks = 2, CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void** parameters, void**) {
  if (counting)
    return ++counts.launches, CUDA_SUCCESS;
  ENTER;
  return launch(f, shape(gx, gy, gz), shape(bx, by, bz), shared, stream, parameters, "launch");
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, CUstream stream, void** parameters) {
  ENTER;
  return launch(f, shape(gx, gy, gz), shape(bx, by, bz), shared, stream, parameters, "cooperative");
}
EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*call)(void*), void* data) {
  ENTER;
  if (stream->capturing)
    return CUDA_ERROR_INVALID_VALUE;  // a graph may call it more than once: nothing here does so
  return submit(stream, "host function", [=] { return call(data), true; });
}
EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  ENTER;
  *stream = new CUstream_st{current()};
  state().streams.insert(*stream);
  ++state().alive[numbered("stream", current())];
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  std::lock_guard lock(state().mutex);
  pump();
  state().streams.erase(stream);
  --state().alive[numbered("stream", current())];
  delete stream;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamQuery(CUstream stream) {
  ENTER;
  pump();
  return stream->context->sticky   ? stream->context->sticky
         : stream->pending.empty() ? CUDA_SUCCESS
                                   : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  ENTER;
  if (!state().streams.contains(stream))
    return CUDA_ERROR_INVALID_VALUE;
  *status = stream->capturing;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  ENTER;
  if (flags != CU_STREAM_WAIT_VALUE_EQ)
    return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, "waited",
                [=] { return __atomic_load_n(static_cast<uint32_t*>(word(at)), __ATOMIC_ACQUIRE) == value; });
}
EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned) {
  ENTER;
  return submit(stream, "wrote " + std::to_string(value), [=] {
    __atomic_store_n(static_cast<uint32_t*>(word(at)), value, __ATOMIC_RELEASE);
    return true;
  });
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  ENTER;
  stream->capturing = true;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  std::lock_guard lock(state().mutex);
  stream->capturing = false;
  *graph = new CUgraph_st{std::move(stream->captured)};
  stream->captured.clear();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  ENTER;
  *exec = new CUgraphExec_st{graph->operations};
  ++state().alive[numbered("graph", current())];
  note("graph of " + std::to_string(graph->operations.size()));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER;
  submit(stream, "graph launch", [] { return true; });
  for (const Operation& operation : exec->operations)
    stream->pending.push_back(operation);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  std::lock_guard lock(state().mutex);
  --state().alive[numbered("graph", current())];
  delete exec;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }
