// The part of CUDA's driver interface that this driver calls, declared here: libcuda.so.1 comes with NVIDIA's kernel
// driver and is loaded at run time, so that nothing of CUDA is needed to build, and nothing to load where there is
// none. Names, values and layouts are those of cuda.h, whose ABI they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zefuse::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUlinkState = struct CUlinkState_st*;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

enum CUjit_option : int {
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

inline constexpr int CU_JIT_INPUT_PTX = 1;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_STREAM_WAIT_VALUE_EQ = 1;
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2;
inline constexpr int CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1;
inline constexpr int CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_UNIFIED = 4;
inline constexpr int CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;

struct CUuuid {
  char bytes[16];
};

struct CUDA_MEMCPY3D {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void *srcArray, *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void *dstArray, *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};

// Name (of the ABI in use), result, parameters.
// clang-format off
#define ZEFUSE_CUDA_FUNCTIONS(F)                                                                                       \
  F(cuInit, cuInit, (unsigned flags))                                                                                  \
  F(cuDriverGetVersion, cuDriverGetVersion, (int* version))                                                            \
  F(cuGetErrorName, cuGetErrorName, (CUresult error, const char** text))                                               \
  F(cuGetErrorString, cuGetErrorString, (CUresult error, const char** text))                                           \
  F(cuDeviceGetCount, cuDeviceGetCount, (int* count))                                                                  \
  F(cuDeviceGet, cuDeviceGet, (CUdevice* device, int ordinal))                                                         \
  F(cuDeviceGetName, cuDeviceGetName, (char* name, int length, CUdevice device))                                       \
  F(cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid* uuid, CUdevice device))                                              \
  F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char* id, int length, CUdevice device))                                 \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))           \
  F(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                           \
  F(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                          \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device))                         \
  F(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext* context))                                                            \
  F(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                                                        \
  F(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext* context))                                                         \
  F(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr* pointer, size_t bytes))                                                   \
  F(cuMemFree, cuMemFree_v2, (CUdeviceptr pointer))                                                                    \
  F(cuMemHostAlloc, cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                                    \
  F(cuMemFreeHost, cuMemFreeHost, (void* pointer))                                                                     \
  F(cuPointerGetAttribute, cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr pointer))                    \
  F(cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                   \
  F(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream))                                 \
  F(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))            \
  F(cuMemsetD16Async, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))         \
  F(cuMemsetD32Async, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))               \
  F(cuMemsetD2D32Async, cuMemsetD2D32Async,                                                                            \
    (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream))                      \
  F(cuModuleLoadDataEx, cuModuleLoadDataEx,                                                                            \
    (CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values))                       \
  F(cuModuleUnload, cuModuleUnload, (CUmodule module))                                                                 \
  F(cuModuleGetFunction, cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))               \
  F(cuModuleGetGlobal, cuModuleGetGlobal_v2, (CUdeviceptr* pointer, size_t* bytes, CUmodule module, const char* name)) \
  F(cuLinkCreate, cuLinkCreate_v2, (unsigned count, CUjit_option* options, void** values, CUlinkState* state))         \
  F(cuLinkAddData, cuLinkAddData_v2,                                                                                   \
    (CUlinkState state, int type, void* data, size_t bytes, const char* name, unsigned count, CUjit_option* options,   \
     void** values))                                                                                                   \
  F(cuLinkComplete, cuLinkComplete, (CUlinkState state, void** cubin, size_t* bytes))                                  \
  F(cuLinkDestroy, cuLinkDestroy, (CUlinkState state))                                                                 \
  F(cuFuncGetAttribute, cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function))         \
  F(cuFuncSetAttribute, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))          \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,                          \
    (int* blocks, CUfunction function, int items, size_t shared_bytes))                                                \
  F(cuLaunchKernel, cuLaunchKernel,                                                                                    \
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                \
     unsigned shared_bytes, CUstream stream, void** parameters, void** extra))                                         \
  F(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,                                                              \
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                \
     unsigned shared_bytes, CUstream stream, void** parameters))                                                       \
  F(cuLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, void (*call)(void*), void* data))                            \
  F(cuStreamCreate, cuStreamCreate, (CUstream* stream, unsigned flags))                                                \
  F(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                                            \
  F(cuStreamQuery, cuStreamQuery, (CUstream stream))                                                                   \
  F(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int* status))                                          \
  F(cuStreamWaitValue32, cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))    \
  F(cuStreamWriteValue32, cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))  \
  F(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                        \
  F(cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph* graph))                                         \
  F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                                          \
    (CUgraphExec* exec, CUgraph graph, unsigned long long flags))                                                      \
  F(cuGraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                 \
  F(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec exec))                                                        \
  F(cuGraphDestroy, cuGraphDestroy, (CUgraph graph))
// Newer than CUDA 12.0: null where the driver lacks them.
#define ZEFUSE_CUDA_OPTIONAL_FUNCTIONS(F)                                                                              \
  F(cuModuleGetFunctionCount, cuModuleGetFunctionCount, (unsigned* count, CUmodule module))                            \
  F(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, (CUfunction* functions, unsigned count, CUmodule module))  \
  F(cuFuncGetName, cuFuncGetName, (const char** name, CUfunction function))                                            \
  F(cuFuncGetParamInfo, cuFuncGetParamInfo, (CUfunction function, size_t index, size_t* offset, size_t* bytes))
// clang-format on

struct CudaApi {
#define ZEFUSE_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters = nullptr;
  ZEFUSE_CUDA_FUNCTIONS(ZEFUSE_CUDA_MEMBER)
  ZEFUSE_CUDA_OPTIONAL_FUNCTIONS(ZEFUSE_CUDA_MEMBER)
#undef ZEFUSE_CUDA_MEMBER
};

// Loaded and cuInit called, once; lives as long as the process. Null: there is none, and `reason` says why.
// Thread-safe. ZEFUSE_CUDA_LIBRARY names another library than libcuda.so.1 (tests).
const CudaApi* findCuda(std::string& reason);
const CudaApi& cuda();  // after findCuda() was not null

std::string errorText(CUresult result);  // "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"

}  // namespace zefuse::cuda
