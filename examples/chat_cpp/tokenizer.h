// Byte-level BPE as a tokenizer.json describes it (GPT-2's, SmolLM's, Llama 3's, Qwen's): text to tokens and back.
//
// What the file asks for and this cannot do is refused by name when it is read, so that no text is ever split another
// way than by the package "tokenizers".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

class Tokenizer {
public:
  // Throws std::runtime_error: what is damaged or unknown in the file.
  explicit Tokenizer(std::string_view json);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  // Of UTF-8; other bytes are tokenized as bytes. `special`: with what the file puts around a text (the token that
  // begins one).
  std::vector<std::int64_t> encode(std::string_view text, bool special) const;

  // The token's bytes, which may be a part of a character. Empty for special tokens and those that the file lacks.
  std::string_view bytes(std::int64_t token) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Bytes that come piece by piece, given on in whole characters.
class Characters {
public:
  std::string add(std::string_view bytes);
  std::string rest() { return std::move(rest_); }  // of one that was not finished

private:
  std::string rest_;
};
