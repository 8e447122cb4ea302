// Which of the driver's functions are its entries. What it does not implement says why.
#include "drivers/level_zero/entries.h"
#include "drivers/cpu/append.h"
#include "drivers/cpu/command_list.h"
#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/event.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/image.h"
#include "drivers/cpu/ipc_events.h"
#include "drivers/cpu/ipc_memory.h"
#include "drivers/cpu/kernel.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/module.h"
#include "drivers/cpu/sampler.h"
#include "drivers/cpu/virtual_memory.h"
#include "drivers/level_zero/append_calls.h"
#include "drivers/level_zero/context_calls.h"
#include "drivers/level_zero/device_calls.h"
#include "drivers/level_zero/event_calls.h"
#include "drivers/level_zero/kernel_calls.h"
#include "drivers/level_zero/list_calls.h"
#include "drivers/level_zero/memory_calls.h"

namespace zefuse::cpu {
namespace {

// Under the names that the shared calls ask for (level_zero/calls.h).
struct Types {
  using Context = cpu::Context;
  using Device = cpu::Device;
  using CommandList = cpu::CommandList;
  using CommandQueue = cpu::CommandQueue;
  using Fence = cpu::Fence;
  using EventPool = cpu::EventPool;
  using Event = cpu::Event;
  using Module = cpu::Module;
  using Kernel = cpu::Kernel;
  using AllocationTable = cpu::AllocationTable;
};

constexpr char kNoFabric[] = "fabric: one device has no links";

level_zero::Entries make() {
  level_zero::Entries made;
  AppendCalls<Types>::fill(made);
  ContextCalls<Types>::fill(made);
  DeviceCalls<Types>::fill(made);
  EventCalls<Types>::fill(made);
  KernelCalls<Types>::fill(made);
  ListCalls<Types>::fill(made);
  MemoryCalls<Types>::fill(made);
  made.device.pfnGet = deviceGet;
  made.device.pfnGetProperties = deviceGetProperties;
  made.device.pfnGetComputeProperties = deviceGetComputeProperties;
  made.device.pfnGetModuleProperties = deviceGetModuleProperties;
  made.device.pfnGetMemoryProperties = deviceGetMemoryProperties;
  made.device.pfnGetMemoryAccessProperties = deviceGetMemoryAccessProperties;
  made.device.pfnGetCacheProperties = deviceGetCacheProperties;
  made.device.pfnGetImageProperties = deviceGetImageProperties;
  made.device.pfnGetStatus = deviceGetStatus;
  made.device.pfnGetGlobalTimestamps = deviceGetGlobalTimestamps;
  made.device.pfnReserveCacheExt = ZEFUSE_ABSENT("cache reservation: a CPU's caches are not divided by software");
  made.device.pfnSetCacheAdviceExt = ZEFUSE_ABSENT("cache advice: a CPU's caches are not divided by software");
  made.device.pfnPciGetPropertiesExt = ZEFUSE_ABSENT("PCI properties: the CPU is no PCI device");
  made.device_exp.pfnGetFabricVertexExp = ZEFUSE_ABSENT(kNoFabric);
  made.context.pfnGetStatus = contextGetStatus;
  made.context.pfnMakeImageResident = contextMakeImageResident;
  made.context.pfnEvictImage = contextEvictImage;
  made.command_queue.pfnSynchronize = commandQueueSynchronize;
  made.command_list.pfnReset = commandListReset;
  made.command_list.pfnAppendWriteGlobalTimestamp = commandListAppendWriteGlobalTimestamp;
  made.command_list.pfnAppendImageCopy = commandListAppendImageCopy;
  made.command_list.pfnAppendImageCopyRegion = commandListAppendImageCopyRegion;
  made.command_list.pfnAppendImageCopyToMemory = commandListAppendImageCopyToMemory;
  made.command_list.pfnAppendImageCopyFromMemory = commandListAppendImageCopyFromMemory;
  made.command_list.pfnAppendImageCopyToMemoryExt = commandListAppendImageCopyToMemoryExt;
  made.command_list.pfnAppendImageCopyFromMemoryExt = commandListAppendImageCopyFromMemoryExt;
  made.command_list.pfnAppendLaunchKernel = commandListAppendLaunchKernel;
  made.command_list.pfnAppendLaunchCooperativeKernel = commandListAppendLaunchCooperativeKernel;
  made.command_list.pfnAppendLaunchKernelIndirect = commandListAppendLaunchKernelIndirect;
  made.command_list.pfnAppendLaunchMultipleKernelsIndirect = commandListAppendLaunchMultipleKernelsIndirect;
  made.fence.pfnCreate = fenceCreate;
  made.fence.pfnHostSynchronize = fenceHostSynchronize;
  made.fence.pfnQueryStatus = fenceQueryStatus;
  made.fence.pfnReset = fenceReset;
  made.event_pool.pfnGetIpcHandle = eventPoolGetIpcHandle;
  made.event_pool.pfnOpenIpcHandle = eventPoolOpenIpcHandle;
  made.event_pool.pfnCloseIpcHandle = eventPoolCloseIpcHandle;
  made.event.pfnHostSignal = eventHostSignal;
  made.event.pfnHostSynchronize = eventHostSynchronize;
  made.event.pfnHostReset = eventHostReset;
  made.image.pfnGetProperties = imageGetProperties;
  made.image.pfnCreate = imageCreate;
  made.image.pfnDestroy = imageDestroy;
  made.image.pfnGetAllocPropertiesExt = imageGetAllocPropertiesExt;
  made.image_exp.pfnGetMemoryPropertiesExp = imageGetMemoryPropertiesExp;
  made.image_exp.pfnViewCreateExp = ZEFUSE_ABSENT("views of images: an image has one format");
  made.sampler.pfnCreate = samplerCreate;
  made.sampler.pfnDestroy = samplerDestroy;
  made.module.pfnCreate = moduleCreate;
  made.module.pfnDynamicLink = moduleDynamicLink;
  made.module.pfnGetGlobalPointer = moduleGetGlobalPointer;
  made.module.pfnGetFunctionPointer = moduleGetFunctionPointer;
  made.kernel.pfnCreate = kernelCreate;
  made.kernel.pfnSuggestMaxCooperativeGroupCount = kernelSuggestMaxCooperativeGroupCount;
  made.kernel.pfnSetArgumentValue = kernelSetArgumentValue;
  made.kernel_exp.pfnSchedulingHintExp =
      ZEFUSE_ABSENT("scheduling hints: a thread runs its groups one after the other");
  made.mem.pfnFree = memFree;
  made.mem.pfnGetIpcHandle = memGetIpcHandle;
  made.mem.pfnOpenIpcHandle = memOpenIpcHandle;
  made.mem.pfnCloseIpcHandle = memCloseIpcHandle;
  made.mem.pfnFreeExt = memFreeExt;
  made.physical_mem.pfnCreate = physicalMemCreate;
  made.physical_mem.pfnDestroy = physicalMemDestroy;
  made.virtual_mem.pfnReserve = virtualMemReserve;
  made.virtual_mem.pfnFree = virtualMemFree;
  made.virtual_mem.pfnQueryPageSize = virtualMemQueryPageSize;
  made.virtual_mem.pfnMap = virtualMemMap;
  made.virtual_mem.pfnUnmap = virtualMemUnmap;
  made.virtual_mem.pfnSetAccessAttribute = virtualMemSetAccessAttribute;
  made.virtual_mem.pfnGetAccessAttribute = virtualMemGetAccessAttribute;
  made.fabric_vertex_exp.pfnGetExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetSubVerticesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetPropertiesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetDeviceExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetVerticesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetPropertiesExp = ZEFUSE_ABSENT(kNoFabric);
  level_zero::NewerEntries& newer = made.newer;
  newer.commandListHostSynchronize = commandListHostSynchronize;
  newer.memPutIpcHandle = memPutIpcHandle;
  newer.memGetIpcHandleWithProperties = memGetIpcHandleWithProperties;
  newer.eventPoolPutIpcHandle = eventPoolPutIpcHandle;
  return made;
}

}  // namespace
}  // namespace zefuse::cpu

const zefuse::level_zero::Entries& zefuse::level_zero::entries() {
  static const Entries made = cpu::make();
  return made;
}
