#include "runtime/cache/entry.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/base/atomic_file.h"
#include "common/base/descriptor_io.h"
#include "runtime/cache/sha256.h"

namespace zefuse {
namespace {

struct Header {
  char magic[8];
  uint64_t key_bytes;
  uint64_t note_bytes;
  uint64_t body_bytes;
  int64_t created;
  Digest digest;  // of the fields above but the magic, then key, note, body
};
constexpr char magic[8] = {'Z', 'F', 'C', 'A', 'C', 'H', 'E', '2'};

constexpr uint64_t max_text = 1 << 20;  // of key and note: more is no entry of ours

Digest digestOf(const Header& header, std::span<const std::byte> rest) {
  return Sha256().update(std::as_bytes(std::span(&header.key_bytes, 4))).update(rest).finish();
}

bool plausible(const Header& header, uint64_t file_bytes) {
  return std::memcmp(header.magic, magic, sizeof magic) == 0 && header.key_bytes <= max_text &&
         header.note_bytes <= max_text && header.body_bytes <= file_bytes &&
         sizeof header + header.key_bytes + header.note_bytes + header.body_bytes == file_bytes;
}

// `texts`: key and note.
Entry headOf(const Header& header, const std::byte* texts) {
  const char* at = reinterpret_cast<const char*>(texts);
  return {{at, header.key_bytes}, {at + header.key_bytes, header.note_bytes}, header.created, {}};
}

}  // namespace

std::vector<std::byte> packEntry(std::string_view key, std::string_view note, int64_t created,
                                 std::span<const std::byte> body) {
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.key_bytes = key.size();
  header.note_bytes = note.size();
  header.body_bytes = body.size();
  header.created = created;
  std::vector<std::byte> file(sizeof header);
  for (std::span<const std::byte> part : {std::as_bytes(std::span(key)), std::as_bytes(std::span(note)), body})
    file.insert(file.end(), part.begin(), part.end());
  header.digest = digestOf(header, std::span(file).subspan(sizeof header));
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

std::string writeEntryFile(const std::string& path, std::span<const std::byte> packed) {
  AtomicFile file(path, 0600);
  const bool written = file.descriptor() >= 0 && writeAll(file.descriptor(), packed.data(), packed.size());
  return written && file.commit() ? std::string() : std::strerror(errno);
}

std::optional<Entry> unpackEntry(std::span<const std::byte> file) {
  Header header;
  if (file.size() < sizeof header)
    return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  const auto rest = file.subspan(sizeof header);
  if (!plausible(header, file.size()) || digestOf(header, rest) != header.digest)
    return std::nullopt;
  Entry entry = headOf(header, rest.data());
  const auto body = rest.last(header.body_bytes);
  entry.body.assign(body.begin(), body.end());
  return entry;
}

std::optional<Entry> readEntry(int file) {
  struct stat info{};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
    return std::nullopt;
  std::vector<std::byte> bytes(size_t(info.st_size));
  return readAll(file, bytes.data(), bytes.size()) ? unpackEntry(bytes) : std::nullopt;
}

std::optional<Entry> readHead(int file) {
  struct stat info{};
  Header header;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || !readAll(file, &header, sizeof header) ||
      !plausible(header, uint64_t(info.st_size)))
    return std::nullopt;
  std::vector<std::byte> texts(header.key_bytes + header.note_bytes);
  return readAll(file, texts.data(), texts.size()) ? std::optional(headOf(header, texts.data())) : std::nullopt;
}

}  // namespace zefuse
