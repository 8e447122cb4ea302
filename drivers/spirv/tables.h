// The tables of a native binary as bytes: what every driver's container is made of. No LLVM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "drivers/spirv/kernel_info.h"

namespace zefuse::spirv {

class TableWriter {
public:
  template <typename T> void number(T v) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto* p = reinterpret_cast<const std::byte*>(&v);
    out.insert(out.end(), p, p + sizeof v);
  }
  void bytes(const void* data, size_t n) {
    number<uint64_t>(n);
    auto* p = static_cast<const std::byte*>(data);
    out.insert(out.end(), p, p + n);
  }
  void string(const std::string& s) { bytes(s.data(), s.size()); }
  template <typename V, typename F> void list(const V& v, F each) {
    number<uint32_t>(v.size());
    for (auto& x : v)
      each(x);
  }
  std::vector<std::byte> out;
};

// Every read is checked; after the first failure all reads give zeros and `ok` is false.
class TableReader {
public:
  explicit TableReader(std::span<const std::byte> in) : in_(in) {}
  template <typename T> T number() {
    T v{};
    if (in_.size() < sizeof v) {
      ok = false;
      return v;
    }
    std::memcpy(&v, in_.data(), sizeof v);
    in_ = in_.subspan(sizeof v);
    return v;
  }
  std::span<const std::byte> bytes() {
    uint64_t n = number<uint64_t>();
    if (!ok || n > in_.size()) {
      ok = false;
      return {};
    }
    auto r = in_.first(n);
    in_ = in_.subspan(n);
    return r;
  }
  std::string string() {
    auto b = bytes();
    return std::string(reinterpret_cast<const char*>(b.data()), b.size());
  }
  template <typename V, typename F> void list(V& v, F each) {
    uint32_t n = number<uint32_t>();
    for (uint32_t i = 0; ok && i < n; ++i)
      v.push_back(each());
  }
  bool atEnd() const { return in_.empty(); }
  bool ok = true;

private:
  std::span<const std::byte> in_;
};

inline void writeKernelInfo(TableWriter& out, const KernelInfo& k) {
  out.string(k.name);
  out.list(k.args, [&](const ArgInfo& a) {
    out.number(static_cast<uint8_t>(a.kind));
    out.number(a.size);
    out.number(a.alignment);
  });
  for (uint32_t n : k.required_group_size)
    out.number(n);
  out.number(k.required_subgroup_size);
  out.number(k.local_bytes);
  out.number(k.private_bytes);
  out.number<uint8_t>(k.has_barrier);
  out.string(k.source_attributes);
}

// What is damaged leaves `r.ok` false.
inline KernelInfo readKernelInfo(TableReader& r) {
  KernelInfo k;
  k.name = r.string();
  r.list(k.args, [&] {
    ArgInfo a;
    uint8_t kind = r.number<uint8_t>();
    if (kind > static_cast<uint8_t>(ArgKind::sampler))
      r.ok = false;
    a.kind = static_cast<ArgKind>(kind);
    a.size = r.number<uint32_t>();
    a.alignment = r.number<uint32_t>();
    return a;
  });
  for (uint32_t& n : k.required_group_size)
    n = r.number<uint32_t>();
  k.required_subgroup_size = r.number<uint32_t>();
  k.local_bytes = r.number<uint32_t>();
  k.private_bytes = r.number<uint32_t>();
  k.has_barrier = r.number<uint8_t>() != 0;
  k.source_attributes = r.string();
  return k;
}

}  // namespace zefuse::spirv
