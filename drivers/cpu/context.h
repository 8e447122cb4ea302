// A context: what allocations, modules, lists, queues and event pools belong to.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/fork.h"
#include "drivers/cpu/level_zero.h"
#include "drivers/level_zero/context_calls.h"

namespace zefuse::cpu {

struct Backlog;
struct Device;

struct Context : Object<Context> {
  static constexpr uint32_t kMagic = magicOf("ZCTX");

  // The devices that it is for, as zeContextCreateEx lists them; none: all.
  const std::vector<const Device*> devices;

  explicit Context(std::vector<const Device*> devices = {}) : devices(std::move(devices)) {}
  ~Context();  // frees the allocations the application left behind

  // What this context's queues and lists were given, for the freeing policies of zeMemFreeExt.
  void add(std::shared_ptr<Backlog> backlog);
  void remove(const Backlog& backlog);
  void waitForWorkers();  // until everything submitted so far has run

  // Memory whose freeing was deferred while work was pending. Freed by a later call of the context once no work is.
  void deferFree(void* pointer);
  void freeDeferred();

private:
  ForkMutex mutex_;  // held for moments only, never while waiting
  std::vector<std::shared_ptr<Backlog>> backlogs_;
  std::vector<void*> deferred_;
  std::atomic<bool> any_deferred_{false};  // so that an allocation takes no lock to find none
};

decltype(::zeContextGetStatus) contextGetStatus;

}  // namespace zefuse::cpu
