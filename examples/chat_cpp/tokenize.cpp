// Shows what the tokenizer does: the numbers of standard input's tokens, then the text of these tokens.
//
//   tokenize tokenizer.json [--special] < text
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "tokenizer.h"

int main(int argc, char** argv) {
  try {
    if (argc < 2)
      throw std::runtime_error("usage: tokenize tokenizer.json [--special] < text");
    std::ifstream file(argv[1], std::ios::binary);
    if (!file)
      throw std::runtime_error(std::string("no file ") + argv[1]);
    const Tokenizer tokenizer(std::string(std::istreambuf_iterator<char>(file), {}));
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    Characters characters;
    std::string again;
    for (const std::int64_t token : tokenizer.encode(text, argc > 2)) {
      std::printf("%lld ", static_cast<long long>(token));
      again += characters.add(tokenizer.bytes(token));
    }
    again += characters.rest();
    std::printf("\n");
    std::fwrite(again.data(), 1, again.size(), stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenize: %s\n", error.what());
    return 1;
  }
}
