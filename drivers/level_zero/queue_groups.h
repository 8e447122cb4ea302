// The groups of a device's command queues: group 0 does all that the device can. Group 1, where there is one, copies
// and fills, as the copy engines of most GPUs do, and takes no kernel.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/level_zero/error.h"

namespace zefuse::level_zero {

struct QueueGroups {
  uint32_t queues;             // of group 0
  uint32_t copy_queues;        // of group 1; 0: there is none
  bool cooperative;            // group 0 takes cooperative kernels
  uint32_t fill_pattern_size;  // bytes, at most
};

// zeDeviceGetCommandQueueGroupProperties.
void listQueueGroups(const QueueGroups& groups, uint32_t* count, ze_command_queue_group_properties_t* properties);

// These refuse what does not fit the groups, naming `call`.
ze_result_t checkQueueGroup(const char* call, const QueueGroups& groups, uint32_t ordinal, uint32_t index = 0);
ze_result_t checkQueueDesc(const char* call, const QueueGroups& groups, const ze_command_queue_desc_t& desc);
ze_result_t checkTakesKernels(const char* call, uint32_t ordinal);  // of a list

// Whether a queue, or an immediate list, of the group and the device can execute the lists: regular ones, closed, of
// the same group and device. `List` has immediate(), closed, device and ordinal.
template <typename List, typename Device>
ze_result_t checkExecutable(const char* call, uint32_t count, ze_command_list_handle_t* lists, uint32_t ordinal,
                            const Device& device) {
  using CommandList = List;
  for (uint32_t i = 0; i < count; ++i) {
    ZEFUSE_OBJECT(CommandList, list, lists[i]);
    if (list->immediate())
      return refuse(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "%s: list %u is an immediate list", call, i);
    if (!list->closed)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: list %u is not closed", call, i);
    if (&list->device != &device)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: list %u is of another device", call, i);
    if (list->ordinal != ordinal)
      return refuse(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
                    "%s: list %u is of queue group %u, the queue of group %u", call, i, list->ordinal, ordinal);
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::level_zero
