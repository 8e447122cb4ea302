/* A Level Zero driver, as loaders find it, whose zeInit does what BEHAVIOUR says: never returns, or crashes. */
#include <signal.h>
#include <unistd.h>

#include <level_zero/ze_api.h>

typedef struct {
  ze_result_t(ZE_APICALL* init)(ze_init_flags_t);
} GlobalTable; /* the start of ze_global_dditable_t; ze_ddi.h itself declares every getter with a type of its own */

static ze_result_t ZE_APICALL init(ze_init_flags_t flags) {
  (void)flags;
#if BEHAVIOUR == 0
  for (;;)
    pause();
#elif BEHAVIOUR == 1
  raise(SIGSEGV);
#endif
  return ZE_RESULT_ERROR_UNINITIALIZED;
}

ZE_APIEXPORT ze_result_t ZE_APICALL zeGetGlobalProcAddrTable(ze_api_version_t version, GlobalTable* table) {
  (void)version;
  table->init = init;
  return ZE_RESULT_SUCCESS;
}

/* Loaders take no driver without them. */
#define EMPTY(name)                                                                                                    \
  ZE_APIEXPORT ze_result_t ZE_APICALL name(ze_api_version_t version, void* table) {                                    \
    (void)version, (void)table;                                                                                        \
    return ZE_RESULT_SUCCESS;                                                                                          \
  }
// clang-format off
EMPTY(zeGetCommandListProcAddrTable) EMPTY(zeGetCommandQueueProcAddrTable) EMPTY(zeGetContextProcAddrTable)
EMPTY(zeGetDeviceExpProcAddrTable) EMPTY(zeGetDeviceProcAddrTable) EMPTY(zeGetDriverProcAddrTable)
EMPTY(zeGetEventExpProcAddrTable) EMPTY(zeGetEventPoolProcAddrTable) EMPTY(zeGetEventProcAddrTable)
EMPTY(zeGetFabricEdgeExpProcAddrTable) EMPTY(zeGetFabricVertexExpProcAddrTable) EMPTY(zeGetFenceProcAddrTable)
EMPTY(zeGetImageExpProcAddrTable) EMPTY(zeGetImageProcAddrTable) EMPTY(zeGetKernelExpProcAddrTable)
EMPTY(zeGetKernelProcAddrTable) EMPTY(zeGetMemProcAddrTable) EMPTY(zeGetModuleBuildLogProcAddrTable)
EMPTY(zeGetModuleProcAddrTable) EMPTY(zeGetPhysicalMemProcAddrTable) EMPTY(zeGetSamplerProcAddrTable)
EMPTY(zeGetVirtualMemProcAddrTable) EMPTY(zesGetDeviceProcAddrTable) EMPTY(zesGetDiagnosticsProcAddrTable)
EMPTY(zesGetDriverProcAddrTable) EMPTY(zesGetEngineProcAddrTable) EMPTY(zesGetFabricPortProcAddrTable)
EMPTY(zesGetFanProcAddrTable) EMPTY(zesGetFirmwareProcAddrTable) EMPTY(zesGetFrequencyProcAddrTable)
EMPTY(zesGetLedProcAddrTable) EMPTY(zesGetMemoryProcAddrTable) EMPTY(zesGetPerformanceFactorProcAddrTable)
EMPTY(zesGetPowerProcAddrTable) EMPTY(zesGetPsuProcAddrTable) EMPTY(zesGetRasProcAddrTable)
EMPTY(zesGetSchedulerProcAddrTable) EMPTY(zesGetStandbyProcAddrTable) EMPTY(zesGetTemperatureProcAddrTable)
EMPTY(zetGetCommandListProcAddrTable) EMPTY(zetGetContextProcAddrTable) EMPTY(zetGetDebugProcAddrTable)
EMPTY(zetGetDeviceProcAddrTable) EMPTY(zetGetKernelProcAddrTable) EMPTY(zetGetMetricGroupExpProcAddrTable)
EMPTY(zetGetMetricGroupProcAddrTable) EMPTY(zetGetMetricProcAddrTable) EMPTY(zetGetMetricQueryPoolProcAddrTable)
EMPTY(zetGetMetricQueryProcAddrTable) EMPTY(zetGetMetricStreamerProcAddrTable) EMPTY(zetGetModuleProcAddrTable)
EMPTY(zetGetTracerExpProcAddrTable)
    // clang-format on
