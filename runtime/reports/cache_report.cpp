#include <string>
#include <vector>

#include "runtime/cache/maintenance.h"
#include "runtime/reports/json_text.h"
#include "runtime/reports/reports.h"

namespace zefuse::reports {

namespace {

std::string listOf(const std::vector<CacheEntryInfo>& infos) {
  json::List entries;
  for (const CacheEntryInfo& info : infos) {
    json::Object key;
    for (const auto& [name, value] : info.key)
      key.add(name, value);
    entries.add(json::Object()
                    .add("file", info.file)
                    .add("key", key)
                    .add("note", info.note)
                    .add("bytes", info.bytes)
                    .add("created", double(info.created) * 1e-9)
                    .add("last_used", info.last_used));
  }
  return entries.text().json;
}

}  // namespace

std::string ofCache(const std::string& directory) { return listOf(listEntries(directory)); }

std::string ofRecentEntries(const std::string& directory, const std::string& kind, size_t count) {
  return listOf(listRecent(directory, kind, count));
}

}  // namespace zefuse::reports
