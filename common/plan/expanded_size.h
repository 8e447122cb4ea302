// How large a flatbuffer becomes when each reference is followed: verifying and unpacking it costs as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatbuffers {
struct TypeTable;
}

namespace zefuse::plan {

// Whether the tables, strings and vectors of a buffer, each counted as often as something refers to it, take at most
// `most` bytes. A buffer that nobody shares parts in takes no more than its own size; a hostile one of megabytes can
// stand for terabytes. Any bytes are safe to pass; what is out of bounds counts nothing, the verifier tells of it.
bool expandsToAtMost(std::span<const std::byte> buffer, const flatbuffers::TypeTable* root, size_t most);

}  // namespace zefuse::plan
