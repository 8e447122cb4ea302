// Ctrl-C while outside compilers run, which may take minutes: Python's handlers run on its main thread alone, which
// must not sit in a wait meanwhile.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "common/base/cancel_check.h"
#include "python/csrc/meanwhile.h"
#include "runtime/primitives/core/team_thread.h"

namespace zefuse::python {

class Interrupts {
public:
  // Whether a handler raised, or cancel() was called. May outlive this object.
  CancelCheck asked() const {
    return [flag = flag_] { return flag->load(); };
  }

  void cancel() { *flag_ = true; }

  // Runs `work` on a thread of its own while this one waits; where the system has no thread to give, here, and deaf.
  template <typename Work> auto run(const Work& work) -> decltype(work()) {
    primitives::TeamThread<decltype(work())> thread(std::cref(work));
    return wait(thread);
  }

  // Waits for work that asks asked(), and looks for signals every 20 ms; meanwhile() is called once. The GIL must be
  // released. What a handler raised is raised here, once the work has heard of it and ended: what the work refers to is
  // no longer in use then.
  template <typename T> T wait(primitives::TeamThread<T>& thread) {
    std::exception_ptr raised;
    bool first = true;
    while (!thread.endsWithin(std::chrono::milliseconds(20))) {
      pybind11::gil_scoped_acquire acquired;
      try {
        if (std::exchange(first, false))
          meanwhile();
        if (PyErr_CheckSignals() != 0)
          throw pybind11::error_already_set();
      } catch (const pybind11::error_already_set&) {
        raised = std::current_exception();
        cancel();
      }
    }
    if (raised)
      std::rethrow_exception(raised);
    return thread.get();
  }

private:
  std::shared_ptr<std::atomic<bool>> flag_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace zefuse::python
