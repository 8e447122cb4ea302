// model.zefuse: one file of named sections. Everything a compiled model needs: the manifest, the plan, native code per
// kernel module and target, the weights.
//
// Layout: a header, a table of sections, then the sections, each at a multiple of 64 bytes (weights are used where they
// are mapped). A SHA-256 over header and table, one over each section, and zeros in between that are checked: there is
// no byte of a package whose change goes unnoticed. Equal contents give equal bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace zefuse::package {

// Names of the sections that every package has.
constexpr std::string_view manifest_section = "manifest";  // JSON
constexpr std::string_view plan_section = "plan";          // plan.fbs
constexpr std::string_view weights_section = "weights";    // safetensors
std::string nativeSection(std::string_view module_id, std::string_view target);

class Writer {
public:
  // The bytes must stay valid until write(). Names: 1 to 4096 bytes, no two alike (checked by write).
  void add(std::string name, std::span<const std::byte> bytes) { sections_.push_back({std::move(name), bytes}); }
  // Written beside `path` first, then renamed: a reader never sees half a package.
  Status write(const std::string& path) const;

private:
  struct Section {
    std::string name;
    std::span<const std::byte> bytes;
  };
  std::vector<Section> sections_;
};

// A mapped package. Immutable and thread-safe; spans stay valid while it lives.
class Reader {
public:
  // Checks everything, all hashes included. not_found: no such file; damaged: what is wrong where.
  static Result<std::unique_ptr<Reader>> open(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;

  struct Section {
    std::string name;
    std::span<const std::byte> bytes;  // 64-byte aligned
  };
  const std::vector<Section>& sections() const { return sections_; }
  // damaged when there is none: a package without it cannot be used.
  Result<std::span<const std::byte>> section(std::string_view name) const;
  // Empty when there is none. Fits ExecutableOptions::native_binary.
  std::span<const std::byte> native(std::string_view module_id, std::string_view target) const;

private:
  Reader() = default;
  Status check();
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::vector<Section> sections_;
};

}  // namespace zefuse::package
