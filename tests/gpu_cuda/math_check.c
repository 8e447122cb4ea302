/* Every math function of a kernel on the first device, against the host's long double: the largest error in units in
 * the last place over 65536 arguments (half a unit is what the nearest number has), and then a kernel with barriers,
 * local memory and atomics. Links -lze_loader alone. Argument: math_check.spv. Exit status 1 where an error is larger
 * than 4, where less than a quarter of a function's results could be measured, or where a group is wrong. */
#define _GNU_SOURCE
#include <level_zero/ze_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    ze_result_t result_ = (call);                                                                                      \
    if (result_) {                                                                                                     \
      printf("%s: 0x%x\n", #call, (unsigned)result_);                                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

typedef long double real;
enum { count = 1 << 16, items = 256 };

static ze_context_handle_t context;
static ze_device_handle_t device;
static ze_module_handle_t module;
static ze_command_list_handle_t list;

static void* allocate(size_t bytes) {
  ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
  ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  void* pointer;
  CHECK(zeMemAllocShared(context, &on_device, &on_host, bytes, 0, device, &pointer));
  return pointer;
}

static real rsqrt_l(real x) { return 1 / sqrtl(x); }

/* low == high: any bits. */
struct function {
  const char* name;
  real (*unary)(real);
  real (*binary)(real, real);
  double low, high;
};
static const struct function functions[] = {
    {"exp", expl, NULL, -104, 89},      {"exp2", exp2l, NULL, -149, 128},
    {"exp10", exp10l, NULL, -45, 38.5}, {"expm1", expm1l, NULL, -20, 80},
    {"log", logl, NULL, 0, 0},          {"log2", log2l, NULL, 0, 0},
    {"log10", log10l, NULL, 0, 0},      {"log1p", log1pl, NULL, -1, 4},
    {"sin", sinl, NULL, 0, 0},          {"cos", cosl, NULL, 0, 0},
    {"tan", tanl, NULL, 0, 0},          {"asin", asinl, NULL, -1, 1},
    {"acos", acosl, NULL, -1, 1},       {"atan", atanl, NULL, 0, 0},
    {"sinh", sinhl, NULL, -80, 80},     {"cosh", coshl, NULL, -80, 80},
    {"tanh", tanhl, NULL, -10, 10},     {"asinh", asinhl, NULL, 0, 0},
    {"acosh", acoshl, NULL, 1, 100},    {"atanh", atanhl, NULL, -1, 1},
    {"cbrt", cbrtl, NULL, 0, 0},        {"erf", erfl, NULL, -5, 5},
    {"erfc", erfcl, NULL, -3, 9},       {"sqrt", sqrtl, NULL, 0, 0},
    {"rsqrt", rsqrt_l, NULL, 0, 0},     {"floor", floorl, NULL, -100, 100},
    {"ceil", ceill, NULL, -100, 100},   {"rint", rintl, NULL, -100, 100},
    {"round", roundl, NULL, -100, 100}, {"trunc", truncl, NULL, -100, 100},
    {"fabs", fabsl, NULL, 0, 0},        {"pow", NULL, powl, 0, 20},
    {"atan2", NULL, atan2l, 0, 0},      {"hypot", NULL, hypotl, 0, 0},
    {"fmod", NULL, fmodl, -1e4, 1e4},   {"fmin", NULL, fminl, -1, 1},
    {"fmax", NULL, fmaxl, -1, 1},       {"copysign", NULL, copysignl, -1, 1},
};

static unsigned long long random_bits(void) {
  static unsigned long long state = 88172645463325252ull;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static double argument(const struct function* f, int wide) {
  if (f->low < f->high)
    return f->low + (double)(random_bits() >> 11) / (double)(1ull << 53) * (f->high - f->low);
  unsigned long long bits = random_bits();
  if (wide) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
  unsigned half = (unsigned)bits;
  float x;
  memcpy(&x, &half, sizeof x);
  return x;
}

/* Results that are infinite or no number have no error, but must be so; they are not `measured`. */
static double error_in_ulp(double got, real exact, int wide, int* measured) {
  double wanted = wide ? (double)exact : (double)(float)exact;
  if ((isnan(wanted) && isnan(got)) || (isinf(wanted) && wanted == got))
    return 0;
  ++*measured;
  if (!isfinite(wanted) || !isfinite(got))
    return INFINITY;
  double size = fabs(wanted);
  double ulp = wide ? nextafter(size, INFINITY) - size : (double)nextafterf((float)size, INFINITY) - size;
  return (double)(fabsl((real)got - exact) / ulp);
}

static void launch(const char* name, uint32_t groups, uint32_t size, void** pointers, size_t local_bytes) {
  ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
  ze_kernel_handle_t kernel;
  CHECK(zeKernelCreate(module, &desc, &kernel));
  CHECK(zeKernelSetGroupSize(kernel, size, 1, 1));
  for (uint32_t i = 0; i < 3; ++i)
    if (i == 2 && local_bytes)
      CHECK(zeKernelSetArgumentValue(kernel, i, local_bytes, NULL));
    else
      CHECK(zeKernelSetArgumentValue(kernel, i, sizeof(void*), &pointers[i]));
  ze_group_count_t count_of_groups = {groups, 1, 1};
  CHECK(zeCommandListAppendLaunchKernel(list, kernel, &count_of_groups, NULL, 0, NULL));
  CHECK(zeKernelDestroy(kernel));
}

static double worst_of(const struct function* f, int wide, void** memory, double* at, int* measured) {
  char name[64];
  snprintf(name, sizeof name, "%s_%c", f->name, wide ? 'd' : 'f');
  for (int i = 0; i < 2 * count; ++i) {
    double x = argument(f, wide);
    if (wide)
      ((double*)memory[i / count])[i % count] = x;
    else
      ((float*)memory[i / count])[i % count] = (float)x;
  }
  memset(memory[2], 0xff, count * sizeof(double)); /* what no kernel writes is no number */
  launch(name, count / items, items, memory, 0);
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    double value[3];
    for (int k = 0; k < 3; ++k)
      value[k] = wide ? ((double*)memory[k])[i] : ((float*)memory[k])[i];
    real exact = f->unary ? f->unary(value[0]) : f->binary(value[0], value[1]);
    double error = error_in_ulp(value[2], exact, wide, measured);
    if (error > worst) {
      worst = error;
      *at = value[0];
    }
  }
  return worst;
}

static int wrong_groups(void) {
  enum { groups = 64, size = 512 };
  uint32_t *in = allocate(groups * size * sizeof *in), *out = allocate(2 * groups * sizeof *out);
  memset(out, 0, 2 * groups * sizeof *out);
  for (int i = 0; i < groups * size; ++i)
    in[i] = (uint32_t)random_bits() & 0xffff;
  void* pointers[3] = {in, out, NULL};
  launch("work_group", groups, size, pointers, size * sizeof(uint32_t));
  int wrong = 0;
  for (int g = 0; g < groups; ++g) {
    uint32_t sum = 0, most = 0;
    for (int i = 0; i < size; ++i) {
      sum += in[g * size + i];
      most = in[g * size + i] > most ? in[g * size + i] : most;
    }
    wrong += out[g] != sum || out[groups + g] != most;
  }
  return wrong;
}

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  CHECK(zeInit(0));
  uint32_t one = 1;
  ze_driver_handle_t driver;
  CHECK(zeDriverGet(&one, &driver));
  CHECK(zeDeviceGet(driver, &one, &device));
  ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
  CHECK(zeDeviceGetProperties(device, &properties));
  printf("%s, id %04x:%04x\n", properties.name, properties.vendorId, properties.deviceId);
  ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
  CHECK(zeContextCreate(driver, &context_desc, &context));
  static uint8_t spirv[1 << 22];
  FILE* file = fopen(argv[1], "rb");
  if (!file)
    return 2;
  ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                           .format = ZE_MODULE_FORMAT_IL_SPIRV,
                           .inputSize = fread(spirv, 1, sizeof spirv, file),
                           .pInputModule = spirv};
  ze_module_build_log_handle_t log;
  ze_result_t result = zeModuleCreate(context, device, &desc, &module, &log);
  if (result != ZE_RESULT_SUCCESS) {
    char text[4000] = "";
    size_t length = sizeof text;
    zeModuleBuildLogGetString(log, &length, text);
    printf("zeModuleCreate: 0x%x: %s\n", (unsigned)result, text);
    return 1;
  }
  ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                   .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
  CHECK(zeCommandListCreateImmediate(context, device, &queue, &list));
  void* memory[3];
  for (int i = 0; i < 3; ++i)
    memory[i] = allocate(count * sizeof(double));
  int bad = 0, unmeasured = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
    for (int wide = 0; wide < 2; ++wide) {
      int measured = 0;
      double at = 0, worst = worst_of(&functions[i], wide, memory, &at, &measured);
      bad += worst > 4;
      unmeasured += measured < count / 4;
      printf("%-9s %s %8.3f ulp of %5d at %-16.9g%s", functions[i].name, wide ? "f64" : "f32", worst, measured, at,
             wide ? "\n" : " | ");
    }
  int wrong = wrong_groups();
  printf("more than 4 ulp: %d functions; not measured: %d; barriers, local memory and atomics: %d of 64 groups wrong\n",
         bad, unmeasured, wrong);
  return bad || unmeasured || wrong;
}
