// The driver's tables: what the loader, or our own runtime, gets from zeGet*ProcAddrTable.
//
// Debian's loader (1.8.12) wants every getter it knows to exist and to succeed; a newer one passes a newer version and
// a longer table. So each slot is stored only if the asked version has it: the tables only ever grew at their ends, and
// a store past what the asker knows would write over its memory. Slots newer than the installed header (1.4) are
// written by number.
//
// A slot that stays NULL makes the loader answer UNSUPPORTED_FEATURE; here it gets a function that does so with a
// reason.
#include <level_zero/ze_ddi.h>

#include "drivers/cpu/command_list.h"
#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/driver.h"
#include "drivers/cpu/error.h"
#include "drivers/cpu/event.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/image.h"
#include "drivers/cpu/kernel.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/module.h"

namespace zefuse::cpu {
namespace {

// An entry that is not implemented. Converts to every entry's type.
#define ZEFUSE_ABSENT(reason)                                                                                          \
  [](auto...) -> ze_result_t { return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s", reason); }

constexpr char kNoImages[] = "images: this device has none; use buffers";
constexpr char kNoIpc[] = "IPC: allocations and events are private heap memory of this process";
constexpr char kNoFabric[] = "fabric: one device has no links";
constexpr char kNoVirtualMemory[] =
    "virtual memory: reserve and map ranges with mmap; kernels reach any memory of the process";

// Stores slots of one table that the asked version has.
template <typename Table> class Slots {
public:
  Slots(ze_api_version_t version, Table& table) : minor_(ZE_MINOR_VERSION(version)), table_(table) {}

  template <typename Slot, typename Function> void set(uint32_t since_minor, Slot Table::* slot, Function function) {
    if (minor_ >= since_minor)
      table_.*slot = function;
  }

  // A slot past the installed header's table, by its number in Level Zero 1.17's ze_ddi.h.
  template <typename Function> void setNewer(uint32_t since_minor, size_t number, Function* function) {
    static_assert(sizeof(function) == sizeof(void*));
    if (minor_ >= since_minor)
      reinterpret_cast<Function**>(&table_)[number] = function;
  }

private:
  uint32_t minor_;
  Table& table_;
};

using Global = ze_global_dditable_t;
void fillGlobal(Slots<Global> slots) {
  slots.set(0, &Global::pfnInit, init);
  slots.setNewer(10, 1, initDrivers);
}

using DriverTable = ze_driver_dditable_t;
void fillDriver(Slots<DriverTable> slots) {
  slots.set(0, &DriverTable::pfnGet, driverGet);
  slots.set(0, &DriverTable::pfnGetApiVersion, driverGetApiVersion);
  slots.set(0, &DriverTable::pfnGetProperties, driverGetProperties);
  slots.set(0, &DriverTable::pfnGetIpcProperties, driverGetIpcProperties);
  slots.set(0, &DriverTable::pfnGetExtensionProperties, driverGetExtensionProperties);
  slots.set(1, &DriverTable::pfnGetExtensionFunctionAddress, driverGetExtensionFunctionAddress);
  slots.setNewer(6, 6, driverGetLastErrorDescription);
}

using DeviceTable = ze_device_dditable_t;
void fillDevice(Slots<DeviceTable> slots) {
  slots.set(0, &DeviceTable::pfnGet, deviceGet);
  slots.set(0, &DeviceTable::pfnGetSubDevices, deviceGetSubDevices);
  slots.set(0, &DeviceTable::pfnGetProperties, deviceGetProperties);
  slots.set(0, &DeviceTable::pfnGetComputeProperties, deviceGetComputeProperties);
  slots.set(0, &DeviceTable::pfnGetModuleProperties, deviceGetModuleProperties);
  slots.set(0, &DeviceTable::pfnGetCommandQueueGroupProperties, deviceGetCommandQueueGroupProperties);
  slots.set(0, &DeviceTable::pfnGetMemoryProperties, deviceGetMemoryProperties);
  slots.set(0, &DeviceTable::pfnGetMemoryAccessProperties, deviceGetMemoryAccessProperties);
  slots.set(0, &DeviceTable::pfnGetCacheProperties, deviceGetCacheProperties);
  slots.set(0, &DeviceTable::pfnGetImageProperties, deviceGetImageProperties);
  slots.set(0, &DeviceTable::pfnGetExternalMemoryProperties, deviceGetExternalMemoryProperties);
  slots.set(0, &DeviceTable::pfnGetP2PProperties, deviceGetP2PProperties);
  slots.set(0, &DeviceTable::pfnCanAccessPeer, deviceCanAccessPeer);
  slots.set(0, &DeviceTable::pfnGetStatus, deviceGetStatus);
  slots.set(1, &DeviceTable::pfnGetGlobalTimestamps, deviceGetGlobalTimestamps);
  slots.set(2, &DeviceTable::pfnReserveCacheExt,
            ZEFUSE_ABSENT("cache reservation: a CPU's caches are not divided by software"));
  slots.set(2, &DeviceTable::pfnSetCacheAdviceExt,
            ZEFUSE_ABSENT("cache advice: a CPU's caches are not divided by software"));
  slots.set(3, &DeviceTable::pfnPciGetPropertiesExt, ZEFUSE_ABSENT("PCI properties: the CPU is no PCI device"));
  slots.setNewer(7, 18, deviceGetRootDevice);
}

using DeviceExp = ze_device_exp_dditable_t;
void fillDeviceExp(Slots<DeviceExp> slots) {
  slots.set(4, &DeviceExp::pfnGetFabricVertexExp, ZEFUSE_ABSENT(kNoFabric));
}

using ContextTable = ze_context_dditable_t;
void fillContext(Slots<ContextTable> slots) {
  slots.set(0, &ContextTable::pfnCreate, contextCreate);
  slots.set(0, &ContextTable::pfnDestroy, contextDestroy);
  slots.set(0, &ContextTable::pfnGetStatus, contextGetStatus);
  slots.set(0, &ContextTable::pfnSystemBarrier, contextSystemBarrier);
  slots.set(0, &ContextTable::pfnMakeMemoryResident, contextMakeMemoryResident);
  slots.set(0, &ContextTable::pfnEvictMemory, contextEvictMemory);
  slots.set(0, &ContextTable::pfnMakeImageResident, ZEFUSE_ABSENT(kNoImages));
  slots.set(0, &ContextTable::pfnEvictImage, ZEFUSE_ABSENT(kNoImages));
  slots.set(1, &ContextTable::pfnCreateEx, contextCreateEx);
}

using Queue = ze_command_queue_dditable_t;
void fillCommandQueue(Slots<Queue> slots) {
  slots.set(0, &Queue::pfnCreate, commandQueueCreate);
  slots.set(0, &Queue::pfnDestroy, commandQueueDestroy);
  slots.set(0, &Queue::pfnExecuteCommandLists, commandQueueExecuteCommandLists);
  slots.set(0, &Queue::pfnSynchronize, commandQueueSynchronize);
  slots.setNewer(9, 4, commandQueueGetOrdinal);
  slots.setNewer(9, 5, commandQueueGetIndex);
}

using List = ze_command_list_dditable_t;
void fillCommandList(Slots<List> slots) {
  slots.set(0, &List::pfnCreate, commandListCreate);
  slots.set(0, &List::pfnCreateImmediate, commandListCreateImmediate);
  slots.set(0, &List::pfnDestroy, commandListDestroy);
  slots.set(0, &List::pfnClose, commandListClose);
  slots.set(0, &List::pfnReset, commandListReset);
  slots.set(0, &List::pfnAppendWriteGlobalTimestamp, commandListAppendWriteGlobalTimestamp);
  slots.set(0, &List::pfnAppendBarrier, commandListAppendBarrier);
  slots.set(0, &List::pfnAppendMemoryRangesBarrier, commandListAppendMemoryRangesBarrier);
  slots.set(0, &List::pfnAppendMemoryCopy, commandListAppendMemoryCopy);
  slots.set(0, &List::pfnAppendMemoryFill, commandListAppendMemoryFill);
  slots.set(0, &List::pfnAppendMemoryCopyRegion, commandListAppendMemoryCopyRegion);
  slots.set(0, &List::pfnAppendMemoryCopyFromContext, commandListAppendMemoryCopyFromContext);
  slots.set(0, &List::pfnAppendImageCopy, ZEFUSE_ABSENT(kNoImages));
  slots.set(0, &List::pfnAppendImageCopyRegion, ZEFUSE_ABSENT(kNoImages));
  slots.set(0, &List::pfnAppendImageCopyToMemory, ZEFUSE_ABSENT(kNoImages));
  slots.set(0, &List::pfnAppendImageCopyFromMemory, ZEFUSE_ABSENT(kNoImages));
  slots.set(0, &List::pfnAppendMemoryPrefetch, commandListAppendMemoryPrefetch);
  slots.set(0, &List::pfnAppendMemAdvise, commandListAppendMemAdvise);
  slots.set(0, &List::pfnAppendSignalEvent, commandListAppendSignalEvent);
  slots.set(0, &List::pfnAppendWaitOnEvents, commandListAppendWaitOnEvents);
  slots.set(0, &List::pfnAppendEventReset, commandListAppendEventReset);
  slots.set(0, &List::pfnAppendQueryKernelTimestamps, commandListAppendQueryKernelTimestamps);
  slots.set(0, &List::pfnAppendLaunchKernel, commandListAppendLaunchKernel);
  slots.set(0, &List::pfnAppendLaunchCooperativeKernel, commandListAppendLaunchCooperativeKernel);
  slots.set(0, &List::pfnAppendLaunchKernelIndirect, commandListAppendLaunchKernelIndirect);
  slots.set(0, &List::pfnAppendLaunchMultipleKernelsIndirect, commandListAppendLaunchMultipleKernelsIndirect);
  slots.set(3, &List::pfnAppendImageCopyToMemoryExt, ZEFUSE_ABSENT(kNoImages));
  slots.set(3, &List::pfnAppendImageCopyFromMemoryExt, ZEFUSE_ABSENT(kNoImages));
  slots.setNewer(6, 28, commandListHostSynchronize);
  slots.setNewer(9, 29, commandListGetDeviceHandle);
  slots.setNewer(9, 30, commandListGetContextHandle);
  slots.setNewer(9, 31, commandListGetOrdinal);
  slots.setNewer(9, 32, commandListImmediateGetIndex);
  slots.setNewer(9, 33, commandListIsImmediate);
}

using Image = ze_image_dditable_t;
void fillImage(Slots<Image> slots) {
  slots.set(0, &Image::pfnGetProperties, imageGetProperties);
  slots.set(0, &Image::pfnCreate, imageCreate);
  slots.set(0, &Image::pfnDestroy, imageDestroy);
  slots.set(3, &Image::pfnGetAllocPropertiesExt, ZEFUSE_ABSENT(kNoImages));
}

using ImageExp = ze_image_exp_dditable_t;
void fillImageExp(Slots<ImageExp> slots) {
  slots.set(2, &ImageExp::pfnGetMemoryPropertiesExp, ZEFUSE_ABSENT(kNoImages));
  slots.set(2, &ImageExp::pfnViewCreateExp, ZEFUSE_ABSENT(kNoImages));
}

using FenceTable = ze_fence_dditable_t;
void fillFence(Slots<FenceTable> slots) {
  slots.set(0, &FenceTable::pfnCreate, fenceCreate);
  slots.set(0, &FenceTable::pfnDestroy, fenceDestroy);
  slots.set(0, &FenceTable::pfnHostSynchronize, fenceHostSynchronize);
  slots.set(0, &FenceTable::pfnQueryStatus, fenceQueryStatus);
  slots.set(0, &FenceTable::pfnReset, fenceReset);
}

using Pool = ze_event_pool_dditable_t;
void fillEventPool(Slots<Pool> slots) {
  slots.set(0, &Pool::pfnCreate, eventPoolCreate);
  slots.set(0, &Pool::pfnDestroy, eventPoolDestroy);
  slots.set(0, &Pool::pfnGetIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  slots.set(0, &Pool::pfnOpenIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  slots.set(0, &Pool::pfnCloseIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  // 5, PutIpcHandle: IPC as above.
  slots.setNewer(9, 6, eventPoolGetContextHandle);
  slots.setNewer(9, 7, eventPoolGetFlags);
}

using EventTable = ze_event_dditable_t;
void fillEvent(Slots<EventTable> slots) {
  slots.set(0, &EventTable::pfnCreate, eventCreate);
  slots.set(0, &EventTable::pfnDestroy, eventDestroy);
  slots.set(0, &EventTable::pfnHostSignal, eventHostSignal);
  slots.set(0, &EventTable::pfnHostSynchronize, eventHostSynchronize);
  slots.set(0, &EventTable::pfnQueryStatus, eventQueryStatus);
  slots.set(0, &EventTable::pfnHostReset, eventHostReset);
  slots.set(0, &EventTable::pfnQueryKernelTimestamp, eventQueryKernelTimestamp);
  // 7, QueryKernelTimestampsExt: needs structures the 1.4 headers lack; QueryTimestampsExp tells the same.
  slots.setNewer(9, 8, eventGetEventPool);
  slots.setNewer(9, 9, eventGetSignalScope);
  slots.setNewer(9, 10, eventGetWaitScope);
  // 11 on, counter-based events: not implemented; drivers without them are the rule.
}

using EventExp = ze_event_exp_dditable_t;
void fillEventExp(Slots<EventExp> slots) { slots.set(2, &EventExp::pfnQueryTimestampsExp, eventQueryTimestampsExp); }

using ModuleTable = ze_module_dditable_t;
void fillModule(Slots<ModuleTable> slots) {
  slots.set(0, &ModuleTable::pfnCreate, moduleCreate);
  slots.set(0, &ModuleTable::pfnDestroy, moduleDestroy);
  slots.set(0, &ModuleTable::pfnDynamicLink, moduleDynamicLink);
  slots.set(0, &ModuleTable::pfnGetNativeBinary, moduleGetNativeBinary);
  slots.set(0, &ModuleTable::pfnGetGlobalPointer, moduleGetGlobalPointer);
  slots.set(0, &ModuleTable::pfnGetKernelNames, moduleGetKernelNames);
  slots.set(0, &ModuleTable::pfnGetProperties, moduleGetProperties);
  slots.set(0, &ModuleTable::pfnGetFunctionPointer, moduleGetFunctionPointer);
  slots.set(3, &ModuleTable::pfnInspectLinkageExt, moduleInspectLinkageExt);
}

using BuildLogTable = ze_module_build_log_dditable_t;
void fillModuleBuildLog(Slots<BuildLogTable> slots) {
  slots.set(0, &BuildLogTable::pfnDestroy, moduleBuildLogDestroy);
  slots.set(0, &BuildLogTable::pfnGetString, moduleBuildLogGetString);
}

using KernelTable = ze_kernel_dditable_t;
void fillKernel(Slots<KernelTable> slots) {
  slots.set(0, &KernelTable::pfnCreate, kernelCreate);
  slots.set(0, &KernelTable::pfnDestroy, kernelDestroy);
  slots.set(0, &KernelTable::pfnSetCacheConfig, kernelSetCacheConfig);
  slots.set(0, &KernelTable::pfnSetGroupSize, kernelSetGroupSize);
  slots.set(0, &KernelTable::pfnSuggestGroupSize, kernelSuggestGroupSize);
  slots.set(0, &KernelTable::pfnSuggestMaxCooperativeGroupCount, kernelSuggestMaxCooperativeGroupCount);
  slots.set(0, &KernelTable::pfnSetArgumentValue, kernelSetArgumentValue);
  slots.set(0, &KernelTable::pfnSetIndirectAccess, kernelSetIndirectAccess);
  slots.set(0, &KernelTable::pfnGetIndirectAccess, kernelGetIndirectAccess);
  slots.set(0, &KernelTable::pfnGetSourceAttributes, kernelGetSourceAttributes);
  slots.set(0, &KernelTable::pfnGetProperties, kernelGetProperties);
  slots.set(0, &KernelTable::pfnGetName, kernelGetName);
}

using KernelExp = ze_kernel_exp_dditable_t;
void fillKernelExp(Slots<KernelExp> slots) {
  slots.set(1, &KernelExp::pfnSetGlobalOffsetExp, kernelSetGlobalOffsetExp);
  slots.set(2, &KernelExp::pfnSchedulingHintExp,
            ZEFUSE_ABSENT("scheduling hints: a thread runs its groups one after the other"));
  slots.setNewer(11, 2, kernelGetBinaryExp);
}

using SamplerTable = ze_sampler_dditable_t;
void fillSampler(Slots<SamplerTable> slots) {
  slots.set(0, &SamplerTable::pfnCreate, samplerCreate);
  slots.set(0, &SamplerTable::pfnDestroy, samplerDestroy);
}

using Mem = ze_mem_dditable_t;
void fillMem(Slots<Mem> slots) {
  slots.set(0, &Mem::pfnAllocShared, memAllocShared);
  slots.set(0, &Mem::pfnAllocDevice, memAllocDevice);
  slots.set(0, &Mem::pfnAllocHost, memAllocHost);
  slots.set(0, &Mem::pfnFree, memFree);
  slots.set(0, &Mem::pfnGetAllocProperties, memGetAllocProperties);
  slots.set(0, &Mem::pfnGetAddressRange, memGetAddressRange);
  slots.set(0, &Mem::pfnGetIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  slots.set(0, &Mem::pfnOpenIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  slots.set(0, &Mem::pfnCloseIpcHandle, ZEFUSE_ABSENT(kNoIpc));
  slots.set(3, &Mem::pfnFreeExt, memFreeExt);
}

using PhysicalMem = ze_physical_mem_dditable_t;
void fillPhysicalMem(Slots<PhysicalMem> slots) {
  slots.set(0, &PhysicalMem::pfnCreate, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &PhysicalMem::pfnDestroy, ZEFUSE_ABSENT(kNoVirtualMemory));
}

using VirtualMem = ze_virtual_mem_dditable_t;
void fillVirtualMem(Slots<VirtualMem> slots) {
  slots.set(0, &VirtualMem::pfnReserve, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnFree, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnQueryPageSize, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnMap, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnUnmap, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnSetAccessAttribute, ZEFUSE_ABSENT(kNoVirtualMemory));
  slots.set(0, &VirtualMem::pfnGetAccessAttribute, ZEFUSE_ABSENT(kNoVirtualMemory));
}

using FabricVertex = ze_fabric_vertex_exp_dditable_t;
void fillFabricVertexExp(Slots<FabricVertex> slots) {
  slots.set(4, &FabricVertex::pfnGetExp, ZEFUSE_ABSENT(kNoFabric));
  slots.set(4, &FabricVertex::pfnGetSubVerticesExp, ZEFUSE_ABSENT(kNoFabric));
  slots.set(4, &FabricVertex::pfnGetPropertiesExp, ZEFUSE_ABSENT(kNoFabric));
  slots.set(4, &FabricVertex::pfnGetDeviceExp, ZEFUSE_ABSENT(kNoFabric));
}

using FabricEdge = ze_fabric_edge_exp_dditable_t;
void fillFabricEdgeExp(Slots<FabricEdge> slots) {
  slots.set(4, &FabricEdge::pfnGetExp, ZEFUSE_ABSENT(kNoFabric));
  slots.set(4, &FabricEdge::pfnGetVerticesExp, ZEFUSE_ABSENT(kNoFabric));
  slots.set(4, &FabricEdge::pfnGetPropertiesExp, ZEFUSE_ABSENT(kNoFabric));
}

// A newer minor version is welcome (it fills what it knows of the rest itself); another major one is not.
template <typename Table> ze_result_t getTable(ze_api_version_t version, Table* table, void (*fill)(Slots<Table>)) {
  if (!table)
    return refuse(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "table getter: pDdiTable is NULL");
  if (ZE_MAJOR_VERSION(version) != ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, "table getter: version 0x%x; only 1.x is known",
                  static_cast<unsigned>(version));
  fill(Slots<Table>(version, *table));
  return ZE_RESULT_SUCCESS;
}

}  // namespace
}  // namespace zefuse::cpu

#define ZEFUSE_GETTER(Name, table_type)                                                                                \
  ZE_DLLEXPORT ze_result_t ZE_APICALL zeGet##Name##ProcAddrTable(ze_api_version_t version, table_type* pDdiTable) {    \
    return zefuse::cpu::getTable(version, pDdiTable, zefuse::cpu::fill##Name);                                         \
  }

extern "C" {
ZEFUSE_GETTER(Global, ze_global_dditable_t)
ZEFUSE_GETTER(Driver, ze_driver_dditable_t)
ZEFUSE_GETTER(Device, ze_device_dditable_t)
ZEFUSE_GETTER(DeviceExp, ze_device_exp_dditable_t)
ZEFUSE_GETTER(Context, ze_context_dditable_t)
ZEFUSE_GETTER(CommandQueue, ze_command_queue_dditable_t)
ZEFUSE_GETTER(CommandList, ze_command_list_dditable_t)
ZEFUSE_GETTER(Image, ze_image_dditable_t)
ZEFUSE_GETTER(ImageExp, ze_image_exp_dditable_t)
ZEFUSE_GETTER(Fence, ze_fence_dditable_t)
ZEFUSE_GETTER(EventPool, ze_event_pool_dditable_t)
ZEFUSE_GETTER(Event, ze_event_dditable_t)
ZEFUSE_GETTER(EventExp, ze_event_exp_dditable_t)
ZEFUSE_GETTER(Module, ze_module_dditable_t)
ZEFUSE_GETTER(ModuleBuildLog, ze_module_build_log_dditable_t)
ZEFUSE_GETTER(Kernel, ze_kernel_dditable_t)
ZEFUSE_GETTER(KernelExp, ze_kernel_exp_dditable_t)
ZEFUSE_GETTER(Sampler, ze_sampler_dditable_t)
ZEFUSE_GETTER(Mem, ze_mem_dditable_t)
ZEFUSE_GETTER(PhysicalMem, ze_physical_mem_dditable_t)
ZEFUSE_GETTER(VirtualMem, ze_virtual_mem_dditable_t)
ZEFUSE_GETTER(FabricVertexExp, ze_fabric_vertex_exp_dditable_t)
ZEFUSE_GETTER(FabricEdgeExp, ze_fabric_edge_exp_dditable_t)
}
