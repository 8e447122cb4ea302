// The calling thread's OpenMP team, through libgomp's own entry points: clang would call libomp,
// which would be a second pool beside torch's.
#pragma once

#include "common/base/api.h"
#include <cstdint>
#include <functional>

namespace zefuse::onednn {

ZEFUSE_API int maxThreads();
ZEFUSE_API void setMaxThreads(int threads);  // of the calling thread only

// body(begin, end) over [0, count), in as many parts as the team has threads and `grain` (the least
// count worth a thread) allows. What `body` throws first is thrown here, once all parts have ended.
void overTeam(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// body(part, parts) for each part at the same time, each on a thread of its own, so that they may wait for each other:
// `wanted` parts, or as many as the team has threads. As overTeam what is thrown; the others must not wait for it then.
void togetherOverTeam(int64_t wanted, const std::function<void(int64_t, int64_t)>& body);

}  // namespace zefuse::onednn
