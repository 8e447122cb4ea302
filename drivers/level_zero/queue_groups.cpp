#include "drivers/level_zero/queue_groups.h"

#include "drivers/level_zero/counted.h"

namespace zefuse::level_zero {

void listQueueGroups(const QueueGroups& groups, uint32_t* count, ze_command_queue_group_properties_t* properties) {
  const uint32_t written = settleCount(count, groups.copy_queues ? 2 : 1, properties);
  for (uint32_t i = 0; i < written; ++i) {
    properties[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    properties[i].numQueues = groups.copy_queues;
    properties[i].maxMemoryFillPatternSize = groups.fill_pattern_size;
  }
  if (written == 0)
    return;
  properties->flags |= ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
  if (groups.cooperative)
    properties->flags |= ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
  properties->numQueues = groups.queues;
}

ze_result_t checkQueueGroup(const char* call, const QueueGroups& groups, uint32_t ordinal, uint32_t index) {
  const uint32_t queues = ordinal == 0 ? groups.queues : ordinal == 1 ? groups.copy_queues : 0;
  if (index < queues)
    return ZE_RESULT_SUCCESS;
  if (queues)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: queue %u of group %u, which has %u", call, index, ordinal,
                  queues);
  return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: queue group %u; there %s", call, ordinal,
                groups.copy_queues ? "are groups 0 and 1" : "is group 0 alone");
}

ze_result_t checkQueueDesc(const char* call, const QueueGroups& groups, const ze_command_queue_desc_t& desc) {
  if (ze_result_t result = checkQueueGroup(call, groups, desc.ordinal, desc.index))
    return result;
  if (static_cast<uint32_t>(desc.mode) > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: mode %d", call, static_cast<int>(desc.mode));
  if (static_cast<uint32_t>(desc.priority) > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: priority %d", call, static_cast<int>(desc.priority));
  return ZE_RESULT_SUCCESS;
}

ze_result_t checkTakesKernels(const char* call, uint32_t ordinal) {
  if (ordinal == 0)
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "%s: the list is of queue group %u, which copies and fills",
                call, ordinal);
}

}  // namespace zefuse::level_zero
