// Commands: what a list records, a worker runs later and a synchronous list runs at once.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "drivers/cpu/arguments.h"
#include "drivers/cpu/completion.h"
#include "drivers/cpu/event.h"
#include "drivers/cpu/image.h"
#include "drivers/cpu/launch.h"
#include "drivers/cpu/level_zero.h"
#include "drivers/cpu/module.h"
#include "drivers/level_zero/commands.h"

namespace zefuse::cpu {

struct Kernel;

// Arguments, group size and offset are those of the time of recording.
struct LaunchCommand {
  Ref<Module> module;
  WorkGroupFn entry;
  Arguments arguments;
  LaunchContext launch;
  bool opens_isolated;                      // may follow pointers in memory: memory.h
  const ze_group_count_t* indirect_groups;  // read when run; nullptr: launch.group_count counts
  const uint32_t* indirect_count;           // when run: skipped unless index < *indirect_count; nullptr: always
  uint32_t index;

  LaunchCommand(const Kernel& kernel, const ze_group_count_t& groups);
};

// Of an image to another, or to or from memory: the region's sides that are images lie in their texels.
struct CopyImageCommand {
  Ref<Image> destination, source;  // empty: memory
  CopyRegionCommand region;
};

// Workers keep the order around barriers (Worker::Order).
using ResetEventCommand = ResetEvent<Event>;
using QueryTimestampsCommand = QueryTimestamps<Event>;

using Operation = std::variant<LaunchCommand, CopyCommand, FillCommand, CopyRegionCommand, CopyImageCommand,
                               BarrierCommand, ResetEventCommand, WriteTimestampCommand, QueryTimestampsCommand>;

struct Command {
  Operation operation;
  std::vector<Ref<Event>> waits;
  Ref<Event> signal;
};

using CommandSequence = std::vector<Command>;

// Where commands run: on a caller's thread or on a worker.
struct Site {
  Team team;
  const std::atomic<bool>* stop = nullptr;  // a worker's: while set, an event that does not come is not waited for
};

// What goes wrong is refused (level_zero/error.h) on the calling thread; no exception comes out.
ze_result_t run(const Operation& operation, const Site& site) noexcept;

// Whether the posing GPU went away (ZEFUSE_CPU_DRIVER_GPU_FAULT).
bool deviceLost();

// Why a command that waits for `event`, which is signalled, must not run, through refuse(); SUCCESS: it may.
ze_result_t checkAwaited(const char* call, const Event& event);

// Commands in order, each of which waits, runs and signals. The first that fails ends the work: its event, and those
// of all that follow, fail with the same reason.
class Progress {
public:
  // `prepared` takes the reason; without, one is made when it is needed.
  explicit Progress(const Site& site, std::shared_ptr<Failure> prepared = nullptr)
      : site_(site), prepared_(std::move(prepared)) {}

  // false: the site was stopped while an event was missing, and nothing more may be run or signalled.
  bool run(const CommandSequence& commands);
  // Null as long as all went well.
  const std::shared_ptr<Failure>& failure() const { return failure_; }
  // Continues where an earlier one failed.
  void failedBefore(std::shared_ptr<Failure> why) { failure_ = std::move(why); }

private:
  bool runOne(const Command& command);
  bool waitFor(std::span<const Ref<Event>> events);
  void fail(ze_result_t result);

  const Site& site_;
  std::shared_ptr<Failure> prepared_, failure_;
};

}  // namespace zefuse::cpu
