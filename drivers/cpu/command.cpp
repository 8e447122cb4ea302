#include "drivers/cpu/command.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "drivers/cpu/clock.h"
#include "drivers/cpu/environment.h"
#include "drivers/cpu/kernel.h"
#include "drivers/cpu/memory.h"

namespace zefuse::cpu {
namespace {

// How often a worker that waits for an event looks whether its queue is being destroyed.
constexpr uint64_t kStopPollNs = 20'000'000;

template <typename T> T* reach(T* pointer) { return AllocationTable::instance().reach(pointer); }

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

bool fails(const CopyCommand&, const Site& site) {
  const Environment& wanted = environment();
  if (wanted.fault != Fault::hang_copy || !site.stop || ++gpu_copies != wanted.fault_at)
    return false;
  hang(site);
  return true;
}

void runOne(const LaunchCommand& command, const Site& site) {
  if (command.indirect_count && command.index >= *reach(command.indirect_count))
    return;
  KernelCall call;
  call.entry = command.entry;
  std::optional<Arguments> translated;
  if (isolatesMemory(command.module->device))
    translated.emplace(command.arguments).translate();
  (translated ? *translated : command.arguments).fill(call);
  call.launch = command.launch;
  if (command.indirect_groups)
    setGroupCount(call.launch, *reach(command.indirect_groups));
  if (command.opens_isolated)
    AllocationTable::instance().openIsolated();
  runGroups(call, site.team);
  if (command.opens_isolated)
    AllocationTable::instance().closeIsolated();
}

void runOne(const CopyCommand& command, const Site&) {
  std::memmove(reach(command.destination), reach(command.source), command.bytes);
}

void runOne(const FillCommand& command, const Site&) {
  auto* out = static_cast<std::byte*>(reach(command.destination));
  if (command.pattern_bytes == 1) {
    std::memset(out, static_cast<int>(command.pattern[0]), command.bytes);
    return;
  }
  // Doubling copies: the filled beginning is the source for what follows.
  size_t filled = std::min(command.pattern_bytes, command.bytes);
  std::memcpy(out, command.pattern, filled);
  while (filled < command.bytes) {
    size_t bytes = std::min(filled, command.bytes - filled);
    std::memcpy(out + filled, out, bytes);
    filled += bytes;
  }
}

void runOne(const CopyRegionCommand& command, const Site&) {
  std::byte* destination = reach(command.destination);
  const std::byte* source = reach(command.source);
  for (size_t z = 0; z < command.depth; ++z)
    for (size_t y = 0; y < command.height; ++y)
      std::memmove(destination + z * command.destination_slice_pitch + y * command.destination_pitch,
                   source + z * command.source_slice_pitch + y * command.source_pitch, command.width);
}

void runOne(const BarrierCommand&, const Site&) {}

void runOne(const ResetEventCommand& command, const Site&) { command.event->reset(); }

void runOne(const WriteTimestampCommand& command, const Site&) { *reach(command.destination) = nowNs(); }

void runOne(const QueryTimestampsCommand& command, const Site&) {
  for (size_t i = 0; i < command.events.size(); ++i) {
    ze_kernel_timestamp_result_t result = command.events[i]->timestamps();
    std::memcpy(reach(command.destination) + command.offsets[i], &result, sizeof result);
  }
}

}  // namespace

LaunchCommand::LaunchCommand(const Kernel& kernel, const ze_group_count_t& groups)
    : module(kernel.module), entry(kernel.entry), arguments(kernel.arguments), launch(kernel.call(groups).launch),
      opens_isolated(isolatesMemory(kernel.module->device) &&
                     (kernel.indirect_access & ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE) != 0),
      indirect_groups(nullptr), indirect_count(nullptr), index(0) {}

void run(const Operation& operation, const Site& site) {
  std::visit([&](const auto& command) { runOne(command, site); }, operation);
}

bool waitFor(std::span<const Ref<Event>> events, const Site& site) {
  for (const Ref<Event>& event : events) {
    if (!site.stop) {
      event->wait(std::numeric_limits<uint64_t>::max());
      continue;
    }
    while (!event->wait(kStopPollNs))
      if (site.stop->load(std::memory_order_relaxed))
        return false;
  }
  return true;
}

bool deviceLost() { return gpu_lost.load(std::memory_order_relaxed); }

bool runCommand(const Command& command, const Site& site) {
  if (!waitFor(command.waits, site))
    return false;
  if (const auto* launch = std::get_if<LaunchCommand>(&command.operation); launch && fails(*launch, site))
    return false;
  if (const auto* copy = std::get_if<CopyCommand>(&command.operation); copy && fails(*copy, site))
    return false;
  if (deviceLost() && site.stop)
    return false;
  bool timed = command.signal && command.signal->timestamped;
  uint64_t start = timed ? nowNs() : 0;
  run(command.operation, site);
  if (command.signal)
    command.signal->signal(start, timed ? nowNs() : 0);
  return true;
}

bool runSequence(const CommandSequence& commands, const Site& site) {
  return std::all_of(commands.begin(), commands.end(),
                     [&](const Command& command) { return runCommand(command, site); });
}

}  // namespace zefuse::cpu
