/* A Level Zero program as anybody would write it: links -lze_loader only and knows nothing of this driver. Run by ctest
 * directly, through the loader's interception, under its validation layer, and under both. Arguments: the directory of
 * the .spv files.
 *
 * Everything runs twice: from SPIR-V, then from the bytes of zeModuleGetNativeBinary. */
#include <level_zero/ze_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call) check((call), #call, __LINE__)
#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static void check(ze_result_t result, const char* call, int line) {
  if (result != ZE_RESULT_SUCCESS) {
    fprintf(stderr, "line %d: %s returned 0x%x\n", line, call, (unsigned)result);
    exit(1);
  }
}

static ze_context_handle_t context;
static ze_device_handle_t device;

/* A list of one of three kinds and what is needed to wait for it. */
enum kind { synchronous_immediate, asynchronous_immediate, regular, kind_count };
struct target {
  enum kind kind;
  ze_command_list_handle_t list;
  ze_command_queue_handle_t queue;
  ze_fence_handle_t fence;
  ze_event_pool_handle_t pool;
  ze_event_handle_t done;
};

static ze_event_handle_t create_event(ze_event_pool_handle_t pool, uint32_t index) {
  ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, index, ZE_EVENT_SCOPE_FLAG_HOST,
                          ZE_EVENT_SCOPE_FLAG_HOST};
  ze_event_handle_t event;
  CHECK(zeEventCreate(pool, &desc, &event));
  return event;
}

static ze_event_pool_handle_t create_pool(uint32_t count) {
  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL,
                               ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, count};
  ze_event_pool_handle_t pool;
  CHECK(zeEventPoolCreate(context, &desc, 0, NULL, &pool));
  return pool;
}

static struct target open_target(enum kind kind) {
  struct target target = {.kind = kind};
  target.pool = create_pool(1);
  target.done = create_event(target.pool, 0);
  ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                   .mode = kind == synchronous_immediate ? ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS
                                                                         : ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
  if (kind != regular) {
    CHECK(zeCommandListCreateImmediate(context, device, &queue, &target.list));
    return target;
  }
  ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
  ze_fence_desc_t fence = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
  CHECK(zeCommandListCreate(context, device, &list, &target.list));
  CHECK(zeCommandQueueCreate(context, device, &queue, &target.queue));
  CHECK(zeFenceCreate(target.queue, &fence, &target.fence));
  return target;
}

/* Runs what was appended and waits for its end: by the fence, or by the event that the last command signals. */
static void finish(struct target* target) {
  CHECK(zeCommandListAppendBarrier(target->list, target->done, 0, NULL));
  if (target->kind == regular) {
    REQUIRE(zeFenceQueryStatus(target->fence) == ZE_RESULT_NOT_READY);
    CHECK(zeCommandListClose(target->list));
    CHECK(zeCommandQueueExecuteCommandLists(target->queue, 1, &target->list, target->fence));
    CHECK(zeFenceHostSynchronize(target->fence, UINT64_MAX));
    CHECK(zeFenceReset(target->fence));
    CHECK(zeCommandQueueSynchronize(target->queue, UINT64_MAX));
    CHECK(zeCommandListReset(target->list));
  }
  CHECK(zeEventHostSynchronize(target->done, UINT64_MAX));
  CHECK(zeEventHostReset(target->done));
}

static void close_target(struct target* target) {
  CHECK(zeEventDestroy(target->done));
  CHECK(zeEventPoolDestroy(target->pool));
  if (target->fence)
    CHECK(zeFenceDestroy(target->fence));
  CHECK(zeCommandListDestroy(target->list));
  if (target->queue)
    CHECK(zeCommandQueueDestroy(target->queue));
}

static void* allocate(size_t bytes) {
  ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
  ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  void* pointer;
  CHECK(zeMemAllocShared(context, &on_device, &on_host, bytes, 0, device, &pointer));
  return pointer;
}

static ze_kernel_handle_t create_kernel(ze_module_handle_t module, const char* name, uint32_t group_size) {
  ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
  ze_kernel_handle_t kernel;
  CHECK(zeKernelCreate(module, &desc, &kernel));
  CHECK(zeKernelSetGroupSize(kernel, group_size, 1, 1));
  return kernel;
}

static void set_pointer(ze_kernel_handle_t kernel, uint32_t index, void* pointer) {
  CHECK(zeKernelSetArgumentValue(kernel, index, sizeof pointer, &pointer));
}

enum { items = 4096, group = 64, groups = items / group };

static void vector_add(ze_module_handle_t module, struct target* target) {
  ze_kernel_handle_t kernel = create_kernel(module, "vector_add", group);
  float *a = allocate(items * sizeof *a), *b = allocate(items * sizeof *b), *c = allocate(items * sizeof *c);
  for (int i = 0; i < items; ++i) {
    a[i] = (float)i;
    b[i] = 0.5f * (float)i;
  }
  set_pointer(kernel, 0, a);
  set_pointer(kernel, 1, b);
  set_pointer(kernel, 2, c);
  float nothing = -1;
  CHECK(zeCommandListAppendMemoryFill(target->list, c, &nothing, sizeof nothing, items * sizeof *c, NULL, 0, NULL));
  ze_group_count_t count = {groups, 1, 1};
  CHECK(zeCommandListAppendLaunchKernel(target->list, kernel, &count, NULL, 0, NULL));
  CHECK(zeCommandListAppendMemoryCopy(target->list, a, c, items * sizeof *a, NULL, 0, NULL));
  finish(target);
  for (int i = 0; i < items; ++i)
    REQUIRE(c[i] == 1.5f * (float)i && a[i] == c[i]);
  CHECK(zeMemFree(context, a));
  CHECK(zeMemFree(context, b));
  CHECK(zeMemFree(context, c));
  CHECK(zeKernelDestroy(kernel));
}

static void reduction(ze_module_handle_t module, struct target* target) {
  ze_kernel_handle_t kernel = create_kernel(module, "reduce_static", group);
  float *in = allocate(items * sizeof *in), *out = allocate(groups * sizeof *out);
  for (int i = 0; i < items; ++i)
    in[i] = (float)(i % 31);
  set_pointer(kernel, 0, in);
  set_pointer(kernel, 1, out);
  ze_event_pool_handle_t pool = create_pool(1);
  ze_event_handle_t timed = create_event(pool, 0);
  ze_kernel_timestamp_result_t* times = allocate(sizeof *times);
  ze_group_count_t count = {groups, 1, 1};
  CHECK(zeCommandListAppendLaunchKernel(target->list, kernel, &count, timed, 0, NULL));
  CHECK(zeCommandListAppendQueryKernelTimestamps(target->list, 1, &timed, times, NULL, NULL, 1, &timed));
  finish(target);
  for (int g = 0; g < groups; ++g) {
    float expected = 0;
    for (int i = 0; i < group; ++i)
      expected += in[g * group + i];
    REQUIRE(out[g] == expected);
  }
  ze_kernel_timestamp_result_t result;
  CHECK(zeEventQueryKernelTimestamp(timed, &result));
  REQUIRE(result.global.kernelStart > 0 && result.global.kernelEnd > result.global.kernelStart);
  REQUIRE(memcmp(times, &result, sizeof result) == 0);
  CHECK(zeEventDestroy(timed));
  CHECK(zeEventPoolDestroy(pool));
  CHECK(zeMemFree(context, in));
  CHECK(zeMemFree(context, out));
  CHECK(zeMemFree(context, times));
  CHECK(zeKernelDestroy(kernel));
}

static void atomics(ze_module_handle_t module, struct target* target) {
  ze_kernel_handle_t kernel = create_kernel(module, "count_atomically", group);
  int modulus = 3, zero = 0;
  int* counters = allocate(3 * sizeof *counters);
  set_pointer(kernel, 0, counters);
  CHECK(zeKernelSetArgumentValue(kernel, 1, sizeof modulus, &modulus));
  ze_group_count_t count = {groups, 1, 1};
  CHECK(zeCommandListAppendMemoryFill(target->list, counters, &zero, sizeof zero, 3 * sizeof *counters, NULL, 0, NULL));
  CHECK(zeCommandListAppendLaunchKernel(target->list, kernel, &count, NULL, 0, NULL));
  finish(target);
  REQUIRE(counters[0] == items / 3 + 1 && counters[1] == items / 3 && counters[2] == items / 3);
  CHECK(zeMemFree(context, counters));
  CHECK(zeKernelDestroy(kernel));
}

/* An append that waits for an event the host has not signalled returns at once; the command runs after the signal. */
static void waits_for_host(ze_module_handle_t module) {
  ze_kernel_handle_t kernel = create_kernel(module, "increment", 1);
  struct target target = open_target(asynchronous_immediate);
  ze_event_pool_handle_t pool = create_pool(2);
  ze_event_handle_t go = create_event(pool, 0), done = create_event(pool, 1);
  int* value = allocate(sizeof *value);
  *value = 41;
  set_pointer(kernel, 0, value);
  ze_group_count_t count = {1, 1, 1};
  CHECK(zeCommandListAppendLaunchKernel(target.list, kernel, &count, done, 1, &go));
  /* Only reached if the append did not wait: nobody else signals. */
  struct timespec pause = {0, 20 * 1000 * 1000};
  nanosleep(&pause, NULL);
  REQUIRE(zeEventQueryStatus(done) == ZE_RESULT_NOT_READY);
  REQUIRE(zeEventHostSynchronize(done, 1000000) == ZE_RESULT_NOT_READY);
  REQUIRE(*value == 41);
  CHECK(zeEventHostSignal(go));
  CHECK(zeEventHostSynchronize(done, UINT64_MAX));
  REQUIRE(*value == 42);
  finish(&target);
  CHECK(zeEventDestroy(go));
  CHECK(zeEventDestroy(done));
  CHECK(zeEventPoolDestroy(pool));
  close_target(&target);
  CHECK(zeMemFree(context, value));
  CHECK(zeKernelDestroy(kernel));
}

static ze_module_handle_t create_module(ze_module_format_t format, const uint8_t* bytes, size_t size) {
  ze_module_desc_t desc = {
      .stype = ZE_STRUCTURE_TYPE_MODULE_DESC, .format = format, .inputSize = size, .pInputModule = bytes};
  ze_module_handle_t module;
  ze_module_build_log_handle_t log;
  ze_result_t result = zeModuleCreate(context, device, &desc, &module, &log);
  if (result != ZE_RESULT_SUCCESS) {
    char text[2000];
    size_t length = sizeof text;
    zeModuleBuildLogGetString(log, &length, text);
    fprintf(stderr, "zeModuleCreate returned 0x%x: %s\n", (unsigned)result, text);
    exit(1);
  }
  CHECK(zeModuleBuildLogDestroy(log));
  return module;
}

static void run_all(ze_module_handle_t module) {
  for (int kind = 0; kind < kind_count; ++kind) {
    struct target target = open_target(kind);
    vector_add(module, &target);
    reduction(module, &target);
    atomics(module, &target);
    close_target(&target);
  }
  waits_for_host(module);
}

int main(int argc, char** argv) {
  REQUIRE(argc == 2);
  CHECK(zeInit(0));
  uint32_t count = 1;
  ze_driver_handle_t driver;
  CHECK(zeDriverGet(&count, &driver));
  count = 1;
  CHECK(zeDeviceGet(driver, &count, &device));
  ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
  CHECK(zeContextCreate(driver, &context_desc, &context));

  char path[4096];
  snprintf(path, sizeof path, "%s/basic.spv", argv[1]);
  FILE* file = fopen(path, "rb");
  REQUIRE(file);
  static uint8_t spirv[1 << 20];
  size_t size = fread(spirv, 1, sizeof spirv, file);
  fclose(file);

  ze_module_handle_t module = create_module(ZE_MODULE_FORMAT_IL_SPIRV, spirv, size);
  run_all(module);
  size_t native_size = 0;
  CHECK(zeModuleGetNativeBinary(module, &native_size, NULL));
  uint8_t* native = malloc(native_size);
  CHECK(zeModuleGetNativeBinary(module, &native_size, native));
  CHECK(zeModuleDestroy(module));

  module = create_module(ZE_MODULE_FORMAT_NATIVE, native, native_size);
  free(native);
  run_all(module);
  CHECK(zeModuleDestroy(module));
  CHECK(zeContextDestroy(context));
  printf("passed\n");
  return 0;
}
