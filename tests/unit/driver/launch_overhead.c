/* Prints what a launch on a synchronous immediate list costs beyond its work: run by hand, not a test. Argument: the
 * directory of the .spv files. One group runs on the calling thread; more open a parallel region. */
#include <level_zero/ze_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    ze_result_t result_ = (call);                                                                                      \
    if (result_) {                                                                                                     \
      fprintf(stderr, "%s returned 0x%x\n", #call, (unsigned)result_);                                                 \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  double difference = *(const double*)a - *(const double*)b;
  return difference < 0 ? -1 : difference > 0;
}

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  CHECK(zeInit(0));
  uint32_t count = 1;
  ze_driver_handle_t driver;
  ze_device_handle_t device;
  CHECK(zeDriverGet(&count, &driver));
  count = 1;
  CHECK(zeDeviceGet(driver, &count, &device));
  ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
  ze_context_handle_t context;
  CHECK(zeContextCreate(driver, &context_desc, &context));

  char path[4096];
  snprintf(path, sizeof path, "%s/basic.spv", argv[1]);
  FILE* file = fopen(path, "rb");
  if (!file)
    return 2;
  static uint8_t spirv[1 << 20];
  size_t size = fread(spirv, 1, sizeof spirv, file);
  fclose(file);
  ze_module_desc_t module_desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC, .inputSize = size, .pInputModule = spirv};
  ze_module_handle_t module;
  CHECK(zeModuleCreate(context, device, &module_desc, &module, NULL));
  ze_kernel_desc_t kernel_desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "increment"};
  ze_kernel_handle_t kernel;
  CHECK(zeKernelCreate(module, &kernel_desc, &kernel));
  CHECK(zeKernelSetGroupSize(kernel, 1, 1, 1));
  int* pointer;
  ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
  ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  CHECK(zeMemAllocShared(context, &on_device, &on_host, 1024 * sizeof *pointer, 0, device, (void**)&pointer));
  CHECK(zeKernelSetArgumentValue(kernel, 0, sizeof pointer, &pointer));
  ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                  .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
  ze_command_list_handle_t list;
  CHECK(zeCommandListCreateImmediate(context, device, &desc, &list));

  enum { launches = 1000, samples = 101 };
  const uint32_t groups[] = {1, 2, 64};
  for (int i = 0; i < 3; ++i) {
    ze_group_count_t grid = {groups[i], 1, 1};
    double times[samples];
    for (int sample = 0; sample < samples; ++sample) {
      double start = now_ns();
      for (int launch = 0; launch < launches; ++launch)
        CHECK(zeCommandListAppendLaunchKernel(list, kernel, &grid, NULL, 0, NULL));
      times[sample] = (now_ns() - start) / launches;
    }
    qsort(times, samples, sizeof times[0], by_value);
    printf("%3u groups of one item: median %.0f ns, least %.0f ns\n", groups[i], times[samples / 2], times[0]);
  }
  CHECK(zeMemFree(context, pointer));
  CHECK(zeCommandListDestroy(list));
  CHECK(zeKernelDestroy(kernel));
  CHECK(zeModuleDestroy(module));
  CHECK(zeContextDestroy(context));
  return 0;
}
