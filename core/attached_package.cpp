#include "core/attached_package.h"

#include <sys/stat.h>

#include <map>
#include <mutex>

#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "compiler/import/graph_identity.h"
#include "runtime/cache/sha256.h"
#include "runtime/package/model.h"

namespace zefuse::core {
namespace {

using package::GraphKey;

struct Differences {
  size_t count = 0;
  std::string text;
  bool sizes_are_known = false;  // the plan has symbols where the graph has numbers

  void add(const std::string& what, const std::string& theirs, const std::string& ours) {
    if (++count <= 3)
      text += (text.empty() ? "" : ", ") + what + " (the package's: " + (theirs.empty() ? "none" : theirs) +
              ", the graph's: " + (ours.empty() ? "none" : ours) + ")";
  }
};

std::string field(const GraphKey& key, const std::string& name) {
  for (const auto& [known, value] : key.fields)
    if (known == name)
      return value;
  return {};
}

void compareLists(const char* what, const std::vector<std::string>& theirs, const std::vector<std::string>& ours,
                  Differences& result) {
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    const std::string a = i < theirs.size() ? theirs[i] : "", b = i < ours.size() ? ours[i] : "";
    if (a == b)
      continue;
    result.add(what + (" " + std::to_string(i)) + " in the order of use", a, b);
    result.sizes_are_known |= a.find("[s") != std::string::npos || a.find(", s") != std::string::npos;
  }
}

Differences compare(const GraphKey& theirs, const GraphKey& ours) {
  Differences result;
  for (const auto& [name, value] : ours.fields)
    if (name != "digest" && name != "operations" && field(theirs, name) != value)
      result.add(name, field(theirs, name), value);
  compareLists("input", theirs.inputs, ours.inputs, result);
  compareLists("output", theirs.outputs, ours.outputs, result);
  if (const std::string a = field(theirs, "operations"), b = field(ours, "operations"); a != b)
    result.add("operations", a, b);
  if (result.count == 0 && field(theirs, "digest") != field(ours, "digest"))
    result.add("what its operations do", field(theirs, "digest").substr(0, 12), field(ours, "digest").substr(0, 12));
  if (result.count > 3)
    result.text += " and " + std::to_string(result.count - 3) + " more";
  return result;
}

// For each input of the plan the graph's. Nothing: one of them has no number that the other needs.
std::optional<std::vector<int64_t>> sourcesOf(const GraphKey& theirs, size_t num_inputs, const GraphKey& ours) {
  std::vector<int64_t> sources(num_inputs, -1);
  auto put = [&](int64_t place, int64_t mine) {
    if (place < 0 || place >= int64_t(sources.size()) || mine < 0)
      return false;
    sources[size_t(place)] = mine;
    return true;
  };
  if (theirs.arguments.size() != ours.arguments.size() || theirs.symbols.size() != ours.symbols.size())
    return std::nullopt;
  for (size_t i = 0; i < ours.arguments.size(); ++i)
    if (theirs.arguments[i] < 0 || !put(theirs.arguments[i], ours.arguments[i]))
      return std::nullopt;
  for (size_t i = 0; i < ours.symbols.size(); ++i)
    if (theirs.symbols[i] >= 0 && !put(theirs.symbols[i], ours.symbols[i]))
      return std::nullopt;
  std::multimap<std::string, int64_t> unread(ours.unread.begin(), ours.unread.end());  // any of the kind will do
  for (const auto& [kind, place] : theirs.unread)
    if (auto mine = unread.find(kind); mine != unread.end() && put(place, mine->second))
      unread.erase(mine);
  return sources;
}

}  // namespace

GraphKey graphKey(const GraphIdentity& identity, const Options& options) {
  Sha256 hash;
  auto add = [&](const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      hash.update(line).update("\n");
    hash.update("\n");
  };
  add(identity.inputs);
  add(identity.outputs);
  hash.update(identity.text);
  GraphKey key;
  key.fields = {{"device", options.device},
                {"target", options.target},
                {"strict", options.strict ? "yes" : "no"},
                {"fuse", options.fuse ? "yes" : "no"},
                {"operations", identity.operations},
                {"digest", hex(hash.finish())}};
  // What packages without the fields are taken for.
  if (options.library_products != "auto")
    key.fields.emplace_back("library_products", options.library_products);
  if (options.library_convolutions != "auto")
    key.fields.emplace_back("library_convolutions", options.library_convolutions);
  if (!options.kept_weights && options.target != "cpu")
    key.fields.emplace_back("kept_weights", "no");
  if (options.tf32_products)
    key.fields.emplace_back("tf32_products", "yes");
  if (options.tf32_convolutions)
    key.fields.emplace_back("tf32_convolutions", "yes");
  key.inputs = identity.inputs;
  key.outputs = identity.outputs;
  key.arguments = identity.arguments;
  key.symbols = identity.symbols;
  key.unread = identity.unread;
  return key;
}

Result<std::shared_ptr<const AttachedPackage>> AttachedPackage::open(const std::string& path) {
  struct Known {
    std::string stamp;
    std::shared_ptr<const AttachedPackage> package;
  };
  static ForkMutex mutex;
  static std::map<std::string, Known> opened;  // by path; a mapping each, for the rest of the process

  struct stat info{};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return Status{Code::not_found, "option package: no file '" + path +
                                       "'; make one with: zefuse compile model.pt2 -o " + path +
                                       ", or leave the option (and ZEFUSE_PACKAGE) out"};
  std::string stamp;
  for (auto number : {uint64_t(info.st_dev), uint64_t(info.st_ino), uint64_t(info.st_size),
                      uint64_t(info.st_mtim.tv_sec), uint64_t(info.st_mtim.tv_nsec)})
    stamp += std::to_string(number) + " ";
  std::lock_guard lock(mutex);
  Known& known = opened[path];
  if (known.package && known.stamp == stamp)
    return known.package;
  auto reader = package::Reader::open(path, package::WeightsCheck::never);
  if (!reader.ok())
    return reader.status();
  auto manifest = package::Manifest::read(**reader);
  if (!manifest.ok())
    return manifest.status();
  auto self = std::make_shared<AttachedPackage>();
  self->reader_ = std::move(*reader);
  self->manifest_ = std::move(*manifest);
  known = {stamp, self};
  return known.package;
}

AttachedPackage::Match AttachedPackage::find(const GraphKey& graph) const {
  Match match;
  std::optional<Differences> nearest;
  // True when this plan is the graph's.
  auto fits = [&](const std::string& section, const GraphKey& theirs, size_t num_inputs) {
    Differences differences = compare(theirs, graph);
    if (differences.count == 0) {
      if (auto sources = sourcesOf(theirs, num_inputs, graph)) {
        match.section = section;
        match.sources = std::move(*sources);
        return true;
      }
      differences.add("where its sizes come from", "an integer that is given", "tensors");
    }
    if (!nearest || differences.count < nearest->count)
      nearest = std::move(differences);
    return false;
  };
  for (const package::CapturedGraph& entry : manifest_.captured)
    if (fits(entry.section, entry.graph, entry.num_inputs))
      return match;
  for (const package::PlanEntry& entry : manifest_.plans)
    if (entry.graph && fits(entry.section, *entry.graph, entry.inputs.size()))
      return match;
  if (!nearest) {
    match.reason = name() + " says of no plan which graph it was made of: make it again with this zefuse";
    return match;
  }
  match.reason = name() + " has no plan for this graph (it has " +
                 std::to_string(manifest_.plans.size() + manifest_.captured.size()) + "); the nearest differs in " +
                 nearest->text;
  if (nearest->sizes_are_known)
    match.reason += "; a plan for any size serves graphs in which that size is dynamic (torch._dynamo.mark_dynamic, "
                    "or torch.compile(dynamic=True))";
  return match;
}

Result<std::unique_ptr<Executable>> AttachedPackage::create(const Match& match, ExecutableOptions options,
                                                            bool compile) const {
  auto plan = reader_->section(match.section);
  if (!plan.ok())
    return plan.status();
  options.build = compile;
  options.native_binary = [&](std::string_view id, std::string_view target) -> std::span<const std::byte> {
    for (const std::string& level : package::nativeTargets(target))
      if (auto bytes = reader_->native(id, level); !bytes.empty())
        return bytes;
    return {};
  };
  auto executable = Executable::create(*plan, options);
  if (!executable.ok())
    return Status{executable.status().code(), name() + ": " + executable.status().message(),
                  executable.status().place()};
  const auto* inputs = (*executable)->plan().inputs();
  if ((inputs ? inputs->size() : 0) != match.sources.size())
    return Status{Code::damaged,
                  name() + ": its manifest and plan '" + match.section + "' do not belong together; make it again"};
  for (uint32_t i = 0; i < match.sources.size(); ++i)
    if (const plan::Input& input = *inputs->Get(i); match.sources[i] < 0 && input.kind() != plan::InputKind::unused)
      return Status{Code::not_found, name() + ": the plan of this graph wants an input '" +
                                         (input.name() ? input.name()->str() : std::to_string(i)) +
                                         "' that the graph does not have, though nothing reads it; remove it from the "
                                         "model's signature"};
  return executable;
}

}  // namespace zefuse::core
