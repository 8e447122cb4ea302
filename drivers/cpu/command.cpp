#include "drivers/cpu/command.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "drivers/cpu/environment.h"
#include "drivers/cpu/kernel.h"
#include "drivers/cpu/level_zero.h"
#include "drivers/cpu/memory.h"
#include "drivers/level_zero/clock.h"

namespace zefuse::cpu {
namespace {

// How often a worker that waits for an event looks whether its queue is being destroyed.
constexpr uint64_t kStopPollNs = 20'000'000;

template <typename T> T* reach(T* pointer) { return AllocationTable::instance().reach(pointer); }

// Of memory that a copy or a fill touches: also whether it ends before its allocation does, where the table is asked
// anyway.
ze_result_t checkRange(const char* what, const void* pointer, size_t bytes) {
  if (AllocationTable::instance().holds(pointer, bytes))
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %zu bytes at %p go past the end of their allocation", what, bytes,
                pointer);
}

// How many launches, or copies of asynchronous lists, have begun on the posing GPU.
std::atomic<uint64_t> gpu_launches{0}, gpu_copies{0};
std::atomic<bool> gpu_lost{false};

// Until its queue is destroyed.
void hang(const Site& site) {
  while (!site.stop->load(std::memory_order_relaxed))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Whether the launch is the one that the environment lets fail, in which case its work is not done.
bool fails(const LaunchCommand& command, const Site& site) {
  const Environment& wanted = environment();
  if ((wanted.fault != Fault::hang && wanted.fault != Fault::lost) || !site.stop || !command.module->device.is_gpu)
    return false;
  if (gpu_lost)
    return true;
  if (++gpu_launches != wanted.fault_at)
    return false;
  if (wanted.fault == Fault::lost)
    gpu_lost = true;
  else
    hang(site);
  return true;
}

// Whether the launch is the one that shall find no memory.
bool lacksMemory(const LaunchCommand& command, const Site& site) {
  const Environment& wanted = environment();
  return wanted.fault == Fault::no_memory && site.stop && command.module->device.is_gpu &&
         ++gpu_launches == wanted.fault_at;
}

bool fails(const CopyCommand&, const Site& site) {
  const Environment& wanted = environment();
  if (wanted.fault != Fault::hang_copy || !site.stop || ++gpu_copies != wanted.fault_at)
    return false;
  hang(site);
  return true;
}

ze_result_t runOne(const LaunchCommand& command, const Site& site) {
  if (command.indirect_count && command.index >= *reach(command.indirect_count))
    return ZE_RESULT_SUCCESS;
  if (lacksMemory(command, site))
    return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                  "kernel '%s': no memory left, as ZEFUSE_CPU_DRIVER_GPU_FAULT wants",
                  command.arguments.info().name.c_str());
  KernelCall call;
  call.entry = command.entry;
  std::optional<Arguments> translated;
  if (isolatesMemory(command.module->device))
    translated.emplace(command.arguments).translate();
  (translated ? *translated : command.arguments).fill(call);
  call.launch = command.launch;
  if (command.indirect_groups) {
    const ze_group_count_t groups = *reach(command.indirect_groups);
    if (ze_result_t result = checkGroupCount(groups))
      return result;
    setGroupCount(call.launch, groups);
  }
  if (command.opens_isolated)
    AllocationTable::instance().openIsolated();
  const ze_result_t result = runGroups(call, site.team);
  if (command.opens_isolated)
    AllocationTable::instance().closeIsolated();
  return result;
}

ze_result_t runOne(const CopyCommand& command, const Site&) {
  for (const void* side : {static_cast<const void*>(command.destination), command.source})
    if (ze_result_t result = checkRange("copy", side, command.bytes))
      return result;
  std::memmove(reach(command.destination), reach(command.source), command.bytes);
  return ZE_RESULT_SUCCESS;
}

ze_result_t runOne(const FillCommand& command, const Site&) {
  if (ze_result_t result = checkRange("fill", command.destination, command.bytes))
    return result;
  auto* out = static_cast<std::byte*>(reach(command.destination));
  if (command.pattern_bytes == 1) {
    std::memset(out, static_cast<int>(command.pattern[0]), command.bytes);
    return ZE_RESULT_SUCCESS;
  }
  // Doubling copies: the filled beginning is the source for what follows.
  size_t filled = std::min(command.pattern_bytes, command.bytes);
  std::memcpy(out, command.pattern, filled);
  while (filled < command.bytes) {
    size_t bytes = std::min(filled, command.bytes - filled);
    std::memcpy(out + filled, out, bytes);
    filled += bytes;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t runOne(const CopyRegionCommand& command, const Site&) {
  auto reached = [&](size_t pitch, size_t slice_pitch) {
    return command.width == 0 || command.height == 0
               ? 0
               : (command.depth - 1) * slice_pitch + (command.height - 1) * pitch + command.width;
  };
  if (ze_result_t result = checkRange("region copy", command.destination,
                                      reached(command.destination_pitch, command.destination_slice_pitch)))
    return result;
  if (ze_result_t result =
          checkRange("region copy", command.source, reached(command.source_pitch, command.source_slice_pitch)))
    return result;
  std::byte* destination = reach(command.destination);
  const std::byte* source = reach(command.source);
  for (size_t z = 0; z < command.depth; ++z)
    for (size_t y = 0; y < command.height; ++y)
      std::memmove(destination + z * command.destination_slice_pitch + y * command.destination_pitch,
                   source + z * command.source_slice_pitch + y * command.source_pitch, command.width);
  return ZE_RESULT_SUCCESS;
}

ze_result_t runOne(const CopyImageCommand& command, const Site& site) { return runOne(command.region, site); }

ze_result_t runOne(const BarrierCommand&, const Site&) { return ZE_RESULT_SUCCESS; }

ze_result_t runOne(const ResetEventCommand& command, const Site&) {
  command.event->reset();
  return ZE_RESULT_SUCCESS;
}

ze_result_t runOne(const WriteTimestampCommand& command, const Site&) {
  *reach(command.destination) = nowNs();
  return ZE_RESULT_SUCCESS;
}

ze_result_t runOne(const QueryTimestampsCommand& command, const Site&) {
  for (size_t i = 0; i < command.events.size(); ++i) {
    ze_kernel_timestamp_result_t result = command.events[i]->timestamps();
    std::memcpy(reach(command.destination) + command.offsets[i], &result, sizeof result);
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace

LaunchCommand::LaunchCommand(const Kernel& kernel, const ze_group_count_t& groups)
    : module(kernel.module), entry(kernel.entry), arguments(kernel.arguments), launch(kernel.call(groups).launch),
      opens_isolated(isolatesMemory(kernel.module->device) &&
                     (kernel.indirect_access & ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE) != 0),
      indirect_groups(nullptr), indirect_count(nullptr), index(0) {}

ze_result_t run(const Operation& operation, const Site& site) noexcept {
  try {
    return std::visit([&](const auto& command) { return runOne(command, site); }, operation);
  } catch (const std::bad_alloc&) {
    if (const auto* launch = std::get_if<LaunchCommand>(&operation))
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "kernel '%s': no host memory left to launch it",
                    launch->arguments.info().name.c_str());
    return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "a queued command: no host memory left to run it");
  } catch (const std::exception& error) {
    return refuse(ZE_RESULT_ERROR_UNKNOWN, "a queued command: %s", error.what());
  }
}

bool deviceLost() { return gpu_lost.load(std::memory_order_relaxed); }

ze_result_t checkAwaited(const char* call, const Event& event) {
  const std::shared_ptr<Failure> why = event.state().failure();
  if (!why) [[likely]]
    return ZE_RESULT_SUCCESS;
  // Not tell(): the host that reads this learns it of this command, and of the other where that one ran.
  return refuse(why->code, "%s: not run, because what it waits for failed: %s", call, why->text);
}

void Progress::fail(ze_result_t result) {
  if (!prepared_) {
    failure_ = makeFailure(result);
    return;
  }
  failure_ = std::move(prepared_);
  failure_->take(result);
}

bool Progress::waitFor(std::span<const Ref<Event>> events) {
  for (const Ref<Event>& event : events) {
    while (!event->wait(site_.stop ? kStopPollNs : std::numeric_limits<uint64_t>::max()) && site_.stop)
      if (site_.stop->load(std::memory_order_relaxed))
        return false;
    if (const ze_result_t result = checkAwaited("a queued command", *event)) {
      fail(result);
      break;
    }
  }
  return true;
}

bool Progress::runOne(const Command& command) {
  if (!failure_ && !waitFor(command.waits))
    return false;
  if (failure_) {
    if (command.signal)
      command.signal->fail(failure_);
    return true;
  }
  if (const auto* launch = std::get_if<LaunchCommand>(&command.operation); launch && fails(*launch, site_))
    return false;
  if (const auto* copy = std::get_if<CopyCommand>(&command.operation); copy && fails(*copy, site_))
    return false;
  if (deviceLost() && site_.stop)
    return false;
  bool timed = command.signal && command.signal->timestamped;
  uint64_t start = timed ? nowNs() : 0;
  const ze_result_t result = zefuse::cpu::run(command.operation, site_);
  if (result != ZE_RESULT_SUCCESS) [[unlikely]]
    fail(result);
  if (command.signal) {
    if (failure_)
      command.signal->fail(failure_);
    else
      command.signal->signal(start, timed ? nowNs() : 0);
  }
  return true;
}

bool Progress::run(const CommandSequence& commands) {
  return std::all_of(commands.begin(), commands.end(), [&](const Command& command) { return runOne(command); });
}

}  // namespace zefuse::cpu
