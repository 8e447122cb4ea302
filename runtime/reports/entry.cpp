#include "runtime/reports/entry.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "runtime/cache/maintenance.h"
#include "runtime/reports/json_text.h"
#include "runtime/reports/reports.h"

namespace zefuse::reports {
namespace {

using Words = std::vector<std::string>;

Result<std::string> number(const Result<uint64_t>& count) {
  ZEFUSE_RETURN_IF_ERROR(count.status());
  return std::to_string(*count);
}

struct Row {
  const char* name;
  size_t arguments;
  Result<std::string> (*make)(const Words& words);
};

constexpr Row rows[] = {
    {"package", 1, [](const Words& words) { return ofPackage(words[1]); }},
    {"plan", 2, [](const Words& words) { return ofPlanIn(words[1], words[2]); }},
    {"targets", 0, [](const Words&) -> Result<std::string> { return ofTargets(); }},
    {"compilers", 0, [](const Words&) -> Result<std::string> { return ofCompilers(); }},
    {"devices", 0, [](const Words&) { return ofDevices(); }},
    {"cache", 1, [](const Words& words) -> Result<std::string> { return ofCache(words[1]); }},
    {"cache_recent", 3,
     [](const Words& words) -> Result<std::string> {
       return ofRecentEntries(words[1], words[2], std::strtoul(words[3].c_str(), nullptr, 10));
     }},
    {"cache_clear", 1, [](const Words& words) { return number(clearCache(words[1])); }},
    {"cache_export", 2, [](const Words& words) { return number(exportCache(words[1], words[2])); }},
    {"cache_import", 2, [](const Words& words) { return number(importCache(words[1], words[2])); }},
};

Result<std::string> make(const Words& words) {
  for (const Row& row : rows)
    if (!words.empty() && words[0] == row.name && words.size() == row.arguments + 1)
      return row.make(words);
  return Status{Code::invalid_argument, "no such report: " + (words.empty() ? std::string() : words[0])};
}

std::string answer(const Words& words) {
  Result<std::string> made = Status{Code::internal, "not made"};
  try {
    made = make(words);
  } catch (const std::exception& error) {
    made = Status{Code::internal, error.what()};
  }
  if (made.ok())
    return "{\"ok\":" + *made + "}";
  return json::Object()
      .add("error", codeName(made.status().code()))
      .add("message", made.status().message())
      .text()
      .json;
}

}  // namespace
}  // namespace zefuse::reports

char* zefuse_report(const char* const* words, size_t count) {
  try {
    const std::string json = zefuse::reports::answer({words, words + count});
    char* copy = static_cast<char*>(std::malloc(json.size() + 1));
    if (copy)
      std::memcpy(copy, json.c_str(), json.size() + 1);
    return copy;
  } catch (...) {  // no memory
    return nullptr;
  }
}

void zefuse_report_free(char* json) { std::free(json); }
