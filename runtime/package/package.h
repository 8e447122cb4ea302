// model.zefuse: one file of named sections. Everything a compiled model needs: the manifest, the plan, native code per
// kernel module and target, the weights.
//
// Layout: a header, a table of sections, then the sections, each at a multiple of 64 bytes (weights are used where they
// are mapped). A SHA-256 over header and table, one over each section, and zeros in between that are checked: there is
// no byte of a package whose change goes unnoticed. Equal contents give equal bytes. A section's hash is that of the
// hashes of its pieces of 1 MiB, so that cores share the work; in format 1 it was taken in one piece.
//
// Versions: the header states the file's format and the lowest format that a reader must know to read it. A change that
// old readers may ignore (a new section, a new key of the manifest) raises neither. What a runtime refuses as too new
// has Code::unsupported and says which formats it reads.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/fork.h"
#include "common/base/status.h"
#include "runtime/cache/sha256.h"

namespace zefuse::package {

constexpr uint32_t format_version = 2;  // what Writer writes
constexpr uint32_t oldest_format = 1;   // what Reader still reads

// Names of the sections that every package has; the manifest names the plans (manifest.h).
constexpr std::string_view manifest_section = "manifest";  // JSON
constexpr std::string_view plan_section = "plan";          // plan.fbs: the name in format 1, a prefix since
constexpr std::string_view weights_section = "weights";    // safetensors
// A prefix: what a package carries for the program around the model, such as a tokenizer. Opaque here.
constexpr std::string_view file_section = "file/";
// `target`: "avx2", ..., or a GPU product; in format 1 "cpu".
ZEFUSE_API std::string nativeSection(std::string_view module_id, std::string_view target);

class ZEFUSE_API Writer {
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

// When the weights' hash is compared. Everything else is always checked when the package is opened.
enum class WeightsCheck {
  at_open,
  at_first_use,  // by checkWeights(): reading all weights costs more than all else that loading does
  never,         // for those who keep packages on storage that checks itself
};

// An open package. Thread-safe; spans stay valid while it lives.
class ZEFUSE_API Reader {
public:
  // Maps the file, which must not be changed while the reader lives (replace it by rename, as Writer does).
  // not_found: no such file; damaged: what is wrong where; unsupported: a newer format; cancelled, which is asked
  // between pieces of what is hashed.
  static Result<std::unique_ptr<Reader>>
  open(const std::string& path, WeightsCheck weights = WeightsCheck::at_first_use, const CancelCheck& cancelled = {});
  // The bytes stay the caller's and must outlive the reader; aligned to 64.
  static Result<std::unique_ptr<Reader>> fromBuffer(std::span<const std::byte> bytes,
                                                    WeightsCheck weights = WeightsCheck::at_first_use,
                                                    const CancelCheck& cancelled = {});
  ~Reader();
  Reader(const Reader&) = delete;

  struct Section {
    std::string name;
    std::span<const std::byte> bytes;  // 64-byte aligned
    Digest digest;                     // as the table has it
  };
  const std::vector<Section>& sections() const { return sections_; }
  // damaged when there is none: a package without it cannot be used.
  Result<std::span<const std::byte>> section(std::string_view name) const;
  // Empty when there is none.
  std::span<const std::byte> native(std::string_view module_id, std::string_view target) const;
  // Compares the weights' hash unless that was done or is not wanted. Threads that come meanwhile wait; the answer
  // stays, unless it was cancelled.
  Status checkWeights(const CancelCheck& cancelled = {}) const;

  uint32_t format() const { return format_; }
  uint32_t readBy() const { return read_by_; }       // the lowest format that a runtime must know to read it
  const std::string& name() const { return name_; }  // for messages: "package model.zefuse"
  const Digest& digest() const { return digest_; }   // of header and table, and so of the whole package

private:
  Reader() = default;
  Status check(WeightsCheck weights, const CancelCheck& cancelled);
  Status checkSection(const Section& section, const CancelCheck& cancelled) const;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
  uint32_t format_ = 0, read_by_ = 0;
  Digest digest_{};
  std::string name_;
  std::vector<Section> sections_;
  std::map<std::string_view, size_t> section_numbers_;  // by name
  const Section* find(std::string_view name) const;     // nullptr: none
  mutable LongForkMutex weights_turn_;                  // of whoever takes the hash of the weights
  mutable ForkMutex weights_mutex_;                     // guards the next
  mutable std::optional<Status> weights_;               // what checkWeights found
};

}  // namespace zefuse::package
