// The process-wide cache of prepared matmuls.
#include "runtime/onednn/matmul.h"

#include <bit>
#include <list>
#include <mutex>
#include <unordered_map>

#include "compiler/plan/plan_generated.h"
#include "runtime/onednn/descriptor.h"
#include "runtime/onednn/prepared_matmul.h"
#include "runtime/onednn/team.h"

namespace zefuse::onednn {

namespace {

using Key = std::vector<int64_t>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t word : key)
      hash = (hash ^ uint64_t(word)) * 0x100000001b3u, hash ^= hash >> 29;
    return hash;
  }
};

void append(Key& key, const TensorDesc& desc) {
  key.push_back(int64_t(desc.dtype));
  key.push_back(int64_t(desc.sizes.size()));
  key.insert(key.end(), desc.sizes.begin(), desc.sizes.end());
  key.insert(key.end(), desc.strides.begin(), desc.strides.end());
}

Key makeKey(const MatmulDesc& desc, int threads) {
  Key key{threads, desc.pack_b, int64_t(desc.fpmath), std::bit_cast<int32_t>(desc.alpha), desc.bias.has_value()};
  append(key, desc.a);
  append(key, desc.b);
  append(key, desc.out);
  if (desc.bias)
    append(key, *desc.bias);
  for (const PostOpDesc& op : desc.post_ops) {
    key.push_back(int64_t(op.kind));
    if (op.operand)
      append(key, *op.operand);
  }
  return key;
}

class Cache {
public:
  std::shared_ptr<const Matmul> find(const Key& key) {
    std::lock_guard lock(mutex_);
    auto found = index_.find(key);
    if (found == index_.end())
      return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }

  // Two threads may have built the same product: the first one stays.
  std::shared_ptr<const Matmul> insert(const Key& key, std::shared_ptr<const Matmul> matmul) {
    std::lock_guard lock(mutex_);
    auto found = index_.find(key);
    if (found != index_.end())
      return found->second->second;
    order_.emplace_front(key, matmul);
    index_[key] = order_.begin();
    if (order_.size() > capacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return matmul;
  }

private:
  static constexpr size_t capacity = 512;  // a primitive holds some 100 KB of code
  using Order = std::list<std::pair<Key, std::shared_ptr<const Matmul>>>;
  std::mutex mutex_;
  Order order_;
  std::unordered_map<Key, Order::iterator, KeyHash> index_;
};

Cache& cache() {
  static auto* instance = new Cache;  // outlives static destruction in other libraries
  return *instance;
}

}  // namespace

Status Matmul::check(const MatmulDesc& desc) { return checkDescriptor(desc); }

Result<std::shared_ptr<const Matmul>> Matmul::get(const MatmulDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(checkDescriptor(desc));
  MatmulDesc form = canonical(desc);
  Key key = makeKey(form, maxThreads());
  if (auto known = cache().find(key))
    return known;
  auto built = PreparedMatmul::build(form);  // outside the lock: generating code takes milliseconds
  if (!built.ok())
    return built;
  return cache().insert(key, *built);
}

}  // namespace zefuse::onednn
