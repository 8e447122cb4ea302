// How a piece of work ended, for whoever waits for it: the state of an event or a fence.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "drivers/cpu/flag.h"

namespace zefuse::cpu {

// Why commands did not run. One thread fills it in, once.
struct Failure {
  std::atomic<ze_result_t> code{ZE_RESULT_SUCCESS};  // SUCCESS until there is something to tell; published last
  char text[512] = "";                               // an array, because memory may be what is missing
  std::atomic<bool> told{false};                     // the host knows, through an event, a fence or its queue

  bool occurred() const { return code.load(std::memory_order_acquire) != ZE_RESULT_SUCCESS; }
  // From the calling thread's last refusal (level_zero/error.h).
  void take(ze_result_t result);
  // Refuses with it.
  ze_result_t tell(const char* call);
};

// A failure made of the calling thread's last refusal, of which somebody else is to be told. Where there is no memory
// for one, it is one that says only that.
std::shared_ptr<Failure> makeFailure(ze_result_t result) noexcept;

// What processes share of a completion.
struct SharedCompletion {
  FlagWords flag;
  std::atomic<uint32_t> code{0};  // of a failure, which another process knows no more of
};

// Thread-safe. Whoever calls set() or fail() must keep the object alive through the call.
class Completion {
public:
  explicit Completion(bool set = false) : flag_(set) {}
  explicit Completion(SharedCompletion& shared) : flag_(shared.flag), shared_(&shared) {}

  bool isSet() const { return flag_.isSet(); }
  bool wait(uint64_t timeout_ns) { return flag_.wait(timeout_ns); }
  void set() {  // it ended well
    if (failed_.load(std::memory_order_relaxed) || shared_) [[unlikely]]
      forget();
    flag_.set();
  }
  void fail(std::shared_ptr<Failure> why);
  void reset() {
    flag_.reset();
    if (failed_.load(std::memory_order_relaxed) || shared_) [[unlikely]]
      forget();
  }
  // Once it is set: null when all went well.
  std::shared_ptr<Failure> failure() const;
  // What a host's question gets: SUCCESS, NOT_READY unless it is set, or why it failed, through refuse().
  ze_result_t answer(const char* call, bool is_set) const;

private:
  void forget();
  std::shared_ptr<Failure> sharedFailure() const;

  Flag flag_;
  SharedCompletion* const shared_ = nullptr;  // outlives this
  std::atomic<bool> failed_{false};           // whether to look at failure_, so that work that ends well takes no lock
  mutable std::mutex mutex_;
  std::shared_ptr<Failure> failure_;
};

}  // namespace zefuse::cpu
