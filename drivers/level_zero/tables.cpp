// The tables that the loader, or our own runtime, gets from zeGet*ProcAddrTable.
//
// Debian's loader (1.8.12) wants every getter it knows to exist and to succeed; a newer one passes a newer version and
// a longer table. So each slot is stored only if the asked version has it: the tables only ever grew at their ends, and
// a store past what the asker knows would write over its memory. Slots newer than the installed header (1.4) are
// written by number.
#include <level_zero/ze_ddi.h>

#include "drivers/level_zero/driver.h"
#include "drivers/level_zero/entries.h"
#include "drivers/level_zero/error.h"
#include "drivers/level_zero/image.h"

namespace zefuse::level_zero {
namespace {

constexpr char kNoImages[] = "images: this device has none; use buffers";

// Stores slots of one table that the asked version has.
template <typename Table> class Slots {
public:
  Slots(ze_api_version_t version, Table& table) : minor_(ZE_MINOR_VERSION(version)), table_(table) {}

  template <typename Slot, typename Function> void set(uint32_t since_minor, Slot Table::* slot, Function function) {
    if (minor_ >= since_minor)
      table_.*slot = function;
  }
  // The same of a driver's own table.
  template <typename Slot> void copy(const Table& from, uint32_t since_minor, Slot Table::* slot) {
    set(since_minor, slot, from.*slot);
  }

  // Or what refuses, where the driver has none.
  template <typename Slot, typename Function>
  void copyOr(const Table& from, uint32_t since_minor, Slot Table::* slot, Function otherwise) {
    set(since_minor, slot, from.*slot ? from.*slot : static_cast<Slot>(otherwise));
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
  slots.copy(entries().device, 0, &DeviceTable::pfnGet);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetSubDevices);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetComputeProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetModuleProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetCommandQueueGroupProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetMemoryProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetMemoryAccessProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetCacheProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetImageProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetExternalMemoryProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetP2PProperties);
  slots.copy(entries().device, 0, &DeviceTable::pfnCanAccessPeer);
  slots.copy(entries().device, 0, &DeviceTable::pfnGetStatus);
  slots.copy(entries().device, 1, &DeviceTable::pfnGetGlobalTimestamps);
  slots.copy(entries().device, 2, &DeviceTable::pfnReserveCacheExt);
  slots.copy(entries().device, 2, &DeviceTable::pfnSetCacheAdviceExt);
  slots.copy(entries().device, 3, &DeviceTable::pfnPciGetPropertiesExt);
  slots.setNewer(7, 18, entries().newer.deviceGetRootDevice);
}

using DeviceExp = ze_device_exp_dditable_t;
void fillDeviceExp(Slots<DeviceExp> slots) { slots.copy(entries().device_exp, 4, &DeviceExp::pfnGetFabricVertexExp); }

using ContextTable = ze_context_dditable_t;
void fillContext(Slots<ContextTable> slots) {
  slots.copy(entries().context, 0, &ContextTable::pfnCreate);
  slots.copy(entries().context, 0, &ContextTable::pfnDestroy);
  slots.copy(entries().context, 0, &ContextTable::pfnGetStatus);
  slots.copy(entries().context, 0, &ContextTable::pfnSystemBarrier);
  slots.copy(entries().context, 0, &ContextTable::pfnMakeMemoryResident);
  slots.copy(entries().context, 0, &ContextTable::pfnEvictMemory);
  slots.copyOr(entries().context, 0, &ContextTable::pfnMakeImageResident, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().context, 0, &ContextTable::pfnEvictImage, ZEFUSE_ABSENT(kNoImages));
  slots.copy(entries().context, 1, &ContextTable::pfnCreateEx);
}

using Queue = ze_command_queue_dditable_t;
void fillCommandQueue(Slots<Queue> slots) {
  slots.copy(entries().command_queue, 0, &Queue::pfnCreate);
  slots.copy(entries().command_queue, 0, &Queue::pfnDestroy);
  slots.copy(entries().command_queue, 0, &Queue::pfnExecuteCommandLists);
  slots.copy(entries().command_queue, 0, &Queue::pfnSynchronize);
  slots.setNewer(9, 4, entries().newer.commandQueueGetOrdinal);
  slots.setNewer(9, 5, entries().newer.commandQueueGetIndex);
}

using List = ze_command_list_dditable_t;
void fillCommandList(Slots<List> slots) {
  slots.copy(entries().command_list, 0, &List::pfnCreate);
  slots.copy(entries().command_list, 0, &List::pfnCreateImmediate);
  slots.copy(entries().command_list, 0, &List::pfnDestroy);
  slots.copy(entries().command_list, 0, &List::pfnClose);
  slots.copy(entries().command_list, 0, &List::pfnReset);
  slots.copy(entries().command_list, 0, &List::pfnAppendWriteGlobalTimestamp);
  slots.copy(entries().command_list, 0, &List::pfnAppendBarrier);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryRangesBarrier);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryCopy);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryFill);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryCopyRegion);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryCopyFromContext);
  slots.copyOr(entries().command_list, 0, &List::pfnAppendImageCopy, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().command_list, 0, &List::pfnAppendImageCopyRegion, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().command_list, 0, &List::pfnAppendImageCopyToMemory, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().command_list, 0, &List::pfnAppendImageCopyFromMemory, ZEFUSE_ABSENT(kNoImages));
  slots.copy(entries().command_list, 0, &List::pfnAppendMemoryPrefetch);
  slots.copy(entries().command_list, 0, &List::pfnAppendMemAdvise);
  slots.copy(entries().command_list, 0, &List::pfnAppendSignalEvent);
  slots.copy(entries().command_list, 0, &List::pfnAppendWaitOnEvents);
  slots.copy(entries().command_list, 0, &List::pfnAppendEventReset);
  slots.copy(entries().command_list, 0, &List::pfnAppendQueryKernelTimestamps);
  slots.copy(entries().command_list, 0, &List::pfnAppendLaunchKernel);
  slots.copy(entries().command_list, 0, &List::pfnAppendLaunchCooperativeKernel);
  slots.copy(entries().command_list, 0, &List::pfnAppendLaunchKernelIndirect);
  slots.copy(entries().command_list, 0, &List::pfnAppendLaunchMultipleKernelsIndirect);
  slots.copyOr(entries().command_list, 3, &List::pfnAppendImageCopyToMemoryExt, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().command_list, 3, &List::pfnAppendImageCopyFromMemoryExt, ZEFUSE_ABSENT(kNoImages));
  slots.setNewer(6, 28, entries().newer.commandListHostSynchronize);
  slots.setNewer(9, 29, entries().newer.commandListGetDeviceHandle);
  slots.setNewer(9, 30, entries().newer.commandListGetContextHandle);
  slots.setNewer(9, 31, entries().newer.commandListGetOrdinal);
  slots.setNewer(9, 32, entries().newer.commandListImmediateGetIndex);
  slots.setNewer(9, 33, entries().newer.commandListIsImmediate);
}

void fillCommandListExp(Slots<CommandListExpTable> slots) {
  slots.setNewer(9, 1, entries().newer.commandListImmediateAppendCommandListsExp);
}

using Image = ze_image_dditable_t;
void fillImage(Slots<Image> slots) {
  slots.copyOr(entries().image, 0, &Image::pfnGetProperties, imageGetProperties);
  slots.copyOr(entries().image, 0, &Image::pfnCreate, imageCreate);
  slots.copyOr(entries().image, 0, &Image::pfnDestroy, imageDestroy);
  slots.copyOr(entries().image, 3, &Image::pfnGetAllocPropertiesExt, ZEFUSE_ABSENT(kNoImages));
}

using ImageExp = ze_image_exp_dditable_t;
void fillImageExp(Slots<ImageExp> slots) {
  slots.copyOr(entries().image_exp, 2, &ImageExp::pfnGetMemoryPropertiesExp, ZEFUSE_ABSENT(kNoImages));
  slots.copyOr(entries().image_exp, 2, &ImageExp::pfnViewCreateExp, ZEFUSE_ABSENT(kNoImages));
}

using FenceTable = ze_fence_dditable_t;
void fillFence(Slots<FenceTable> slots) {
  slots.copy(entries().fence, 0, &FenceTable::pfnCreate);
  slots.copy(entries().fence, 0, &FenceTable::pfnDestroy);
  slots.copy(entries().fence, 0, &FenceTable::pfnHostSynchronize);
  slots.copy(entries().fence, 0, &FenceTable::pfnQueryStatus);
  slots.copy(entries().fence, 0, &FenceTable::pfnReset);
}

using Pool = ze_event_pool_dditable_t;
void fillEventPool(Slots<Pool> slots) {
  slots.copy(entries().event_pool, 0, &Pool::pfnCreate);
  slots.copy(entries().event_pool, 0, &Pool::pfnDestroy);
  slots.copy(entries().event_pool, 0, &Pool::pfnGetIpcHandle);
  slots.copy(entries().event_pool, 0, &Pool::pfnOpenIpcHandle);
  slots.copy(entries().event_pool, 0, &Pool::pfnCloseIpcHandle);
  slots.setNewer(6, 5, entries().newer.eventPoolPutIpcHandle);
  slots.setNewer(9, 6, entries().newer.eventPoolGetContextHandle);
  slots.setNewer(9, 7, entries().newer.eventPoolGetFlags);
}

using EventTable = ze_event_dditable_t;
void fillEvent(Slots<EventTable> slots) {
  slots.copy(entries().event, 0, &EventTable::pfnCreate);
  slots.copy(entries().event, 0, &EventTable::pfnDestroy);
  slots.copy(entries().event, 0, &EventTable::pfnHostSignal);
  slots.copy(entries().event, 0, &EventTable::pfnHostSynchronize);
  slots.copy(entries().event, 0, &EventTable::pfnQueryStatus);
  slots.copy(entries().event, 0, &EventTable::pfnHostReset);
  slots.copy(entries().event, 0, &EventTable::pfnQueryKernelTimestamp);
  // 7, QueryKernelTimestampsExt: needs structures the 1.4 headers lack; QueryTimestampsExp tells the same.
  slots.setNewer(6, 7, entries().newer.eventQueryKernelTimestampsExt);
  slots.setNewer(9, 8, entries().newer.eventGetEventPool);
  slots.setNewer(9, 9, entries().newer.eventGetSignalScope);
  slots.setNewer(9, 10, entries().newer.eventGetWaitScope);
  // 11 on, counter-based events: not implemented; drivers without them are the rule.
}

using EventExp = ze_event_exp_dditable_t;
void fillEventExp(Slots<EventExp> slots) { slots.copy(entries().event_exp, 2, &EventExp::pfnQueryTimestampsExp); }

using ModuleTable = ze_module_dditable_t;
void fillModule(Slots<ModuleTable> slots) {
  slots.copy(entries().module, 0, &ModuleTable::pfnCreate);
  slots.copy(entries().module, 0, &ModuleTable::pfnDestroy);
  slots.copy(entries().module, 0, &ModuleTable::pfnDynamicLink);
  slots.copy(entries().module, 0, &ModuleTable::pfnGetNativeBinary);
  slots.copy(entries().module, 0, &ModuleTable::pfnGetGlobalPointer);
  slots.copy(entries().module, 0, &ModuleTable::pfnGetKernelNames);
  slots.copy(entries().module, 0, &ModuleTable::pfnGetProperties);
  slots.copy(entries().module, 0, &ModuleTable::pfnGetFunctionPointer);
  slots.copy(entries().module, 3, &ModuleTable::pfnInspectLinkageExt);
}

using BuildLogTable = ze_module_build_log_dditable_t;
void fillModuleBuildLog(Slots<BuildLogTable> slots) {
  slots.copy(entries().module_build_log, 0, &BuildLogTable::pfnDestroy);
  slots.copy(entries().module_build_log, 0, &BuildLogTable::pfnGetString);
}

using KernelTable = ze_kernel_dditable_t;
void fillKernel(Slots<KernelTable> slots) {
  slots.copy(entries().kernel, 0, &KernelTable::pfnCreate);
  slots.copy(entries().kernel, 0, &KernelTable::pfnDestroy);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSetCacheConfig);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSetGroupSize);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSuggestGroupSize);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSuggestMaxCooperativeGroupCount);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSetArgumentValue);
  slots.copy(entries().kernel, 0, &KernelTable::pfnSetIndirectAccess);
  slots.copy(entries().kernel, 0, &KernelTable::pfnGetIndirectAccess);
  slots.copy(entries().kernel, 0, &KernelTable::pfnGetSourceAttributes);
  slots.copy(entries().kernel, 0, &KernelTable::pfnGetProperties);
  slots.copy(entries().kernel, 0, &KernelTable::pfnGetName);
}

using KernelExp = ze_kernel_exp_dditable_t;
void fillKernelExp(Slots<KernelExp> slots) {
  slots.copy(entries().kernel_exp, 1, &KernelExp::pfnSetGlobalOffsetExp);
  slots.copy(entries().kernel_exp, 2, &KernelExp::pfnSchedulingHintExp);
  slots.setNewer(11, 2, entries().newer.kernelGetBinaryExp);
}

using SamplerTable = ze_sampler_dditable_t;
void fillSampler(Slots<SamplerTable> slots) {
  slots.copyOr(entries().sampler, 0, &SamplerTable::pfnCreate, samplerCreate);
  slots.copyOr(entries().sampler, 0, &SamplerTable::pfnDestroy, samplerDestroy);
}

using Mem = ze_mem_dditable_t;
void fillMem(Slots<Mem> slots) {
  slots.copy(entries().mem, 0, &Mem::pfnAllocShared);
  slots.copy(entries().mem, 0, &Mem::pfnAllocDevice);
  slots.copy(entries().mem, 0, &Mem::pfnAllocHost);
  slots.copy(entries().mem, 0, &Mem::pfnFree);
  slots.copy(entries().mem, 0, &Mem::pfnGetAllocProperties);
  slots.copy(entries().mem, 0, &Mem::pfnGetAddressRange);
  slots.copy(entries().mem, 0, &Mem::pfnGetIpcHandle);
  slots.copy(entries().mem, 0, &Mem::pfnOpenIpcHandle);
  slots.copy(entries().mem, 0, &Mem::pfnCloseIpcHandle);
  slots.copy(entries().mem, 3, &Mem::pfnFreeExt);
  slots.setNewer(6, 10, entries().newer.memPutIpcHandle);
  slots.setNewer(15, 12, entries().newer.memGetIpcHandleWithProperties);
}

using PhysicalMem = ze_physical_mem_dditable_t;
void fillPhysicalMem(Slots<PhysicalMem> slots) {
  slots.copy(entries().physical_mem, 0, &PhysicalMem::pfnCreate);
  slots.copy(entries().physical_mem, 0, &PhysicalMem::pfnDestroy);
}

using VirtualMem = ze_virtual_mem_dditable_t;
void fillVirtualMem(Slots<VirtualMem> slots) {
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnReserve);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnFree);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnQueryPageSize);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnMap);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnUnmap);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnSetAccessAttribute);
  slots.copy(entries().virtual_mem, 0, &VirtualMem::pfnGetAccessAttribute);
}

using FabricVertex = ze_fabric_vertex_exp_dditable_t;
void fillFabricVertexExp(Slots<FabricVertex> slots) {
  slots.copy(entries().fabric_vertex_exp, 4, &FabricVertex::pfnGetExp);
  slots.copy(entries().fabric_vertex_exp, 4, &FabricVertex::pfnGetSubVerticesExp);
  slots.copy(entries().fabric_vertex_exp, 4, &FabricVertex::pfnGetPropertiesExp);
  slots.copy(entries().fabric_vertex_exp, 4, &FabricVertex::pfnGetDeviceExp);
}

using FabricEdge = ze_fabric_edge_exp_dditable_t;
void fillFabricEdgeExp(Slots<FabricEdge> slots) {
  slots.copy(entries().fabric_edge_exp, 4, &FabricEdge::pfnGetExp);
  slots.copy(entries().fabric_edge_exp, 4, &FabricEdge::pfnGetVerticesExp);
  slots.copy(entries().fabric_edge_exp, 4, &FabricEdge::pfnGetPropertiesExp);
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
}  // namespace zefuse::level_zero

#define ZEFUSE_GETTER(Name, table_type)                                                                                \
  ZE_DLLEXPORT ze_result_t ZE_APICALL zeGet##Name##ProcAddrTable(ze_api_version_t version, table_type* pDdiTable) {    \
    return zefuse::level_zero::getTable(version, pDdiTable, zefuse::level_zero::fill##Name);                           \
  }

extern "C" {
ZEFUSE_GETTER(Global, ze_global_dditable_t)
ZEFUSE_GETTER(Driver, ze_driver_dditable_t)
ZEFUSE_GETTER(Device, ze_device_dditable_t)
ZEFUSE_GETTER(DeviceExp, ze_device_exp_dditable_t)
ZEFUSE_GETTER(Context, ze_context_dditable_t)
ZEFUSE_GETTER(CommandQueue, ze_command_queue_dditable_t)
ZEFUSE_GETTER(CommandList, ze_command_list_dditable_t)
ZEFUSE_GETTER(CommandListExp, zefuse::level_zero::CommandListExpTable)
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
