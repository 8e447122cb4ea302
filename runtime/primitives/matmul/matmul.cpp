#include "runtime/primitives/matmul/matmul.h"

#include <bit>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/primitive_cache.h"
#include "runtime/primitives/matmul/blas_matmul.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/panel_matmul.h"
#include "runtime/primitives/matmul/prepared_matmul.h"
#include "runtime/primitives/matmul/split_matmul.h"
#include "runtime/primitives/matmul/tiled_matmul.h"

namespace zefuse::primitives {

using plan::LibraryWay;

namespace {

CacheKey makeKey(const MatmulDesc& desc) {
  CacheKey key = beginKey(CachedKind::matmul);
  key.insert(key.end(), {desc.pack_b, int64_t(desc.fpmath), int64_t(desc.way), std::bit_cast<int32_t>(desc.alpha)});
  append(key, desc.a);
  append(key, desc.b);
  append(key, desc.out);
  append(key, desc.bias);
  append(key, desc.post_ops);
  return key;
}

}  // namespace

Status Matmul::check(const MatmulDesc& desc) { return checkDescriptor(desc); }

bool Matmul::isCached(const MatmulDesc& desc) { return check(desc).ok() && findCached(makeKey(canonical(desc))); }

Result<std::shared_ptr<const Matmul>> Matmul::get(const MatmulDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(checkDescriptor(desc));
  MatmulDesc form = canonical(desc);
  CacheKey key = makeKey(form);
  if (auto known = findCached(key))
    return std::static_pointer_cast<const Matmul>(known);
  // The first that takes it; outside the lock, since generating code takes milliseconds.
  Result<std::shared_ptr<const Matmul>> built = std::shared_ptr<const Matmul>();
  auto offer = [&](auto* build) {
    if (built.ok() && !*built)
      built = build(form);
  };
  for (auto* build : {SplitMatmul::build, PanelMatmul::build, BlasMatmul::build})
    offer(build);
  if (form.way == LibraryWay::split || form.way == LibraryWay::panels || form.way == LibraryWay::blas)
    form.way = LibraryWay::automatic;  // where they are not to be had
  for (auto* build : {TiledMatmul::build, PreparedMatmul::build})
    offer(build);
  if (!built.ok())
    return built;
  return std::static_pointer_cast<const Matmul>(insertCached(key, *built));
}

}  // namespace zefuse::primitives
