// zefuse.attention where four sub-groups multiply together (MatrixEngine::together).
#pragma once

#include "lowering/schedule/products/warpgroup_attention_tile.h"

namespace zefuse {

void scheduleWarpgroupAttention(const ScheduleContext& context, const WarpgroupAttentionTile& tile);

}  // namespace zefuse
