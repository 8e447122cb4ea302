#include "core/plan_key.h"

#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "common/base/build_id.h"
#include "core/compiler_id.h"
#include "mlir/IR/Verifier.h"
#include "runtime/cache/sha256.h"
#include "llvm-c/Core.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace zefuse::core {
namespace {

// "/somewhere/model.py":12:0 becomes "model.py":12:0: one model compiled in two folders is one model.
std::string withoutFolders(const std::string& text) {
  std::string result;
  result.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = text.find('"', at);
    size_t close = open;
    do
      close = close == std::string::npos ? close : text.find('"', close + 1);
    while (close != std::string::npos && text[close - 1] == '\\');
    if (close == std::string::npos)
      break;
    result.append(text, at, open + 1 - at);
    const bool file = close + 2 < text.size() && text[close + 1] == ':' && std::isdigit((unsigned char)text[close + 2]);
    std::string_view name = std::string_view(text).substr(open + 1, close - open);
    // Within the quotes: a search through all that stands before them takes 10 s for a model of 30 layers.
    if (const size_t slash = name.rfind('/'); file && slash != std::string_view::npos)
      name.remove_prefix(slash + 1);
    result.append(name);
    at = close + 1;
  }
  return result.append(text, at);
}

// The SHA-256 of a text without its folders, line after line: the text of a model of 30 layers is tens of megabytes. No
// name has an end of line in it, which MLIR writes as \0A.
class HashWithoutFolders : public llvm::raw_ostream {
public:
  HashWithoutFolders() { SetBufferSize(1 << 14); }
  ~HashWithoutFolders() override { flush(); }
  Digest finish() {
    flush();
    hash_.update(withoutFolders(line_));
    line_.clear();
    return hash_.finish();
  }

private:
  void write_impl(const char* data, size_t size) override {
    written_ += size;
    std::string_view text(data, size);
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      hash_.update(withoutFolders(line_.append(text.substr(0, end + 1))));
      line_.clear();
      text.remove_prefix(end + 1);
    }
    line_.append(text);
  }
  uint64_t current_pos() const override { return written_; }

  Sha256 hash_;
  std::string line_;
  uint64_t written_ = 0;
};

std::string buildIds() {
  std::vector<std::string> ids;  // fewer than there are parts where one library holds several
  const auto of_mlir = static_cast<llvm::LogicalResult (*)(mlir::Operation*, bool)>(&mlir::verify);
  for (const void* address : {reinterpret_cast<const void*>(&planKey), reinterpret_cast<const void*>(of_mlir),
                              reinterpret_cast<const void*>(&LLVMGetVersion)})
    if (std::string id = llvm::toHex(buildIdOf(address).substr(0, 8), true); !llvm::is_contained(ids, id))
      ids.push_back(std::move(id));
  return llvm::join(ids, "-");
}

}  // namespace

const std::string& compilerId() {
  static const std::string compiler = buildIds();
  return compiler;
}

CacheKey planKey(mlir::ModuleOp module, const Options& options) {
  HashWithoutFolders graph;
  module->print(graph, mlir::OpPrintingFlags().enableDebugInfo(true, false).useLocalScope());
  CacheKey key("plan");
  key.add("format", "1")
      .add("compiler", compilerId())
      .add("device", options.device)
      .add("target", options.target)
      .add("strict", options.strict ? "yes" : "no")
      .add("fuse", options.fuse ? "yes" : "no")
      .add("library products", options.library_products)
      .add("library convolutions", options.library_convolutions)
      .add("kept weights", options.kept_weights ? "yes" : "no")
      .add("tf32 products", options.tf32_products ? "yes" : "no")
      .add("tf32 convolutions", options.tf32_convolutions ? "yes" : "no")
      .add("device compiler", options.device_compiler)
      .addHash("tuning", std::as_bytes(std::span(options.tuning)))
      .add("decisions", options.list_decisions ? "yes" : "no")
      .add("graph", hex(graph.finish()));
  return key;
}

}  // namespace zefuse::core
