/* Runs a package through the C interface alone: run_package FOLDER DEVICE, with what package.py wrote into FOLDER. Says
 * how far the output is from the expected one, the largest difference over the largest value; exit status 1 where that
 * is more than 1e-4, where the model does not load, run, or give this many values, and where a compiler, Python or
 * torch was loaded into this process: the package has all that it needs. On a GPU, the same again with tensors that lie
 * there, in CUDA's default stream. */
#include "runtime/capi/zefuse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void* readAll(const char* folder, const char* name, size_t* bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) {
    printf("%s: cannot be read\n", path);
    exit(1);
  }
  *bytes = (size_t)ftell(file);
  rewind(file);
  void* data = malloc(*bytes + 1);
  if (fread(data, 1, *bytes, file) != *bytes)
    exit(1);
  fclose(file);
  return data;
}

static void check(const char* what, zefuse_status status) {
  if (status == ZEFUSE_OK)
    return;
  printf("%s: %s: %s\n", what, zefuse_status_name(status), zefuse_error_message());
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Libraries of this process that no package should need: their number, each with a line. */
static int unwanted(void) {
  static const char* const names[] = {"libLLVM", "libzefuse_core", "_compiler.so", "libpython", "libtorch"};
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
      if (strstr(line, names[i]) && strstr(line, "r-xp") && ++found)
        printf("loaded: %s", line);
  if (maps)
    fclose(maps);
  return found + !maps;
}

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  char path[4096];
  snprintf(path, sizeof path, "%s/model.zefuse", argv[1]);
  zefuse_load_options options = {.size = sizeof options, .device = argv[2], .jit = ZEFUSE_JIT_NEVER};
  zefuse_model* model = NULL;
  const double start = now();
  check("load", zefuse_model_load_file(path, &options, &model));
  const double loaded = now();
  zefuse_tensor_info info;
  check("input", zefuse_model_input(model, 0, &info));
  size_t bytes, expected_bytes;
  float* data = readAll(argv[1], "input_0.bin", &bytes);
  float* expected = readAll(argv[1], "output_0.bin", &expected_bytes);
  int64_t sizes[8], rest = 1;
  for (int i = 1; i < info.ndim; ++i)
    rest *= sizes[i] = info.sizes[i];
  sizes[0] = (int64_t)(bytes / sizeof(float)) / rest; /* the symbol */
  DLTensor input = {.data = data, .device = {kDLCPU, 0}, .ndim = info.ndim, .dtype = info.dtype, .shape = sizes};
  const DLTensor* inputs[1] = {&input};
  double worst = 0, largest = 0, first = 0, last = 0, on_device = 0;
  DLManagedTensor* placed = NULL;
  const int gpu = zefuse_model_dl_device(model).device_type != kDLCPU;
  for (int round = 0; round < (gpu ? 10 : 5); ++round) {
    const int there = round >= 5;
    DLManagedTensor* output = NULL;
    zefuse_call_options how = {.size = sizeof how, .results_on_device = there, .in_stream = there};
    if (there && !placed) {
      check("to the device", zefuse_model_copy_tensor(model, &input, 1, &placed));
      inputs[0] = &placed->dl_tensor;
    }
    const double before = now();
    check("call", zefuse_model_call_with(model, &how, inputs, 1, &output, 1));
    const double took = now() - before;
    first = round == 0 ? took : first;
    *(there ? &on_device : &last) = took;
    if (there) {
      DLManagedTensor* back = NULL;
      check("to the host", zefuse_model_copy_tensor(model, &output->dl_tensor, 0, &back));
      output->deleter(output);
      output = back;
    }
    size_t count = 1;
    for (int i = 0; i < output->dl_tensor.ndim; ++i)
      count *= (size_t)output->dl_tensor.shape[i];
    if (count != expected_bytes / sizeof(float)) {
      printf("%zu values instead of %zu\n", count, expected_bytes / sizeof(float));
      return 1;
    }
    const float* got = (const float*)((const char*)output->dl_tensor.data + output->dl_tensor.byte_offset);
    for (size_t i = 0; i < count; ++i) {
      const double error = fabs((double)got[i] - expected[i]);
      worst = error <= worst ? worst : error; /* no number is worse than any */
      largest = fmax(largest, fabs(expected[i]));
    }
    output->deleter(output);
  }
  if (placed)
    placed->deleter(placed);
  printf("%s: largest error %.2g; load %.1f ms, first call %.1f ms, fifth %.2f ms, queued %.3f ms\n",
         zefuse_model_device(model, NULL), worst / largest, loaded - start, first, last, on_device);
  const int loaded_too = unwanted();
  zefuse_model_release(model);
  return loaded_too || !(worst / largest <= 1e-4);
}
