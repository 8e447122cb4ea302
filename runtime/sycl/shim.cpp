// libzefuse_sycl: common/ze_extension/sycl_queue.h over SYCL's runtime. Host code alone: any C++ compiler will do.
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <level_zero/ze_api.h>
#include <sycl/sycl.hpp>

#include <sycl/ext/oneapi/backend/level_zero.hpp>

#include "common/ze_extension/sycl_queue.h"

namespace zefuse::ze_extension {

struct SyclQueue {
  sycl::queue queue;
};
struct SyclMark {
  sycl::event event;
};

namespace {

constexpr auto level_zero = sycl::backend::ext_oneapi_level_zero;

// Never destroyed: what uses the queues' contexts may outlive static objects.
struct Kept {
  std::mutex mutex;
  std::unordered_map<sycl::queue, SyclHandles> queues;
};
Kept& kept() {
  static auto& made = *new Kept;
  return made;
}

template <typename Work> int guarded(char* error, size_t size, const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& thrown) {
    std::snprintf(error, size, "%s", thrown.what());
  } catch (...) {
    std::snprintf(error, size, "what was thrown is no std::exception");
  }
  return 1;
}

int adopt(void* address, SyclHandles* handles, char* error, size_t size) {
  return guarded(error, size, [&] {
    const sycl::queue& queue = *static_cast<sycl::queue*>(address);
    const std::lock_guard lock(kept().mutex);
    if (const auto found = kept().queues.find(queue); found != kept().queues.end()) {
      *handles = found->second;
      return;
    }
    if (queue.get_backend() != level_zero)
      throw sycl::exception(sycl::make_error_code(sycl::errc::backend_mismatch),
                            "the queue belongs to another back end than Level Zero");
    *handles = {new SyclQueue{queue}, sycl::get_native<level_zero>(queue.get_context()),
                sycl::get_native<level_zero>(queue.get_device())};
    kept().queues.emplace(queue, *handles);
  });
}

int before(SyclQueue* queue, SyclMark** mark, ze_event_handle_t* event, char* error, size_t size) {
  return guarded(error, size, [&] {
    auto made = std::make_unique<SyclMark>(queue->queue.ext_oneapi_submit_barrier());
    // Behind a task on the host it has nothing native yet, nor is there anybody but the host who could wait.
    if (made->event.get_info<sycl::info::event::reference_count>() == 0) {
      made->event.wait();
      *event = nullptr;
    } else {
      *event = sycl::get_native<level_zero>(made->event);  // which submits what is batched, too
    }
    *mark = made.release();
  });
}

int after(SyclQueue* queue, ze_event_handle_t event, SyclMark** mark, char* error, size_t size) {
  return guarded(error, size, [&] {
    const sycl::event ours = sycl::make_event<level_zero>({event, sycl::ext::oneapi::level_zero::ownership::keep},
                                                          queue->queue.get_context());
    *mark = new SyclMark{queue->queue.ext_oneapi_submit_barrier({ours})};
  });
}

int ended(SyclMark* mark) {
  try {
    return mark->event.get_info<sycl::info::event::command_execution_status>() ==
           sycl::info::event_command_status::complete;
  } catch (...) {
    return 0;
  }
}

void release(SyclMark* mark) { delete mark; }

constexpr SyclFunctions functions{adopt, before, after, ended, release};

}  // namespace
}  // namespace zefuse::ze_extension

extern "C" __attribute__((visibility("default"))) const zefuse::ze_extension::SyclFunctions*
zefuseSyclFunctions(uint32_t interface) {
  return interface == zefuse::ze_extension::sycl_interface ? &zefuse::ze_extension::functions : nullptr;
}
