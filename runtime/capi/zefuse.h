/* zefuse's C interface: models that `zefuse compile` packed, run without Python and without torch.
 *
 * Objects are opaque. Functions that can fail return a zefuse_status; zefuse_error_message() then says in words what is
 * wrong, where, and what to do. No C++ exception leaves the library.
 *
 * Threads: any function may be called from any thread; one model may be called by many threads at a time. (A model that
 * changes its own buffers runs one call after the other.) Kernels run on the calling thread's OpenMP team (libgomp;
 * OMP_NUM_THREADS). After fork() a child may call and load models on the CPU, with threads of its own, whatever other
 * threads of its parent were doing. A model that the parent loaded on a GPU fails there with ZEFUSE_DEVICE; one whose
 * buffers another thread's call was changing at that moment with ZEFUSE_INVALID_ARGUMENT: load them in the child.
 *
 * Ownership: what a function creates is the caller's, who gives it back: models by zefuse_model_release, output tensors
 * by their own deleter, as DLPack has it. Strings and arrays that a function hands out live as long as their model.
 *
 * A package is code. Load only what you trust, as with a shared library.
 */
#ifndef ZEFUSE_H
#define ZEFUSE_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZEFUSE_API __attribute__((visibility("default")))
#else
#define ZEFUSE_API
#endif

/* Raised when this interface changes incompatibly; the library's name has it too (libzefuse_runtime.so.1). */
#define ZEFUSE_ABI_VERSION 1

/* The release that this header came with. */
#define ZEFUSE_VERSION "0.1.0"

typedef enum zefuse_status {
  ZEFUSE_OK = 0,
  ZEFUSE_INVALID_ARGUMENT = 1, /* the caller passed something wrong */
  ZEFUSE_INDEX_ERROR = 2,      /* an index inside a tensor's data is out of range */
  ZEFUSE_NOT_FOUND = 3,        /* no such file or device, or the package has nothing for this device */
  ZEFUSE_DAMAGED = 4,          /* the package fails its checks */
  ZEFUSE_UNSUPPORTED = 5,      /* valid, but not for this library or device: a newer format, operators of torch's */
  ZEFUSE_OUT_OF_MEMORY = 6,
  ZEFUSE_DEADLINE = 7,       /* a compiler or a device did not answer in time */
  ZEFUSE_DEVICE = 8,         /* the device's driver or oneDNN returned an error */
  ZEFUSE_INTERNAL = 9,       /* our own bug */
  ZEFUSE_CANCELLED = 10,     /* the caller asked for the end */
  ZEFUSE_LINEAR_ALGEBRA = 11 /* a matrix that a factorisation cannot take, such as a singular one */
} zefuse_status;

ZEFUSE_API uint32_t zefuse_abi_version(void);
/* "invalid_argument", ... Never NULL. */
ZEFUSE_API const char* zefuse_status_name(zefuse_status status);
/* Of the last function that failed on this thread: one or more lines. Valid until this thread's next call that fails.
 * Never NULL. */
ZEFUSE_API const char* zefuse_error_message(void);

typedef struct zefuse_model zefuse_model;

/* When the hash of the weights is compared with the package's. All else is always checked by the load. */
typedef enum zefuse_weights_check {
  ZEFUSE_CHECK_AT_FIRST_CALL = 0, /* before the first call computes: the load stays within milliseconds */
  ZEFUSE_CHECK_AT_LOAD = 1,
  ZEFUSE_CHECK_NEVER = 2 /* for storage that checks itself */
} zefuse_weights_check;

/* Whether a GPU's own driver may compile kernels that neither the package nor an installed compiler has code for. It
 * may take minutes a kernel, so it is done by consent only: in a child process with a deadline, and kept in cache_dir.
 */
typedef enum zefuse_jit {
  ZEFUSE_JIT_DEFAULT = 0, /* what the environment variable ZEFUSE_JIT says, else never */
  ZEFUSE_JIT_NEVER = 1,   /* the load fails with ZEFUSE_NOT_FOUND: name and id of the device, and what to do */
  ZEFUSE_JIT_WARN = 2,    /* a line on standard error before each kernel */
  ZEFUSE_JIT_ALLOW = 3    /* silently */
} zefuse_jit;

/* Told before the driver compiles a kernel: the device in words, the kernel, its number from 1 of at most `count`. From
 * any thread, one call at a time. 0 ends the load with ZEFUSE_CANCELLED (with ZEFUSE_DEADLINE where
 * zefuse_load_options.size ends before `cancelled`). */
typedef int (*zefuse_jit_progress)(void* data, const char* device, const char* kernel, size_t number, size_t count);

/* Whether the load shall end: asked before each kernel and each piece of weights that is checked, and about every 20 ms
 * while a compiler runs or is waited for. From any thread and from several at a time: it must be thread-safe, must not
 * block and must not throw; reading an atomic flag that another thread or a signal handler sets will do. Anything but 0
 * ends the load with ZEFUSE_CANCELLED, on no device: there is no model, compilers are killed and leave nothing behind,
 * what was compiled by then is in cache_dir. */
typedef int (*zefuse_cancelled)(void* data);

/* Zeroes are the defaults. `size` is sizeof(zefuse_load_options): later versions append members. */
typedef struct zefuse_load_options {
  size_t size;
  /* Where the model runs: "cpu" (NULL too), "gpu:0", "cuda:0" (CUDA's number of a device), or "gpu:0,cpu": the CPU
   * where that GPU is missing, unknown, or without code (zefuse_model_device says which it became, and why). */
  const char* device;
  const char* cache_dir; /* a folder for native code that the package lacks for this device; NULL: none is kept */
  zefuse_weights_check weights_check;
  int32_t build_threads; /* that make such code; 0: one per core */
  zefuse_jit jit;
  int32_t jit_timeout_s;            /* for one kernel, in seconds; 0: 120 */
  zefuse_jit_progress jit_progress; /* NULL: nobody is told */
  void* jit_progress_data;
  zefuse_cancelled cancelled; /* NULL: never */
  void* cancelled_data;
  /* Not 0: calls will bring tensors that lie on the GPU. Then no room is kept there for others, and nothing is
   * allocated before the first call. Calls may bring either kind whatever this says. */
  int32_t device_tensors;
} zefuse_load_options;

/* Maps the file, which must not be written to while the model lives (replace it by rename). `options` may be NULL.
 * The package needs native code for this device, or SPIR-V that the device's driver compiles now. */
ZEFUSE_API zefuse_status zefuse_model_load_file(const char* path, const zefuse_load_options* options,
                                                zefuse_model** model);
/* The bytes stay the caller's, aligned to 64, unchanged while the model lives. */
ZEFUSE_API zefuse_status zefuse_model_load_buffer(const void* data, size_t bytes, const zefuse_load_options* options,
                                                  zefuse_model** model);
/* NULL is allowed. No call may be running. Output tensors may outlive the model. */
ZEFUSE_API void zefuse_model_release(zefuse_model* model);

/* "cpu", "gpu:0" or "cuda:0": where the model runs. `why`, unless NULL, gets why it is not the first of the list that
 * it was loaded with, or NULL where it is. Both live as long as the model. */
ZEFUSE_API const char* zefuse_model_device(const zefuse_model* model, const char** why);

/* A tensor that a call takes or gives. */
typedef struct zefuse_tensor_info {
  const char* name;
  DLDataType dtype;
  int32_t ndim;
  const int64_t* sizes;         /* -1: each call decides */
  const char* const* size_text; /* "32", "s0", "s0 * 2": equal names are equal numbers within one call */
  const int64_t*
      strides; /* of inputs: the strides to pass, in elements; -1: follows from the sizes. NULL for outputs */
} zefuse_tensor_info;

/* Inputs and outputs are flat lists in the order of the exported program. A package compiled for several sets of shapes
 * describes the first one here. */
ZEFUSE_API size_t zefuse_model_num_inputs(const zefuse_model* model);
ZEFUSE_API size_t zefuse_model_num_outputs(const zefuse_model* model);
ZEFUSE_API zefuse_status zefuse_model_input(const zefuse_model* model, size_t index, zefuse_tensor_info* info);
ZEFUSE_API zefuse_status zefuse_model_output(const zefuse_model* model, size_t index, zefuse_tensor_info* info);

/* A file that the package carries for the program around the model, as it was given when the package was made:
 * "tokenizer.json" of a language model. The bytes live as long as the model. ZEFUSE_NOT_FOUND: which there are. */
ZEFUSE_API zefuse_status zefuse_model_file(const zefuse_model* model, const char* name, const void** data,
                                           size_t* bytes);

/* Runs the model. `inputs`: num_inputs tensors in CPU memory, borrowed for the call; strides may be NULL for row-major;
 * an integer input is a tensor of one int64. An input that was a constant when the program was exported (a number, a
 * bool, a string, None) may be NULL, which is that constant, or a tensor of one int64, double or bool, which is
 * compared with it. What torch.export found the arguments must be is checked: ZEFUSE_INVALID_ARGUMENT. Inputs are read
 * only, unless the exported program changed one of them in place; a language model writes its key-value cache.
 * `outputs`: room for num_outputs pointers. On success each is a new tensor in CPU memory, aligned to 64 bytes but for
 * its byte_offset, to be freed by its deleter (NULL where the program returned None); on an error all are NULL.
 *
 * A model on a GPU takes tensors of that GPU as well (zefuse_model_dl_device), where they are used without a copy if
 * they begin at a multiple of 64 bytes. This call waits for its work; nothing else may write them meanwhile. Memory of
 * an Intel GPU must be from zefuse_model_copy_tensor or an earlier call; of an NVIDIA GPU, from CUDA's primary context.
 */
ZEFUSE_API zefuse_status zefuse_model_call(zefuse_model* model, const DLTensor* const* inputs, size_t num_inputs,
                                           DLManagedTensor** outputs, size_t num_outputs);

/* Memory for a result on the device, of `bytes` > 0, aligned to 64. `stream`: where it will be written. Returns NULL
 * where there is none: the call fails with ZEFUSE_OUT_OF_MEMORY. From the calling thread. */
typedef void* (*zefuse_allocate)(void* data, size_t bytes, DLDevice device, void* stream);
/* Gives it back, from any thread: by the deleter of the tensor, or by a call that needs it no longer, while work that
 * is queued in the stream may still use it, so it must be freed in the stream's order (cudaFreeAsync) or after a wait.
 */
typedef void (*zefuse_free)(void* data, void* memory, DLDevice device);

/* Zeroes are the defaults: what zefuse_model_call does. `size` is sizeof(zefuse_call_options): later versions append
 * members. */
typedef struct zefuse_call_options {
  size_t size;
  int32_t results_on_device; /* not 0: results lie on the model's GPU; a number lies in CPU memory all the same */
  /* Not 0: the work goes into `stream`, behind what is queued there: a CUstream (cudaStream_t) of the device's primary
   * context, NULL for CUDA's default stream. If all tensors lie on the device, results too, the call returns when its
   * work is queued: inputs must stay until the stream has come past it, and a check that fails (an index out of range)
   * is told by a later call or by zefuse_model_synchronize. Else it waits. */
  int32_t in_stream;
  void* stream;
  /* NULL: memory comes from the device's driver, and giving it back waits for the device. Both or neither. */
  zefuse_allocate allocate;
  zefuse_free free;
  void* allocate_data;
} zefuse_call_options;

/* As zefuse_model_call. `options` may be NULL. ZEFUSE_UNSUPPORTED: a step of the model runs on the host, and a tensor
 * that it uses lies on the device: the message names both. */
ZEFUSE_API zefuse_status zefuse_model_call_with(zefuse_model* model, const zefuse_call_options* options,
                                                const DLTensor* const* inputs, size_t num_inputs,
                                                DLManagedTensor** outputs, size_t num_outputs);

/* Waits for what calls have queued in streams. An error is that of the first check that failed and was not told yet, or
 * the device's. */
ZEFUSE_API zefuse_status zefuse_model_synchronize(zefuse_model* model);

/* The device that tensors of the model's GPU have: {kDLCUDA, CUDA's number}, or {kDLOneAPI, the number in "gpu:0"};
 * {kDLCPU, 0} where the model is on the CPU. */
ZEFUSE_API DLDevice zefuse_model_dl_device(const zefuse_model* model);

/* A new row-major tensor with the same elements, on the model's GPU (to_device not 0) or in CPU memory, aligned to 64
 * bytes, to be freed by its deleter. Waits for what calls have queued, and for the copy. */
ZEFUSE_API zefuse_status zefuse_model_copy_tensor(zefuse_model* model, const DLTensor* tensor, int32_t to_device,
                                                  DLManagedTensor** copy);

/* Compares the hash of the weights now (the first call would do it). ZEFUSE_DAMAGED: they are not what was packed. */
ZEFUSE_API zefuse_status zefuse_model_check_weights(zefuse_model* model);

#ifdef __cplusplus
}
#endif

#endif
