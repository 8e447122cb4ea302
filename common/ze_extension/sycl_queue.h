// What libzefuse_sycl offers: queues of SYCL's runtime as Level Zero sees them, and order between their work and that
// of command lists of ours in the same context. A plain C interface, found at run time (runtime/ze/sycl.h): the library
// is linked to SYCL's runtime, which nothing else of zefuse's is.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>

namespace zefuse::ze_extension {

// A queue of SYCL's that the library keeps, for the rest of the process: no address of one comes to mean another.
struct SyclQueue;
// What was submitted to a queue for the sake of order.
struct SyclMark;

struct SyclHandles {
  SyclQueue* queue;
  ze_context_handle_t context;  // live as long as the process
  ze_device_handle_t device;
};

// Functions that can fail return 0, or another number after they wrote why into `error`, as text. Any thread.
struct SyclFunctions {
  // `address`: of a sycl::queue, as torch.xpu.Stream.sycl_queue tells it. The same queue gives the same answer.
  int (*adopt)(void* address, SyclHandles* handles, char* error, size_t size);
  // The event of all that the queue holds now, which is on its way to the device; null: it has ended. The event is
  // SYCL's, and lives until the mark is released.
  int (*before)(SyclQueue* queue, SyclMark** mark, ze_event_handle_t* event, char* error, size_t size);
  // What comes into the queue from now on waits for `event`, which is the caller's, until the mark has ended.
  int (*after)(SyclQueue* queue, ze_event_handle_t event, SyclMark** mark, char* error, size_t size);
  // 1: nothing waits for the event of after() any more.
  int (*ended)(SyclMark* mark);
  void (*release)(SyclMark* mark);
};

// The library's one symbol. `interface`: sycl_interface; null: the library is another zefuse's.
using SyclFunctionsOf = const SyclFunctions* (*)(uint32_t interface);
inline constexpr uint32_t sycl_interface = 1;
inline constexpr char sycl_functions_name[] = "zefuseSyclFunctions";

}  // namespace zefuse::ze_extension
