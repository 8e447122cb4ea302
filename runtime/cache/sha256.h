// SHA-256: what content keys and stored sections are named and checked by.
#pragma once

#include "common/base/api.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zefuse {

using Digest = std::array<uint8_t, 32>;

class ZEFUSE_API Sha256 {
public:
  Sha256();
  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text) { return update(std::as_bytes(std::span(text.data(), text.size()))); }
  Digest finish();  // the object must not be used afterwards

private:
  uint32_t state_[8];
  uint64_t length_ = 0;
  uint8_t block_[64];
  size_t filled_ = 0;
};

Digest sha256(std::span<const std::byte> bytes);
ZEFUSE_API std::string hex(const Digest& digest);

}  // namespace zefuse
