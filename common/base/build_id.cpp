#include "common/base/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace zefuse {
namespace {

// See elf(5), "Notes (Nhdr)".
std::string_view idInNotes(std::string_view notes) {
  const auto rounded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t body = sizeof note + rounded(note.n_namesz);
    if (body > notes.size() || note.n_descsz > notes.size() - body)
      break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == std::string_view("GNU", 4))
      return notes.substr(body, note.n_descsz);
    notes.remove_prefix(std::min(notes.size(), body + rounded(note.n_descsz)));
  }
  return {};
}

}  // namespace

std::string_view buildIdOf(const void* address) {
  struct Search {
    uintptr_t address;
    std::string_view id;
  } search{reinterpret_cast<uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        bool here = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr) & header = info->dlpi_phdr[i];
          const uintptr_t start = info->dlpi_addr + header.p_vaddr;
          here |= header.p_type == PT_LOAD && search.address >= start && search.address < start + header.p_memsz;
        }
        if (!here)
          return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr) & header = info->dlpi_phdr[i];
          if (header.p_type != PT_NOTE)
            continue;
          if (auto id = idInNotes({reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz});
              !id.empty())
            search.id = id;
        }
        return 1;
      },
      &search);
  return search.id;
}

std::string buildIdOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)))
    return {};
  for (size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) program{};
    file.seekg(std::streamoff(header.e_phoff + i * sizeof program));
    if (!file.read(reinterpret_cast<char*>(&program), sizeof program))
      return {};
    if (program.p_type != PT_NOTE || program.p_filesz > 1 << 16)
      continue;
    std::string notes(program.p_filesz, '\0');
    file.seekg(std::streamoff(program.p_offset));
    if (!file.read(notes.data(), std::streamsize(notes.size())))
      return {};
    if (const auto id = idInNotes(notes); !id.empty())
      return std::string(id);
  }
  return {};
}

}  // namespace zefuse
