#include "runtime/primitives/core/primitive_cache.h"

#include <list>
#include <mutex>
#include <unordered_map>

#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {

namespace {

struct KeyHash {
  size_t operator()(const CacheKey& key) const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t word : key)
      hash = (hash ^ uint64_t(word)) * 0x100000001b3u, hash ^= hash >> 29;
    return hash;
  }
};

class Cache {
public:
  std::shared_ptr<const Primitive> find(const CacheKey& key) {
    std::lock_guard lock(mutex_);
    auto found = index_.find(key);
    if (found == index_.end())
      return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }

  std::shared_ptr<const Primitive> insert(const CacheKey& key, std::shared_ptr<const Primitive> primitive) {
    std::lock_guard lock(mutex_);
    auto found = index_.find(key);
    if (found != index_.end())
      return found->second->second;
    order_.emplace_front(key, primitive);
    index_[key] = order_.begin();
    if (order_.size() > capacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return primitive;
  }

private:
  static constexpr size_t capacity = 512;  // a primitive holds some 100 KB of code
  using Order = std::list<std::pair<CacheKey, std::shared_ptr<const Primitive>>>;
  ForkMutex mutex_;
  Order order_;
  std::unordered_map<CacheKey, Order::iterator, KeyHash> index_;
};

Cache& cache() {
  static auto* instance = new Cache;  // outlives static destruction in other libraries
  return *instance;
}

}  // namespace

CacheKey beginKey(CachedKind kind) { return {int64_t(kind), maxThreads()}; }

void append(CacheKey& key, const TensorDesc& desc) {
  key.push_back(int64_t(desc.dtype));
  key.push_back(int64_t(desc.sizes.size()));
  key.insert(key.end(), desc.sizes.begin(), desc.sizes.end());
  key.insert(key.end(), desc.strides.begin(), desc.strides.end());
}

void append(CacheKey& key, const std::optional<TensorDesc>& desc) {
  key.push_back(desc.has_value());
  if (desc)
    append(key, *desc);
}

void append(CacheKey& key, const std::vector<PostOpDesc>& post_ops) {
  for (const PostOpDesc& op : post_ops) {
    key.push_back(int64_t(op.kind));
    append(key, op.operand);
  }
}

std::shared_ptr<const Primitive> findCached(const CacheKey& key) { return cache().find(key); }

std::shared_ptr<const Primitive> insertCached(const CacheKey& key, std::shared_ptr<const Primitive> primitive) {
  return cache().insert(key, std::move(primitive));
}

}  // namespace zefuse::primitives
