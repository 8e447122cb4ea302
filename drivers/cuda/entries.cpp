// Which of the driver's functions are its entries. What it does not implement says why.
#include "drivers/level_zero/entries.h"
#include "drivers/cuda/append.h"
#include "drivers/cuda/command_list.h"
#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/context.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/event.h"
#include "drivers/cuda/fence.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/memory.h"
#include "drivers/cuda/module.h"
#include "drivers/level_zero/append_calls.h"
#include "drivers/level_zero/context_calls.h"
#include "drivers/level_zero/device_calls.h"
#include "drivers/level_zero/event_calls.h"
#include "drivers/level_zero/kernel_calls.h"
#include "drivers/level_zero/list_calls.h"
#include "drivers/level_zero/memory_calls.h"

namespace zefuse::cuda {
namespace {

// Under the names that the shared calls ask for (level_zero/calls.h).
struct Types {
  using Context = cuda::Context;
  using Device = cuda::Device;
  using CommandList = cuda::CommandList;
  using CommandQueue = cuda::CommandQueue;
  using Fence = cuda::Fence;
  using EventPool = cuda::EventPool;
  using Event = cuda::Event;
  using Module = cuda::Module;
  using Kernel = cuda::Kernel;
  using AllocationTable = cuda::AllocationTable;
};

constexpr char kNoIpc[] = "IPC: allocations and events are private to this process";
constexpr char kNoIndirect[] =
    "indirect launches: CUDA reads the number of groups when a launch is submitted, not when it runs";
constexpr char kNoFabric[] = "fabric: links between devices are not told";
constexpr char kNoVirtualMemory[] =
    "virtual memory: not supported; an allocation has its address for as long as it lives";

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
  made.device.pfnReserveCacheExt = ZEFUSE_ABSENT("cache reservation: not supported");
  made.device.pfnSetCacheAdviceExt = ZEFUSE_ABSENT("cache advice: not supported");
  made.device.pfnPciGetPropertiesExt = ZEFUSE_ABSENT("PCI properties: not told");
  made.device_exp.pfnGetFabricVertexExp = ZEFUSE_ABSENT(kNoFabric);
  made.context.pfnGetStatus = contextGetStatus;
  made.command_queue.pfnSynchronize = commandQueueSynchronize;
  made.command_list.pfnReset = commandListReset;
  made.command_list.pfnAppendWriteGlobalTimestamp = commandListAppendWriteGlobalTimestamp;
  made.command_list.pfnAppendLaunchKernel = commandListAppendLaunchKernel;
  made.command_list.pfnAppendLaunchCooperativeKernel = commandListAppendLaunchCooperativeKernel;
  made.command_list.pfnAppendLaunchKernelIndirect = ZEFUSE_ABSENT(kNoIndirect);
  made.command_list.pfnAppendLaunchMultipleKernelsIndirect = ZEFUSE_ABSENT(kNoIndirect);
  made.fence.pfnCreate = fenceCreate;
  made.fence.pfnHostSynchronize = fenceHostSynchronize;
  made.fence.pfnQueryStatus = fenceQueryStatus;
  made.fence.pfnReset = fenceReset;
  made.event_pool.pfnGetIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event_pool.pfnOpenIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event_pool.pfnCloseIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event.pfnHostSignal = eventHostSignal;
  made.event.pfnHostSynchronize = eventHostSynchronize;
  made.event.pfnHostReset = eventHostReset;
  made.module.pfnCreate = moduleCreate;
  made.module.pfnDynamicLink = moduleDynamicLink;
  made.module.pfnGetGlobalPointer = moduleGetGlobalPointer;
  made.module.pfnGetFunctionPointer = ZEFUSE_ABSENT("function pointers: CUDA has none that a host may take");
  made.kernel.pfnCreate = kernelCreate;
  made.kernel.pfnSuggestMaxCooperativeGroupCount = kernelSuggestMaxCooperativeGroupCount;
  made.kernel.pfnSetArgumentValue = kernelSetArgumentValue;
  made.kernel_exp.pfnSchedulingHintExp = ZEFUSE_ABSENT("scheduling hints: CUDA takes none");
  made.mem.pfnFree = memFree;
  made.mem.pfnGetIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.mem.pfnOpenIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.mem.pfnCloseIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.mem.pfnFreeExt = memFreeExt;
  made.physical_mem.pfnCreate = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.physical_mem.pfnDestroy = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnReserve = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnFree = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnQueryPageSize = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnMap = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnUnmap = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnSetAccessAttribute = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.virtual_mem.pfnGetAccessAttribute = ZEFUSE_ABSENT(kNoVirtualMemory);
  made.fabric_vertex_exp.pfnGetExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetSubVerticesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetPropertiesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_vertex_exp.pfnGetDeviceExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetVerticesExp = ZEFUSE_ABSENT(kNoFabric);
  made.fabric_edge_exp.pfnGetPropertiesExp = ZEFUSE_ABSENT(kNoFabric);
  level_zero::NewerEntries& newer = made.newer;
  newer.commandListHostSynchronize = commandListHostSynchronize;
  newer.memPutIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  newer.memGetIpcHandleWithProperties = ZEFUSE_ABSENT(kNoIpc);
  newer.eventPoolPutIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  return made;
}

}  // namespace
}  // namespace zefuse::cuda

const zefuse::level_zero::Entries& zefuse::level_zero::entries() {
  static const Entries made = cuda::make();
  return made;
}
