#include "runtime/package/package.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include "common/base/atomic_file.h"
#include "common/base/parallel.h"

namespace zefuse::package {
namespace {

constexpr char magic[8] = {'Z', 'F', 'P', 'A', 'C', 'K', '\r', '\n'};
constexpr uint64_t alignment = 64;
constexpr size_t max_name = 4096;
constexpr uint32_t max_sections = 1 << 20;

struct Header {
  char magic[8];
  uint16_t version;
  uint16_t reader;  // the lowest version that a reader must know; 0 in format 1
  uint32_t sections;
  uint64_t table_bytes;  // entries, then names one after the other
  uint64_t file_bytes;
  Digest digest;  // of this header with a zero digest, and the table
};
static_assert(sizeof(Header) == 64);

struct Entry {
  uint64_t offset, bytes;
  uint32_t name_bytes, reserved;
  Digest digest;
};
static_assert(sizeof(Entry) == 56);

uint64_t alignUp(uint64_t value) { return (value + alignment - 1) / alignment * alignment; }

Digest digestOf(Header header, std::span<const std::byte> table) {
  header.digest = {};
  return Sha256().update(std::as_bytes(std::span(&header, 1))).update(table).finish();
}

constexpr size_t piece_bytes = size_t(1) << 20;

// Of no use once it is cancelled.
Digest sectionDigest(std::span<const std::byte> bytes, const CancelCheck& cancelled = {}) {
  std::vector<Digest> pieces((bytes.size() + piece_bytes - 1) / piece_bytes);
  inParallel(pieces.size(), std::thread::hardware_concurrency(), [&](size_t i) {
    if (!cancelled())
      pieces[i] = sha256(bytes.subspan(i * piece_bytes, std::min(piece_bytes, bytes.size() - i * piece_bytes)));
  });
  return sha256(std::as_bytes(std::span(pieces)));
}

Status writeAt(int file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t part = pwrite(file, bytes.data(), bytes.size(), off_t(offset));
    if (part < 0 && errno == EINTR)
      continue;
    if (part <= 0)
      return {Code::out_of_memory, std::strerror(errno)};
    offset += uint64_t(part);
    bytes = bytes.subspan(size_t(part));
  }
  return {};
}

}  // namespace

std::string nativeSection(std::string_view module_id, std::string_view target) {
  return "native/" + std::string(module_id) + "." + std::string(target);
}

Status Writer::write(const std::string& path) const {
  std::set<std::string_view> names;
  for (const Section& section : sections_)
    if (section.name.empty() || section.name.size() > max_name || !names.insert(section.name).second)
      return {Code::invalid_argument, "package: section name '" + section.name + "' is empty, too long or used twice"};

  // By name, so that the order of add() does not show.
  std::vector<const Section*> order;
  for (const Section& section : sections_)
    order.push_back(&section);
  std::sort(order.begin(), order.end(), [](const Section* a, const Section* b) { return a->name < b->name; });

  std::vector<Entry> entries;
  std::string all_names;
  for (const Section* section : order) {
    Entry entry{};
    entry.bytes = section->bytes.size();
    entry.name_bytes = uint32_t(section->name.size());
    entry.digest = sectionDigest(section->bytes);
    entries.push_back(entry);
    all_names += section->name;
  }
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = header.reader = format_version;
  header.sections = uint32_t(entries.size());
  header.table_bytes = entries.size() * sizeof(Entry) + all_names.size();
  uint64_t at = sizeof(Header) + header.table_bytes;
  for (Entry& entry : entries) {
    entry.offset = alignUp(at);
    at = entry.offset + entry.bytes;
  }
  header.file_bytes = at;
  std::vector<std::byte> table(header.table_bytes);
  if (!entries.empty()) {
    std::memcpy(table.data(), entries.data(), entries.size() * sizeof(Entry));
    std::memcpy(table.data() + entries.size() * sizeof(Entry), all_names.data(), all_names.size());
  }
  header.digest = digestOf(header, table);

  removeAbandoned(path);
  AtomicFile file(path, 0644);
  if (file.descriptor() < 0)
    return {Code::not_found, "package: cannot write " + path + ": " + std::strerror(errno)};
  Status status = writeAt(file.descriptor(), 0, std::as_bytes(std::span(&header, 1)));
  if (status.ok())
    status = writeAt(file.descriptor(), sizeof header, table);
  for (size_t i = 0; i < order.size() && status.ok(); ++i)
    status = writeAt(file.descriptor(), entries[i].offset, order[i]->bytes);
  if (status.ok() && ftruncate(file.descriptor(), off_t(header.file_bytes)) != 0)  // an empty last section
    status = {Code::out_of_memory, std::strerror(errno)};
  if (status.ok() && !file.commit())
    status = {Code::not_found, std::strerror(errno)};
  if (status.ok())
    return {};
  return {status.code(), "package: cannot write " + path + ": " + status.message()};
}

Result<std::unique_ptr<Reader>> Reader::open(const std::string& path, WeightsCheck weights,
                                             const CancelCheck& cancelled) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return Status{Code::not_found, "package " + path + ": " + std::strerror(errno)};
  struct stat info{};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || uint64_t(info.st_size) < sizeof(Header)) {
    close(file);
    return Status{Code::damaged, "package " + path + " is too short to be one; make it again"};
  }
  void* data = mmap(nullptr, size_t(info.st_size), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (data == MAP_FAILED)
    return Status{Code::out_of_memory, "package " + path + ": cannot map it: " + std::strerror(error)};
  std::unique_ptr<Reader> reader(new Reader);
  reader->name_ = "package " + path;
  reader->data_ = static_cast<const std::byte*>(data);
  reader->size_ = size_t(info.st_size);
  reader->mapped_ = true;
  ZEFUSE_RETURN_IF_ERROR(reader->check(weights, cancelled));
  return reader;
}

Result<std::unique_ptr<Reader>> Reader::fromBuffer(std::span<const std::byte> bytes, WeightsCheck weights,
                                                   const CancelCheck& cancelled) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment != 0)
    return Status{Code::invalid_argument, "package in memory: its address must be a multiple of 64, as aligned_alloc "
                                          "and mmap give"};
  if (bytes.size() < sizeof(Header))
    return Status{Code::damaged, "package in memory: " + std::to_string(bytes.size()) + " bytes are too short for one"};
  std::unique_ptr<Reader> reader(new Reader);
  reader->name_ = "package in memory";
  reader->data_ = bytes.data();
  reader->size_ = bytes.size();
  ZEFUSE_RETURN_IF_ERROR(reader->check(weights, cancelled));
  return reader;
}

Reader::~Reader() {
  if (mapped_)
    munmap(const_cast<std::byte*>(data_), size_);
}

Status Reader::check(WeightsCheck weights, const CancelCheck& cancelled) {
  auto damaged = [&](const std::string& what) {
    return Status{Code::damaged, name_ + ": " + what + "; make it again"};
  };
  Header header;
  std::memcpy(&header, data_, sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0)
    return damaged("it does not begin as a package does");
  if (header.reader > format_version)
    return {Code::unsupported, name_ + " is of format " + std::to_string(header.version) +
                                   " and needs a runtime that reads format " + std::to_string(header.reader) +
                                   "; this one reads " + std::to_string(oldest_format) + " to " +
                                   std::to_string(format_version) +
                                   ": load it with a newer zefuse, or compile the "
                                   "model again with this one"};
  if (header.version < oldest_format)
    return damaged("format version " + std::to_string(header.version));
  if (header.file_bytes != size_)
    return damaged("it has " + std::to_string(size_) + " bytes and should have " + std::to_string(header.file_bytes));
  if (header.sections > max_sections || header.table_bytes > size_ - sizeof header ||
      header.table_bytes < header.sections * sizeof(Entry))
    return damaged("its table of sections does not fit");
  const std::span table(data_ + sizeof header, size_t(header.table_bytes));
  if (digestOf(header, table) != header.digest)
    return damaged("the hash of its table of sections is wrong");
  format_ = header.version;
  read_by_ = std::max<uint32_t>(header.reader, oldest_format);
  digest_ = header.digest;

  // From here on the table is what the writer wrote; its bounds are checked all the same.
  size_t name_at = header.sections * sizeof(Entry);
  uint64_t end = sizeof header + header.table_bytes;
  for (uint32_t i = 0; i < header.sections; ++i) {
    Entry entry;
    std::memcpy(&entry, table.data() + i * sizeof entry, sizeof entry);
    if (entry.name_bytes > table.size() - name_at)
      return damaged("section " + std::to_string(i) + " has a name beyond its table");
    const std::string name(reinterpret_cast<const char*>(table.data() + name_at), entry.name_bytes);
    name_at += entry.name_bytes;
    if (entry.offset != alignUp(end) || entry.offset > size_ || entry.bytes > size_ - entry.offset)
      return damaged("section '" + name + "' lies outside the file");
    if (std::any_of(data_ + end, data_ + entry.offset, [](std::byte value) { return value != std::byte(0); }))
      return damaged("the padding before section '" + name + "' is not zero");
    sections_.push_back({name, {data_ + entry.offset, size_t(entry.bytes)}, entry.digest});
    if (name != weights_section)
      ZEFUSE_RETURN_IF_ERROR(checkSection(sections_.back(), cancelled));
    end = entry.offset + entry.bytes;
  }
  if (end != size_ || name_at != table.size())
    return damaged("it has bytes behind its last section or name");
  for (size_t i = 0; i < sections_.size(); ++i)
    if (!section_numbers_.emplace(sections_[i].name, i).second)
      return damaged("it has two sections '" + sections_[i].name + "'");
  if (weights == WeightsCheck::never)
    weights_.emplace();
  return weights == WeightsCheck::at_open ? checkWeights(cancelled) : Status();
}

Status Reader::checkSection(const Section& section, const CancelCheck& cancelled) const {
  if ((format_ == 1 ? sha256(section.bytes) : sectionDigest(section.bytes, cancelled)) == section.digest)
    return {};
  if (cancelled())
    return {Code::cancelled, name_ + ": checking section '" + section.name + "' was cancelled"};
  return {Code::damaged, name_ + ": the hash of section '" + section.name + "' is wrong; make it again"};
}

Status Reader::checkWeights(const CancelCheck& cancelled) const {
  std::lock_guard turn(weights_turn_);
  {
    std::lock_guard lock(weights_mutex_);
    if (weights_)
      return *weights_;
  }
  Status status;
  if (const Section* section = find(weights_section))
    status = checkSection(*section, cancelled);
  std::lock_guard lock(weights_mutex_);
  if (status.code() != Code::cancelled)
    weights_ = status;
  return status;
}

const Reader::Section* Reader::find(std::string_view name) const {
  const auto found = section_numbers_.find(name);
  return found == section_numbers_.end() ? nullptr : &sections_[found->second];
}

Result<std::span<const std::byte>> Reader::section(std::string_view name) const {
  if (const Section* section = find(name))
    return section->bytes;
  return Status{Code::damaged, name_ + " has no section '" + std::string(name) + "'"};
}

std::span<const std::byte> Reader::native(std::string_view module_id, std::string_view target) const {
  const std::string name = nativeSection(module_id, target);
  const Section* section = find(name);
  return section ? section->bytes : std::span<const std::byte>();
}

}  // namespace zefuse::package
