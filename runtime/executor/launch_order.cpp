#include "runtime/executor/launch_order.h"

#include <algorithm>

namespace zefuse::executor {
namespace {

struct Range {
  size_t begin, end;
  bool written;
  bool disturbs(const Range& other) const {
    return (written || other.written) && begin < other.end && other.begin < end;
  }
};

}  // namespace

std::vector<uint8_t> launchesThatWait(const plan::Program& program, const DeviceLayout& layout,
                                      std::span<const size_t> buffer_bytes) {
  const plan::PlanT& plan = program.plan;
  std::vector<uint8_t> waits(plan.steps.size());
  std::vector<Range> running, mine;  // what launches since the last wait touch, and this one
  bool scratch_used = false;
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    if (!program.on_device[step])
      continue;
    mine.clear();
    for (const plan::Program::Touch& touch : program.touches[step])
      if (!program.isUnwrittenParameter(*plan.buffers[touch.buffer])) {
        const size_t begin = layout.offset[touch.buffer];
        mine.push_back({begin, begin + buffer_bytes[touch.buffer], touch.written});
      }
    const auto* launch = plan.steps[step]->kind.AsLaunch();
    const bool scratch =  // a library has a workspace
        launch && (plan::hasScratch(plan, *launch) || launch->library || launch->library_convolution);
    waits[step] = (scratch && scratch_used) || std::ranges::any_of(mine, [&](const Range& range) {
                    return std::ranges::any_of(running, [&](const Range& other) { return range.disturbs(other); });
                  });
    if (waits[step]) {
      running.clear();
      scratch_used = false;
    }
    running.insert(running.end(), mine.begin(), mine.end());
    scratch_used |= scratch;
  }
  return waits;
}

}  // namespace zefuse::executor
