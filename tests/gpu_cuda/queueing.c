/* What queueing costs the host on a GPU: a launch on an asynchronous immediate list, and running a recorded list of 100
 * launches again, with what the device then takes for each; beside it, where libcuda is, what its own cuLaunchKernel
 * takes for such a kernel, in turns with the list. Argument: a SPIR-V file with the kernel `increment`
 * (tests/unit/driver/kernels). */
#include <level_zero/ze_api.h>

#include <dlfcn.h>

#include <stdint.h>
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

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return difference < 0 ? -1 : difference > 0;
}

enum { launches = 100, samples = 51 };

static double median(double* times) {
  qsort(times, samples, sizeof times[0], by_value);
  return times[samples / 2];
}

/* The same kernel by CUDA alone, in the primary context, which stays current. */
typedef int (*launch_fn)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                         void**);
static launch_fn cuda_launch;
static int (*cuda_wait)(void*);
static void *cuda_function, *cuda_stream;

static const char increment_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                    ".visible .entry increment(.param .u64 values) {\n"
                                    ".reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
                                    "ld.param.u64 %rd1, [values]; cvta.to.global.u64 %rd2, %rd1;\n"
                                    "ld.global.u32 %r1, [%rd2]; add.s32 %r2, %r1, 1; st.global.u32 [%rd2], %r2; ret;\n"
                                    "}\n";

static int open_cuda(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library)
    return 0;
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(library, "cuDevicePrimaryCtxRetain");
  int (*use)(void*) = (int (*)(void*))dlsym(library, "cuCtxSetCurrent");
  int (*load)(void**, const void*) = (int (*)(void**, const void*))dlsym(library, "cuModuleLoadData");
  int (*find)(void**, void*, const char*) = (int (*)(void**, void*, const char*))dlsym(library, "cuModuleGetFunction");
  int (*stream)(void**, unsigned) = (int (*)(void**, unsigned))dlsym(library, "cuStreamCreate");
  cuda_launch = (launch_fn)dlsym(library, "cuLaunchKernel");
  cuda_wait = (int (*)(void*))dlsym(library, "cuStreamSynchronize");
  void *context, *module;
  return retain && use && load && find && stream && cuda_launch && cuda_wait && !retain(&context, 0) && !use(context) &&
         !load(&module, increment_ptx) && !find(&cuda_function, module, "increment") && !stream(&cuda_stream, 1);
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
  const ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
  ze_context_handle_t context;
  CHECK(zeContextCreate(driver, &context_desc, &context));
  FILE* file = fopen(argv[1], "rb");
  if (!file)
    return 2;
  static uint8_t spirv[1 << 20];
  const size_t size = fread(spirv, 1, sizeof spirv, file);
  fclose(file);
  const ze_module_desc_t module_desc = {
      .stype = ZE_STRUCTURE_TYPE_MODULE_DESC, .inputSize = size, .pInputModule = spirv};
  ze_module_handle_t module;
  CHECK(zeModuleCreate(context, device, &module_desc, &module, NULL));
  const ze_kernel_desc_t kernel_desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "increment"};
  ze_kernel_handle_t kernel;
  CHECK(zeKernelCreate(module, &kernel_desc, &kernel));
  CHECK(zeKernelSetGroupSize(kernel, 1, 1, 1));
  int* pointer;
  const ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
  CHECK(zeMemAllocDevice(context, &on_device, 1024 * sizeof *pointer, 0, device, (void**)&pointer));
  CHECK(zeKernelSetArgumentValue(kernel, 0, sizeof pointer, &pointer));
  const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                        .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
  const ze_event_pool_desc_t pool_desc = {
      .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
  ze_event_pool_handle_t pool;
  CHECK(zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
  const ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
  ze_event_handle_t ended;
  CHECK(zeEventCreate(pool, &event_desc, &ended));
  const ze_group_count_t grid = {1, 1, 1};
  double queueing[samples], whole[samples];

  ze_command_list_handle_t immediate;
  CHECK(zeCommandListCreateImmediate(context, device, &desc, &immediate));
  for (int sample = -5; sample < samples; ++sample) {
    CHECK(zeEventHostReset(ended));
    const double start = now_us();
    for (int launch = 0; launch < launches; ++launch)
      CHECK(zeCommandListAppendLaunchKernel(immediate, kernel, &grid, NULL, 0, NULL));
    const double queued = now_us();
    CHECK(zeCommandListAppendBarrier(immediate, ended, 0, NULL));
    CHECK(zeEventHostSynchronize(ended, UINT64_MAX));
    if (sample >= 0) {
      queueing[sample] = (queued - start) / launches;
      whole[sample] = now_us() - start;
    }
  }
  printf("a launch on an immediate list: %.2f us of the host; 100 of them and a wait: %.1f us\n", median(queueing),
         median(whole));

  if (open_cuda()) {
    double cuda[samples];
    void* parameters[] = {&pointer};
    for (int sample = -5; sample < samples; ++sample) {
      double start = now_us();
      for (int launch = 0; launch < launches; ++launch)
        if (cuda_launch(cuda_function, 1, 1, 1, 1, 1, 1, 0, cuda_stream, parameters, NULL))
          return 1;
      if (sample >= 0)
        cuda[sample] = (now_us() - start) / launches;
      cuda_wait(cuda_stream);
      CHECK(zeEventHostReset(ended));
      start = now_us();
      for (int launch = 0; launch < launches; ++launch)
        CHECK(zeCommandListAppendLaunchKernel(immediate, kernel, &grid, NULL, 0, NULL));
      if (sample >= 0)
        queueing[sample] = (now_us() - start) / launches;
      CHECK(zeCommandListAppendBarrier(immediate, ended, 0, NULL));
      CHECK(zeEventHostSynchronize(ended, UINT64_MAX));
    }
    const double list = median(queueing), own = median(cuda);
    printf("cuLaunchKernel by itself: %.2f us; in turns with it, its context current, a launch on the list: %.2f us\n",
           own, list);
  }

  ze_command_queue_handle_t queue;
  CHECK(zeCommandQueueCreate(context, device, &desc, &queue));
  const ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
  ze_command_list_handle_t recorded;
  CHECK(zeCommandListCreate(context, device, &list_desc, &recorded));
  for (int launch = 0; launch < launches; ++launch)
    CHECK(zeCommandListAppendLaunchKernel(recorded, kernel, &grid, NULL, 0, NULL));
  CHECK(zeCommandListClose(recorded));
  for (int sample = -5; sample < samples; ++sample) {
    const double start = now_us();
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &recorded, NULL));
    const double queued = now_us();
    CHECK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    if (sample >= 0) {
      queueing[sample] = queued - start;
      whole[sample] = now_us() - start;
    }
  }
  printf("a recorded list of 100 launches: %.2f us of the host; with the wait %.1f us\n", median(queueing),
         median(whole));
  return 0;
}
