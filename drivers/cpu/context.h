// A context: what allocations, modules, lists, queues and event pools belong to.
#pragma once

#include <level_zero/ze_api.h>

#include <mutex>
#include <vector>

#include "drivers/cpu/error.h"
#include "drivers/cpu/handle.h"

namespace zefuse::cpu {

class Worker;

struct Context : Object<Context> {
  static constexpr uint32_t kMagic = magicOf("ZCTX");

  ~Context();  // frees the allocations the application left behind

  // The workers of this context's queues and lists, for the freeing policies of zeMemFreeExt.
  void add(Worker* worker);
  void remove(Worker* worker);
  void waitForWorkers();  // until everything submitted so far has run
  bool workersIdle();

  // Memory whose freeing was deferred while work was pending. Freed by a later call of the context once no work is.
  void deferFree(void* pointer);
  void freeDeferred();

private:
  std::mutex mutex_;
  std::vector<Worker*> workers_;
  std::vector<void*> deferred_;
};

decltype(::zeContextCreate) contextCreate;
decltype(::zeContextCreateEx) contextCreateEx;
decltype(::zeContextDestroy) contextDestroy;
decltype(::zeContextGetStatus) contextGetStatus;
decltype(::zeContextSystemBarrier) contextSystemBarrier;
decltype(::zeContextMakeMemoryResident) contextMakeMemoryResident;
decltype(::zeContextEvictMemory) contextEvictMemory;

}  // namespace zefuse::cpu
