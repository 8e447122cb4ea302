#include "tests/unit/driver/expected_refusals.h"

#include <cstring>

namespace zefuse::test {
namespace {

struct Refusal {
  std::string_view test;
  const char* reason;
};

constexpr const char* kNoIndirect = "CUDA reads the number of groups when a launch is submitted: no indirect launches";
constexpr const char* kNoLinking = "this driver does not link modules";
constexpr const char* kNoVirtualMemory = "this driver has no virtual memory";
constexpr const char* kPosing = "about the CPU posing as a GPU";
constexpr const char* kNoFailures =
    "a launch that fails while it runs makes a CUDA device lost; the tests' failing command is an indirect launch";

// Of the driver over CUDA.
constexpr Refusal kCuda[] = {
    {"Concurrency.AForkedChildLaunches", "CUDA does not survive a fork"},
    {"Failures.AGroupWithoutMemoryForItsBarriersFailsTheLaunch", "items keep what lives across a barrier in registers"},
    {"Failures.OfAnAdaptiveListHoldUpWhatComesUntilTheyAreTold", kNoFailures},
    {"Failures.OfAnAsynchronousListAreToldAtItsEventAndHoldUpWhatWasAppended", kNoFailures},
    {"Failures.OfAQueueAreToldAtItsFenceAndAtTheQueue", kNoFailures},
    {"Failures.OfOneListReachTheListThatWaitsForIt", kNoFailures},
    {"Launches.IndirectGroupCountsAreReadWhenRun", kNoIndirect},
    {"Memory.PhysicalMemoryIsMappedIntoReservedRanges", kNoVirtualMemory},
    {"Memory.PhysicalMemoryOfTheHostNeedsNoDevice", kNoVirtualMemory},
    {"Modules.DynamicLinkBindsImportsToExports", kNoLinking},
    {"Modules.SeveralInputsAreLinked", kNoLinking},
    {"Modules.ExportedFunctionsHaveAddresses", "CUDA has no function pointers that a host may take"},
    {"PosingGpu.AnArgumentIsAnAddress", kPosing},
    {"PosingGpu.AnInOrderListNeedsNoBarriers", kPosing},
    {"PosingGpu.CopiesAndFillsEndWithTheirAllocation", kPosing},  // see CudaDriver.CopiesAndFillsEndWithTheirAllocation
    {"PosingGpu.FreshMemoryIsPoisoned", kPosing},
    {"PosingGpu.KernelsReachNothingButUsm", kPosing},
    {"PosingGpu.OnlyBarriersOrder", kPosing},
    {"PosingGpu.TheCpuIsThereToo", kPosing},
    {"PosingGpu.TheHostCannotTouchDeviceMemory", "what the host's access to CUDA's memory does is the kernel's matter"},
    {"Properties.WritesToReadonlyMemoryFault", kNoVirtualMemory},
    {"Queues.DestroyedWithAnEventMissingEndsAndDropsTheRest", "CUDA cannot drop what a stream was given"},
};

}  // namespace

const char* whyRefused(ze_driver_handle_t driver, std::string_view name) {
  ze_driver_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES;
  if (zeDriverGetProperties(driver, &properties) != ZE_RESULT_SUCCESS ||
      std::memcmp(properties.uuid.id, "zefuse-cuda-drv1", sizeof properties.uuid.id) != 0)
    return nullptr;
  for (const Refusal& each : kCuda)
    if (each.test == name)
      return each.reason;
  return nullptr;
}

}  // namespace zefuse::test
