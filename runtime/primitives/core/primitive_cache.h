// The process-wide cache of prepared library calls.
#pragma once

#include <memory>
#include <vector>

#include "runtime/primitives/core/primitive.h"

namespace zefuse::primitives {

// Every number that tells two prepared calls apart.
using CacheKey = std::vector<int64_t>;

enum class CachedKind : int64_t { matmul, convolution };

// A key that begins with the kind and torch's thread count (omp_get_max_threads of the calling thread).
CacheKey beginKey(CachedKind kind);
void append(CacheKey& key, const TensorDesc& desc);
void append(CacheKey& key, const std::optional<TensorDesc>& desc);
void append(CacheKey& key, const std::vector<PostOpDesc>& post_ops);

// The least recently used goes at 512. Thread-safe.
std::shared_ptr<const Primitive> findCached(const CacheKey& key);
// Two threads may have built the same call: the first one stays and is returned.
std::shared_ptr<const Primitive> insertCached(const CacheKey& key, std::shared_ptr<const Primitive> primitive);

}  // namespace zefuse::primitives
