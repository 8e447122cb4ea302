// Which of the driver's functions are its entries. What it does not implement says why.
#include "drivers/level_zero/entries.h"
#include "drivers/cuda/command_list.h"
#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/context.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/event.h"
#include "drivers/cuda/fence.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/memory.h"
#include "drivers/cuda/module.h"

namespace zefuse::cuda {
namespace {

constexpr char kNoIpc[] = "IPC: allocations and events are private to this process";
constexpr char kNoIndirect[] =
    "indirect launches: CUDA reads the number of groups when a launch is submitted, not when it runs";
constexpr char kNoFabric[] = "fabric: links between devices are not told";
constexpr char kNoVirtualMemory[] =
    "virtual memory: not supported; an allocation has its address for as long as it lives";

level_zero::Entries make() {
  level_zero::Entries made;
  made.device.pfnGet = deviceGet;
  made.device.pfnGetSubDevices = deviceGetSubDevices;
  made.device.pfnGetProperties = deviceGetProperties;
  made.device.pfnGetComputeProperties = deviceGetComputeProperties;
  made.device.pfnGetModuleProperties = deviceGetModuleProperties;
  made.device.pfnGetCommandQueueGroupProperties = deviceGetCommandQueueGroupProperties;
  made.device.pfnGetMemoryProperties = deviceGetMemoryProperties;
  made.device.pfnGetMemoryAccessProperties = deviceGetMemoryAccessProperties;
  made.device.pfnGetCacheProperties = deviceGetCacheProperties;
  made.device.pfnGetImageProperties = deviceGetImageProperties;
  made.device.pfnGetExternalMemoryProperties = deviceGetExternalMemoryProperties;
  made.device.pfnGetP2PProperties = deviceGetP2PProperties;
  made.device.pfnCanAccessPeer = deviceCanAccessPeer;
  made.device.pfnGetStatus = deviceGetStatus;
  made.device.pfnGetGlobalTimestamps = deviceGetGlobalTimestamps;
  made.device.pfnReserveCacheExt = ZEFUSE_ABSENT("cache reservation: not supported");
  made.device.pfnSetCacheAdviceExt = ZEFUSE_ABSENT("cache advice: not supported");
  made.device.pfnPciGetPropertiesExt = ZEFUSE_ABSENT("PCI properties: not told");
  made.device_exp.pfnGetFabricVertexExp = ZEFUSE_ABSENT(kNoFabric);
  made.context.pfnCreate = contextCreate;
  made.context.pfnDestroy = contextDestroy;
  made.context.pfnGetStatus = contextGetStatus;
  made.context.pfnSystemBarrier = contextSystemBarrier;
  made.context.pfnMakeMemoryResident = contextMakeMemoryResident;
  made.context.pfnEvictMemory = contextEvictMemory;
  made.context.pfnCreateEx = contextCreateEx;
  made.command_queue.pfnCreate = commandQueueCreate;
  made.command_queue.pfnDestroy = commandQueueDestroy;
  made.command_queue.pfnExecuteCommandLists = commandQueueExecuteCommandLists;
  made.command_queue.pfnSynchronize = commandQueueSynchronize;
  made.command_list.pfnCreate = commandListCreate;
  made.command_list.pfnCreateImmediate = commandListCreateImmediate;
  made.command_list.pfnDestroy = commandListDestroy;
  made.command_list.pfnClose = commandListClose;
  made.command_list.pfnReset = commandListReset;
  made.command_list.pfnAppendWriteGlobalTimestamp = commandListAppendWriteGlobalTimestamp;
  made.command_list.pfnAppendBarrier = commandListAppendBarrier;
  made.command_list.pfnAppendMemoryRangesBarrier = commandListAppendMemoryRangesBarrier;
  made.command_list.pfnAppendMemoryCopy = commandListAppendMemoryCopy;
  made.command_list.pfnAppendMemoryFill = commandListAppendMemoryFill;
  made.command_list.pfnAppendMemoryCopyRegion = commandListAppendMemoryCopyRegion;
  made.command_list.pfnAppendMemoryCopyFromContext = commandListAppendMemoryCopyFromContext;
  made.command_list.pfnAppendMemoryPrefetch = commandListAppendMemoryPrefetch;
  made.command_list.pfnAppendMemAdvise = commandListAppendMemAdvise;
  made.command_list.pfnAppendSignalEvent = commandListAppendSignalEvent;
  made.command_list.pfnAppendWaitOnEvents = commandListAppendWaitOnEvents;
  made.command_list.pfnAppendEventReset = commandListAppendEventReset;
  made.command_list.pfnAppendQueryKernelTimestamps = commandListAppendQueryKernelTimestamps;
  made.command_list.pfnAppendLaunchKernel = commandListAppendLaunchKernel;
  made.command_list.pfnAppendLaunchCooperativeKernel = commandListAppendLaunchCooperativeKernel;
  made.command_list.pfnAppendLaunchKernelIndirect = ZEFUSE_ABSENT(kNoIndirect);
  made.command_list.pfnAppendLaunchMultipleKernelsIndirect = ZEFUSE_ABSENT(kNoIndirect);
  made.fence.pfnCreate = fenceCreate;
  made.fence.pfnDestroy = fenceDestroy;
  made.fence.pfnHostSynchronize = fenceHostSynchronize;
  made.fence.pfnQueryStatus = fenceQueryStatus;
  made.fence.pfnReset = fenceReset;
  made.event_pool.pfnCreate = eventPoolCreate;
  made.event_pool.pfnDestroy = eventPoolDestroy;
  made.event_pool.pfnGetIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event_pool.pfnOpenIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event_pool.pfnCloseIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  made.event.pfnCreate = eventCreate;
  made.event.pfnDestroy = eventDestroy;
  made.event.pfnHostSignal = eventHostSignal;
  made.event.pfnHostSynchronize = eventHostSynchronize;
  made.event.pfnQueryStatus = eventQueryStatus;
  made.event.pfnHostReset = eventHostReset;
  made.event.pfnQueryKernelTimestamp = eventQueryKernelTimestamp;
  made.event_exp.pfnQueryTimestampsExp = eventQueryTimestampsExp;
  made.module.pfnCreate = moduleCreate;
  made.module.pfnDestroy = moduleDestroy;
  made.module.pfnDynamicLink = moduleDynamicLink;
  made.module.pfnGetNativeBinary = moduleGetNativeBinary;
  made.module.pfnGetGlobalPointer = moduleGetGlobalPointer;
  made.module.pfnGetKernelNames = moduleGetKernelNames;
  made.module.pfnGetProperties = moduleGetProperties;
  made.module.pfnGetFunctionPointer = ZEFUSE_ABSENT("function pointers: CUDA has none that a host may take");
  made.module.pfnInspectLinkageExt = ZEFUSE_ABSENT("linkage inspection: not supported");
  made.module_build_log.pfnDestroy = moduleBuildLogDestroy;
  made.module_build_log.pfnGetString = moduleBuildLogGetString;
  made.kernel.pfnCreate = kernelCreate;
  made.kernel.pfnDestroy = kernelDestroy;
  made.kernel.pfnSetCacheConfig = kernelSetCacheConfig;
  made.kernel.pfnSetGroupSize = kernelSetGroupSize;
  made.kernel.pfnSuggestGroupSize = kernelSuggestGroupSize;
  made.kernel.pfnSuggestMaxCooperativeGroupCount = kernelSuggestMaxCooperativeGroupCount;
  made.kernel.pfnSetArgumentValue = kernelSetArgumentValue;
  made.kernel.pfnSetIndirectAccess = kernelSetIndirectAccess;
  made.kernel.pfnGetIndirectAccess = kernelGetIndirectAccess;
  made.kernel.pfnGetSourceAttributes = kernelGetSourceAttributes;
  made.kernel.pfnGetProperties = kernelGetProperties;
  made.kernel.pfnGetName = kernelGetName;
  made.kernel_exp.pfnSetGlobalOffsetExp = kernelSetGlobalOffsetExp;
  made.kernel_exp.pfnSchedulingHintExp = ZEFUSE_ABSENT("scheduling hints: CUDA takes none");
  made.mem.pfnAllocShared = memAllocShared;
  made.mem.pfnAllocDevice = memAllocDevice;
  made.mem.pfnAllocHost = memAllocHost;
  made.mem.pfnFree = memFree;
  made.mem.pfnGetAllocProperties = memGetAllocProperties;
  made.mem.pfnGetAddressRange = memGetAddressRange;
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
  newer.deviceGetRootDevice = deviceGetRootDevice;
  newer.commandQueueGetOrdinal = commandQueueGetOrdinal;
  newer.commandQueueGetIndex = commandQueueGetIndex;
  newer.commandListHostSynchronize = commandListHostSynchronize;
  newer.commandListGetDeviceHandle = commandListGetDeviceHandle;
  newer.commandListGetContextHandle = commandListGetContextHandle;
  newer.commandListGetOrdinal = commandListGetOrdinal;
  newer.commandListImmediateGetIndex = commandListImmediateGetIndex;
  newer.commandListIsImmediate = commandListIsImmediate;
  newer.commandListImmediateAppendCommandListsExp = commandListImmediateAppendCommandListsExp;
  newer.eventPoolGetContextHandle = eventPoolGetContextHandle;
  newer.eventPoolGetFlags = eventPoolGetFlags;
  newer.eventQueryKernelTimestampsExt = ZEFUSE_ABSENT("timestamps by the host's clock");
  newer.eventGetEventPool = eventGetEventPool;
  newer.eventGetSignalScope = eventGetSignalScope;
  newer.eventGetWaitScope = eventGetWaitScope;
  newer.memPutIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  newer.memGetIpcHandleWithProperties = ZEFUSE_ABSENT(kNoIpc);
  newer.eventPoolPutIpcHandle = ZEFUSE_ABSENT(kNoIpc);
  newer.kernelGetBinaryExp = kernelGetBinaryExp;
  return made;
}

}  // namespace
}  // namespace zefuse::cuda

const zefuse::level_zero::Entries& zefuse::level_zero::entries() {
  static const Entries made = cuda::make();
  return made;
}
