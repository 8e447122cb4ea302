// DeviceSide's waits: for what is queued, with a deadline, and what is to be told of it.
#include <utility>

#include "runtime/executor/device_side.h"

namespace zefuse::executor {

Status DeviceSide::drain() {
  if (!queued_)
    return {};
  ZEFUSE_RETURN_IF_ERROR(drained_->reset());
  copied_in_ = launched_since_ = false;
  ZEFUSE_RETURN_IF_ERROR(failed(list_->barrier(&*drained_)));
  return awaitDrained();
}

Status DeviceSide::awaitDrained() {
  // The deadline is one of a step: as long as launches end, the wait goes on. Whether they do is only asked after it.
  for (size_t ended = 0;;) {
    const Status status = drained_->wait(deadline());
    if (status.ok())
      break;
    if (status.code() != Code::deadline)
      return failed(status);
    const size_t now = endedLaunches();
    if (now <= ended)
      return {Code::deadline,
              unfinished(now) + " did not end on device '" + device().device().name + "' within " +
                  std::to_string(shared_.deadline.count()) +
                  " ms (option device_timeout_s); the device may hang, there or in a copy before: see its system log"};
    ended = now;
  }
  queued_ = false;
  return {};
}

Status DeviceSide::checkWords() {
  const plan::PlanT& plan = program_.plan;
  for (size_t step : launched_) {
    const uint32_t failed = *const_cast<volatile uint32_t*>(statusWord(step));
    if (failed == 0)
      continue;
    const Status status = plan::checkFailed(*plan.steps[step]->kind.AsLaunch(), failed);
    return {status.code(), plan::stepOfProgram(program_, step) + ": " + status.message()};
  }
  return {};
}

Status DeviceSide::tellEarlier(bool ended) {
  if (!in_flight_)
    return {};
  Status first;
  for (size_t step : checked_)
    if (const uint32_t failed = std::exchange(*const_cast<volatile uint32_t*>(statusWord(step)), 0u);
        failed != 0 && first.ok()) {
      const Status status = plan::checkFailed(*program_.plan.steps[step]->kind.AsLaunch(), failed);
      first = {status.code(), "an earlier call, which did not wait for its end: " +
                                  plan::stepOfProgram(program_, step) + ": " + status.message()};
    }
  in_flight_ = !ended;
  return first;
}

size_t DeviceSide::endedLaunches() const {
  size_t first = 0;
  for (; first + launches_per_event_ <= launched_.size(); first += launches_per_event_) {
    Result<bool> ended = ended_[first / launches_per_event_].signalled();
    if (!ended.ok() || !*ended)
      break;
  }
  return first;
}

std::string DeviceSide::unfinished(size_t ended) const {
  if (ended >= launched_.size())
    return "a copy";
  auto name = [&](size_t launch) { return plan::stepName(program_.plan, launched_[launch]); };
  const size_t last = std::min(ended + launches_per_event_, launched_.size()) - 1;
  return ended == last
             ? name(ended)
             : "one of " + std::to_string(last - ended + 1) + " launches from " + name(ended) + " to " + name(last);
}

Status DeviceSide::failed(const Status& status) const {
  if (status.ok())
    return {};
  return {status.code(), status.message() + "; the device was at " + unfinished(endedLaunches()), status.place()};
}

void DeviceSide::settle(const Status& failure) noexcept {
  try {
    Status status;
    if (failure.code() == Code::deadline)
      status = failure;  // it was waited for long enough
    else if (mode_ == Mode::immediate)
      status = drain();
    else if (queued_)
      status = queue_->synchronize(deadline());
    // A queue tells of a launch that found no memory here once more; it has ended all the same.
    if (!status.ok() && (mode_ == Mode::immediate || status.code() != Code::out_of_memory))
      shared_.device->markLost(status);
    if (!device().isLost())
      queued_ = false;
  } catch (const std::exception&) {
    shared_.device->markLost({Code::out_of_memory, "no memory"});  // whether it has ended nobody knows
  }
  giveQueueBack();
}

}  // namespace zefuse::executor
