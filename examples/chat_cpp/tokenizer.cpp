#include "tokenizer.h"

#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/utext.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>
#include <unordered_map>

namespace {

using Json = nlohmann::json;
using Token = std::int64_t;

// The regular expression that ByteLevel has where its use_regex says so: GPT-2's.
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("tokenizer.json: " + what + ", which this program does not know");
}

void check(UErrorCode code, const char* what) {
  if (U_FAILURE(code))
    throw std::runtime_error(std::string(what) + ": " + u_errorName(code));
}

std::string typeOf(const Json& part) { return part.is_object() ? part.value("type", "") : ""; }

// ICU's \s lacks two characters of Unicode's White_Space, which the expressions of such files mean.
std::string withUnicodeSpaces(const std::string& pattern) {
  std::string result;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char kind = pattern[++i];
      result += kind == 's' ? "\\p{White_Space}" : kind == 'S' ? "\\P{White_Space}" : std::string{'\\', kind};
    } else {
      result += pattern[i];
    }
  }
  return result;
}

// Cuts text into the pieces that an expression matches and those between them.
class Splitter {
public:
  explicit Splitter(const std::string& pattern) {
    UErrorCode code = U_ZERO_ERROR;
    pattern_.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(withUnicodeSpaces(pattern)), 0, code));
    if (U_FAILURE(code))
      refuse("the regular expression " + pattern);
  }
  void operator()(std::string_view text, std::vector<std::string_view>& pieces) const {
    UErrorCode code = U_ZERO_ERROR;
    UText utext = UTEXT_INITIALIZER;
    utext_openUTF8(&utext, text.data(), std::int64_t(text.size()), &code);
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(code));
    check(code, "ICU");
    matcher->reset(&utext);
    std::size_t end = 0;
    while (matcher->find(code)) {
      const auto from = std::size_t(matcher->start64(code)), to = std::size_t(matcher->end64(code));
      if (from > end)
        pieces.push_back(text.substr(end, from - end));
      if (to > from)
        pieces.push_back(text.substr(from, to - from));
      end = to;
    }
    if (end < text.size())
      pieces.push_back(text.substr(end));
    utext_close(&utext);
    check(code, "the tokenizer's regular expression");
  }

private:
  std::unique_ptr<icu::RegexPattern> pattern_;
};

// GPT-2's characters for bytes: printable ones stand for themselves, the others for U+0100 and what follows.
std::array<std::string, 256> charactersOfBytes() {
  std::array<std::string, 256> result;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    const int code = printable ? byte : next++;
    std::string& text = result[std::size_t(byte)];
    if (code < 0x80) {
      text.push_back(char(code));
    } else {
      text.push_back(char(0xC0 | code >> 6));
      text.push_back(char(0x80 | (code & 0x3F)));
    }
  }
  return result;
}

struct Added {
  std::string text;
  Token token;
};

}  // namespace

struct Tokenizer::Impl {
  bool normalize = false;  // to NFC
  bool prefix_space = false;
  std::vector<Splitter> splitters;
  std::vector<Added> added;  // the longest first
  std::vector<Token> before, after;
  bool knows_special = true;  // what the file puts around a text
  std::string special_kind;
  bool ignore_merges = false;

  std::array<Token, 256> of_byte{};  // -1: left out of any text
  std::unordered_map<std::string, Token> vocabulary;
  struct Merge {
    std::size_t rank;
    Token made;
  };
  std::unordered_map<std::uint64_t, Merge> merges;  // by pairOf
  std::vector<std::string> bytes_of;                // by token; of special ones nothing

  static std::uint64_t pairOf(Token left, Token right) { return std::uint64_t(left) << 32 | std::uint64_t(right); }

  void readNormalizer(const Json& part);
  void readPreTokenizer(const Json& part);
  void readModel(const Json& model);
  void readAdded(const Json& list);
  void readAround(const Json& part);
  void encodePlain(std::string_view text, std::vector<Token>& tokens) const;
  void encodeWord(std::string_view word, std::vector<Token>& tokens) const;
};

void Tokenizer::Impl::readNormalizer(const Json& part) {
  if (part.is_null())
    return;
  if (typeOf(part) == "Sequence") {
    for (const Json& each : part.at("normalizers"))
      readNormalizer(each);
  } else if (typeOf(part) == "NFC") {
    normalize = true;
  } else {
    refuse("the normalizer " + typeOf(part));
  }
}

void Tokenizer::Impl::readPreTokenizer(const Json& part) {
  const std::string type = typeOf(part);
  if (type == "Sequence") {
    for (const Json& each : part.at("pretokenizers"))
      readPreTokenizer(each);
  } else if (type == "ByteLevel") {
    prefix_space = prefix_space || part.value("add_prefix_space", false);
    if (part.value("use_regex", true))
      splitters.emplace_back(gpt2_pattern);
  } else if (type == "Digits") {
    splitters.emplace_back(part.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split" && part.at("pattern").contains("Regex") && part.value("behavior", "") == "Isolated" &&
             !part.value("invert", false)) {
    splitters.emplace_back(part.at("pattern").at("Regex").get<std::string>());
  } else {
    refuse("the pre-tokenizer " + (type.empty() ? "null" : type));
  }
}

void Tokenizer::Impl::readModel(const Json& model) {
  if (typeOf(model) != "BPE")
    refuse("a model of type " + typeOf(model));
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (model.contains(name) && !model[name].is_null() && model[name] != "")
      refuse(std::string("BPE with ") + name);
  if (model.value("byte_fallback", false))
    refuse("BPE with byte_fallback");
  ignore_merges = model.value("ignore_merges", false);
  std::size_t count = 0;
  for (const auto& [text, token] : model.at("vocab").items()) {
    const Token number = token.get<Token>();
    if (number < 0 || number > INT32_MAX)
      throw std::runtime_error("tokenizer.json: '" + text + "' has the number " + std::to_string(number));
    vocabulary[text] = number;
    count = std::max(count, std::size_t(number) + 1);
  }
  if (count > 4 * vocabulary.size() + 1024)  // else a short file would ask for much memory
    throw std::runtime_error("tokenizer.json: tokens are numbered up to " + std::to_string(count - 1) +
                             ", and there are " + std::to_string(vocabulary.size()));
  const auto characters = charactersOfBytes();
  std::map<std::string, char> byte_of;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_of[characters[byte]] = char(byte);
    const auto found = vocabulary.find(characters[byte]);
    if (found == vocabulary.end() && !model.value("unk_token", Json()).is_null())
      refuse("a token in place of the byte " + std::to_string(byte));
    of_byte[byte] = found == vocabulary.end() ? -1 : found->second;
  }
  bytes_of.resize(count);
  for (const auto& [text, token] : vocabulary) {
    std::string& bytes = bytes_of[std::size_t(token)];
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = std::size_t(1 + (static_cast<unsigned char>(text[i]) >= 0xC0));
      const auto byte = byte_of.find(text.substr(i, length));
      if (byte == byte_of.end()) {  // no token that merges make
        bytes = text;
        break;
      }
      bytes += byte->second;
      i += length;
    }
  }
  for (const Json& merge : model.at("merges")) {
    std::string left, right;
    if (merge.is_array()) {
      left = merge.at(0).get<std::string>();
      right = merge.at(1).get<std::string>();
    } else {
      const std::string text = merge.get<std::string>();
      left = text.substr(0, text.find(' '));
      right = text.substr(std::min(text.size(), left.size() + 1));
    }
    const auto a = vocabulary.find(left), b = vocabulary.find(right), made = vocabulary.find(left + right);
    if (a == vocabulary.end() || b == vocabulary.end() || made == vocabulary.end())
      throw std::runtime_error("tokenizer.json: '" + left + "' and '" + right +
                               "' are merged, and not both they and the result are tokens");
    merges.emplace(pairOf(a->second, b->second), Merge{merges.size(), made->second});
  }
}

void Tokenizer::Impl::readAdded(const Json& list) {
  for (const Json& each : list) {
    Added token{each.at("content").get<std::string>(), each.at("id").get<Token>()};
    for (const char* name : {"single_word", "lstrip", "rstrip"})
      if (each.value(name, false))
        refuse("the token '" + token.text + "' with " + name);
    if (each.value("normalized", false) && normalize)
      refuse("the token '" + token.text + "', which is looked for in normalized text");
    if (token.token < 0 || token.token > INT32_MAX || token.text.empty())
      throw std::runtime_error("tokenizer.json: an added token has the number " + std::to_string(token.token));
    if (std::size_t(token.token) >= bytes_of.size() && std::size_t(token.token) < 2 * bytes_of.size() + 1024)
      bytes_of.resize(std::size_t(token.token) + 1);
    if (std::size_t(token.token) < bytes_of.size())
      bytes_of[std::size_t(token.token)] = each.value("special", false) ? "" : token.text;
    added.push_back(std::move(token));
  }
  std::ranges::stable_sort(added, [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
}

// What stands around a single text. Not every program asks for it, so what is unknown is refused when it is asked for.
void Tokenizer::Impl::readAround(const Json& part) {
  if (part.is_null() || typeOf(part) == "ByteLevel")
    return;
  if (typeOf(part) == "Sequence") {
    for (const Json& each : part.at("processors"))
      readAround(each);
    return;
  }
  if (typeOf(part) != "TemplateProcessing") {
    knows_special = false;
    special_kind = typeOf(part);
    return;
  }
  std::vector<Token>* side = &before;
  for (const Json& piece : part.at("single")) {
    if (piece.contains("Sequence")) {
      side = &after;
      continue;
    }
    const auto& name = piece.at("SpecialToken").at("id").get_ref<const std::string&>();
    for (const Json& token : part.at("special_tokens").at(name).at("ids"))
      side->push_back(token.get<Token>());
  }
}

// One word's bytes, of which the pair that the file merges first is merged until there is none.
void Tokenizer::Impl::encodeWord(std::string_view word, std::vector<Token>& tokens) const {
  struct Part {
    Token token;
    int previous, next;  // -1: none
  };
  struct Candidate {
    std::size_t rank;
    int left, right;
    Token a, b, made;
    bool operator<(const Candidate& other) const {  // the greatest comes first
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Part> parts;
  for (const char byte : word) {
    const int at = int(parts.size());
    if (const Token token = of_byte[static_cast<unsigned char>(byte)]; token >= 0)
      parts.push_back({token, at - 1, at + 1});
  }
  if (parts.empty())
    return;
  parts.back().next = -1;
  std::priority_queue<Candidate> candidates;
  const auto offer = [&](int left, int right) {
    if (left < 0 || right < 0)
      return;
    const Token a = parts[std::size_t(left)].token, b = parts[std::size_t(right)].token;
    if (const auto found = merges.find(pairOf(a, b)); found != merges.end())
      candidates.push({found->second.rank, left, right, a, b, found->second.made});
  };
  for (int i = 0; i + 1 < int(parts.size()); ++i)
    offer(i, i + 1);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part &left = parts[std::size_t(best.left)], &right = parts[std::size_t(best.right)];
    if (left.token != best.a || right.token != best.b || left.next != best.right)
      continue;  // one of them was merged meanwhile
    left.token = best.made;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0)
      parts[std::size_t(left.next)].previous = best.left;
    offer(left.previous, best.left);
    offer(best.left, left.next);
  }
  for (int i = 0; i >= 0; i = parts[std::size_t(i)].next)
    tokens.push_back(parts[std::size_t(i)].token);
}

void Tokenizer::Impl::encodePlain(std::string_view given, std::vector<Token>& tokens) const {
  std::string text(given);
  if (normalize) {
    UErrorCode code = U_ZERO_ERROR;
    const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(code);
    check(code, "ICU");
    std::string made;
    icu::StringByteSink<std::string> sink(&made);
    nfc->normalizeUTF8(0, text, sink, nullptr, code);
    check(code, "ICU");
    text = std::move(made);
  }
  if (prefix_space && !text.starts_with(' '))
    text.insert(0, 1, ' ');
  std::vector<std::string_view> pieces{text}, cut;
  for (const Splitter& splitter : splitters) {
    cut.clear();
    for (const std::string_view piece : pieces)
      splitter(piece, cut);
    std::swap(pieces, cut);
  }
  static const auto characters = charactersOfBytes();
  for (const std::string_view piece : pieces) {
    if (ignore_merges) {
      std::string word;
      for (const char byte : piece)
        word += characters[static_cast<unsigned char>(byte)];
      if (const auto found = vocabulary.find(word); found != vocabulary.end()) {
        tokens.push_back(found->second);
        continue;
      }
    }
    encodeWord(piece, tokens);
  }
}

Tokenizer::Tokenizer(std::string_view json) : impl_(std::make_unique<Impl>()) {
  try {
    const Json file = Json::parse(json);
    impl_->readNormalizer(file.value("normalizer", Json()));
    impl_->readPreTokenizer(file.value("pre_tokenizer", Json()));
    impl_->readModel(file.at("model"));
    impl_->readAdded(file.value("added_tokens", Json::array()));
    impl_->readAround(file.value("post_processor", Json()));
    if (const Json decoder = file.value("decoder", Json()); typeOf(decoder) != "ByteLevel")
      refuse("the decoder " + (decoder.is_null() ? "null" : typeOf(decoder)));
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("tokenizer.json is damaged: ") + error.what());
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool special) const {
  const Impl& impl = *impl_;
  if (special && !impl.knows_special)
    refuse("the post-processor " + impl.special_kind);
  std::vector<Token> tokens;
  if (special)
    tokens = impl.before;
  std::size_t plain = 0;
  const auto flush = [&](std::size_t end) {
    if (end > plain)
      impl.encodePlain(text.substr(plain, end - plain), tokens);
  };
  for (std::size_t i = 0; i < text.size();) {
    const auto found = std::ranges::find_if(
        impl.added, [&](const Added& each) { return text.compare(i, each.text.size(), each.text) == 0; });
    if (found == impl.added.end()) {
      ++i;
      continue;
    }
    flush(i);
    tokens.push_back(found->token);
    plain = i += found->text.size();
  }
  flush(text.size());
  if (special)
    tokens.insert(tokens.end(), impl.after.begin(), impl.after.end());
  return tokens;
}

std::string_view Tokenizer::bytes(std::int64_t token) const {
  return token >= 0 && std::size_t(token) < impl_->bytes_of.size()
             ? std::string_view(impl_->bytes_of[std::size_t(token)])
             : std::string_view();
}

std::string Characters::add(std::string_view bytes) {
  rest_ += bytes;
  std::size_t whole = rest_.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, rest_.size()); ++back) {
    const auto byte = static_cast<unsigned char>(rest_[rest_.size() - back]);
    if (byte < 0x80)
      break;
    if (byte >= 0xC0) {  // begins a character of so many bytes
      if ((byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u) > back)
        whole -= back;
      break;
    }
  }
  std::string result = rest_.substr(0, whole);
  rest_.erase(0, whole);
  return result;
}
