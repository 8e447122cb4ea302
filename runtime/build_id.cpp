#include "runtime/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace zefuse {

// The notes of the object; see elf(5), "Notes (Nhdr)".
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
          const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          for (const char* end = at + header.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            const char* name = at + sizeof note;
            const char* body = name + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && std::string_view(name, note.n_namesz) == std::string_view("GNU", 4))
              search.id = {body, note.n_descsz};
            at = body + (note.n_descsz + 3) / 4 * 4;
          }
        }
        return 1;
      },
      &search);
  return search.id;
}

}  // namespace zefuse
