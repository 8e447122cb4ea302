#include "drivers/cpu/command_list.h"

#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {
namespace {

CommandList::Kind kindFor(ze_command_queue_mode_t mode) {
  switch (mode) {
  case ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: return CommandList::Kind::synchronous;
  case ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS: return CommandList::Kind::asynchronous;
  default: return CommandList::Kind::adaptive;
  }
}

}  // namespace

CommandList::CommandList(Context& owner, const Device& device, Kind kind, uint32_t ordinal, uint32_t queue_index)
    : context(&owner), device(device), kind(kind), ordinal(ordinal), queue_index(queue_index) {
  if (kind == Kind::regular)
    recorded = std::make_shared<CommandSequence>();
}

CommandList::~CommandList() = default;

ze_result_t makeList(Context& context, Device& device, uint32_t ordinal, CommandList*& out) {
  out = new CommandList(context, device, CommandList::Kind::regular, ordinal, 0);
  return ZE_RESULT_SUCCESS;
}

ze_result_t makeImmediateList(Context& context, Device& device, const ze_command_queue_desc_t& desc,
                              CommandList*& out) {
  constexpr ze_command_queue_flags_t kInOrder = ZE_BIT(1);  // ZE_COMMAND_QUEUE_FLAG_IN_ORDER of newer headers
  Ref<CommandList> list(new CommandList(context, device, kindFor(desc.mode), desc.ordinal, desc.index));
  list->release();  // the application's reference is taken below
  if (list->kind != CommandList::Kind::synchronous)
    list->worker = workerFor(context, desc,
                             device.is_gpu && (desc.flags & kInOrder) == 0 ? Worker::Order::between_barriers
                                                                           : Worker::Order::submitted);
  list->retain();
  out = list.get();
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListReset(ze_command_list_handle_t hCommandList) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  if (list->immediate())
    return ZE_RESULT_SUCCESS;  // nothing is recorded
  return guarded(__func__, [&] {
    list->recorded = std::make_shared<CommandSequence>();
    list->closed = false;
    list->has_waits = false;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  if (!list->immediate())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeCommandListHostSynchronize: not an immediate list");
  return list->worker ? list->worker->wait(__func__, timeout) : ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
