// What our drivers offer beyond Level Zero: queues and immediate lists whose work goes into a stream of the
// application's, in order with what the application itself puts there.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

namespace zefuse::ze_extension {

// Chained to ze_command_queue_desc_t (pNext) of an asynchronous queue or immediate list. Execution is in order then,
// over all queues and lists of the stream. The stream stays the application's: it is not destroyed with the queue, and
// it must live as long.
//   over CUDA        a CUstream of the device's primary context; null is the legacy default stream
//   the CPU's driver any address: queues and lists with the same one share an order (for tests)
struct AdoptedStream {
  static constexpr auto kType = static_cast<ze_structure_type_t>(0x7a657001);
  ze_structure_type_t stype;
  const void* pNext;
  void* stream;
};

// Whether the application captures a stream of its own (CUDA's graphs): what is put there is recorded and not run.
using StreamIsCapturing = ze_result_t(ZE_APICALL*)(void* stream, bool* capturing);
inline constexpr char stream_is_capturing_name[] = "zefuseStreamIsCapturing";

// Which of CUDA's devices it is, as cuDeviceGet and torch count them.
using DeviceOrdinal = ze_result_t(ZE_APICALL*)(ze_device_handle_t device, int32_t* ordinal);
inline constexpr char device_ordinal_name[] = "zefuseDeviceOrdinal";

}  // namespace zefuse::ze_extension
