#include "drivers/cpu/gomp.h"

#include <algorithm>

#include "common/base/unseen_order.h"
#include "drivers/cpu/environment.h"

extern "C" {
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_max_threads(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_in_parallel(void);
}

namespace zefuse::cpu {
namespace {

struct Region {
  void (*body)(void*, uint32_t, uint32_t);
  void* data;
  TeamOrder order;
};

void enterRegion(void* argument) {
  auto* region = static_cast<Region*>(argument);
  region->order.entered();
  region->body(region->data, static_cast<uint32_t>(omp_get_thread_num()), static_cast<uint32_t>(omp_get_num_threads()));
  region->order.left();
}

}  // namespace

uint32_t teamSize() {
  if (environment().max_threads == 1 || omp_in_parallel())
    return 1;
  return std::min(static_cast<uint32_t>(std::max(omp_get_max_threads(), 1)), environment().max_threads);
}

void runTeam(uint32_t threads, void (*body)(void*, uint32_t, uint32_t), void* data) {
  Region region = {body, data, {}};
  region.order.begin();
  GOMP_parallel(enterRegion, &region, threads, 0);
  region.order.end();
}

}  // namespace zefuse::cpu
