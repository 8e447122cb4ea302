// A language model that `zefuse compile --llm` packed answers: no Python, no torch.
//
//   chat model.zefuse                      a conversation, a line of standard input for each message
//   chat model.zefuse --prompt "Why?"      one answer
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "language_model.h"

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Arguments {
  std::string package;
  std::optional<std::string> prompt;
  std::int64_t tokens = 128;
  std::uint64_t seed = 0;
  Sampling sampling;
  bool raw = false;
};

constexpr const char* usage =
    "usage: chat PACKAGE [--prompt TEXT] [--tokens N] [--temperature T] [--top-k N] [--top-p P] [--seed N] [--raw]\n"
    "            [--repetition-penalty P] [--no-repeat-ngram-size N] [--min-new-tokens N]\n"
    "PACKAGE is what `zefuse compile --llm` wrote. Without --prompt each line of standard input is a message.\n"
    "--temperature 0, the default, takes the likeliest token each time. --raw: no conversation around the prompt.\n";

double number(const std::string& name, const char* text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*text == 0 || *end != 0 || !(value >= least && value <= most))
    throw std::invalid_argument(name + " takes a number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

Arguments read(int count, char** words) {
  Arguments found;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--raw") {
      found.raw = true;
      continue;
    }
    if (!word.starts_with("--")) {
      if (!found.package.empty())
        throw std::invalid_argument("there are two packages, " + found.package + " and " + word);
      found.package = word;
      continue;
    }
    if (++i == count)
      throw std::invalid_argument(word + " takes a value");
    if (word == "--prompt")
      found.prompt = words[i];
    else if (word == "--tokens")
      found.tokens = std::int64_t(number(word, words[i], 1, 1e6));
    else if (word == "--temperature")
      found.sampling.temperature = number(word, words[i], 0, 1e3);
    else if (word == "--top-k")
      found.sampling.top_k = std::size_t(number(word, words[i], 0, 1e9));
    else if (word == "--top-p")
      found.sampling.top_p = number(word, words[i], 1e-9, 1);
    else if (word == "--repetition-penalty")
      found.sampling.repetition_penalty = number(word, words[i], 1e-9, 1e9);
    else if (word == "--no-repeat-ngram-size")
      found.sampling.no_repeat_ngram_size = std::size_t(number(word, words[i], 0, 1e6));
    else if (word == "--min-new-tokens")
      found.sampling.min_new_tokens = std::int64_t(number(word, words[i], 0, 1e6));
    else if (word == "--seed")
      found.seed = std::uint64_t(number(word, words[i], 0, 1e15));
    else
      throw std::invalid_argument("there is no " + word);
  }
  if (found.package.empty())
    throw std::invalid_argument("no package is named");
  return found;
}

// The tokens that stand between what the model has and its answer to `message`.
std::vector<std::int64_t> tokensOf(const LanguageModel& model, const std::string& message, bool raw, bool first) {
  const auto& texts = model.conversation();
  if (raw || !texts)
    return model.tokenizer().encode(message, first);
  return model.tokenizer().encode((first ? texts->before : texts->between.value_or("")) + message + texts->after,
                                  false);
}

// Streams an answer. Gives the token that the model does not have yet: the last one, unless it ended the answer.
std::vector<std::int64_t> answer(LanguageModel& model, std::vector<std::int64_t> tokens, const Arguments& arguments,
                                 std::mt19937_64& draws, Clock::time_point start) {
  const auto prompt = std::int64_t(tokens.size());
  model.reserve(model.length() + prompt + arguments.tokens);
  Characters characters;
  std::int64_t count = 0;
  double first = 0;
  Clock::time_point began;
  bool ended = false;
  while (!ended && count < arguments.tokens) {
    const std::int64_t token = model.next(tokens, count, arguments.sampling, draws);
    if (count++ == 0) {
      first = secondsSince(start);
      began = Clock::now();
    }
    const std::string text = characters.add(model.tokenizer().bytes(token));
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    tokens = {token};
    ended = model.ends(token);
  }
  const double rate = count > 1 ? double(count - 1) / secondsSince(began) : 0;
  std::printf("%s\n", characters.rest().c_str());
  std::fprintf(stderr, "[%lld tokens for a prompt of %lld; the first after %.2f s, %.1f tokens/s]\n", (long long)count,
               (long long)prompt, first, rate);
  return ended ? std::vector<std::int64_t>() : tokens;
}

int run(const Arguments& arguments) {
  const auto start = Clock::now();
  LanguageModel model(arguments.package);
  std::mt19937_64 draws(arguments.seed);
  if (arguments.prompt) {
    answer(model, tokensOf(model, *arguments.prompt, arguments.raw, true), arguments, draws, start);
    return 0;
  }
  std::fprintf(stderr, "loaded in %.2f s\n> ", secondsSince(start));
  std::vector<std::int64_t> pending;
  for (std::string line; std::getline(std::cin, line); std::fprintf(stderr, "> ")) {
    if (line.empty())
      continue;
    const auto asked = Clock::now();
    const bool first = model.length() == 0;
    if (!first && !arguments.raw && model.conversation() && !model.conversation()->between)
      throw std::runtime_error("this model's template takes one message alone: start again for another");
    const auto added = tokensOf(model, line, arguments.raw, first);
    pending.insert(pending.end(), added.begin(), added.end());
    pending = answer(model, std::move(pending), arguments, draws, asked);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  try {
    arguments = read(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "chat: %s\n%s", error.what(), usage);
    return 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chat: %s\n", error.what());
    return 1;
  }
}
