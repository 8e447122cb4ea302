// Which image formats there are, and what their texels are to kernels.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cpu/codegen/image/image_view.h"

namespace zefuse::cpu {

// Fills in what of a view is the format's. false: there is no such format (media formats, 8-bit floats, ...).
bool describeFormat(const ze_image_format_t& format, ImageView& view);

// Whether samplers may filter: integers are never averaged.
bool canFilter(const ImageView& view);

}  // namespace zefuse::cpu
