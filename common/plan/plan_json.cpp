#include "common/plan/plan_json.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/plan/plan_generated.h"
#include "flatbuffers/minireflect.h"

namespace zefuse {
namespace {

class JsonWriter : public flatbuffers::IterationVisitor {
public:
  std::string text;

  void StartSequence() override {
    text += '{';
    fields_.push_back(0);
  }
  void EndSequence() override {
    const bool any = fields_.back() > 0;
    fields_.pop_back();
    if (any)
      newLine();
    text += '}';
  }
  void Field(size_t, size_t, flatbuffers::ElementaryType, bool, const flatbuffers::TypeTable*, const char* name,
             const uint8_t* value) override {
    if (!value)
      return;
    if (fields_.back()++)
      text += ',';
    newLine();
    quote(name);
    text += ": ";
    elide_ = std::strcmp(name, "spirv") == 0;
  }
  void StartVector() override {
    ++vectors_;
    text += elide_ ? "\"" : "[";
  }
  void EndVector() override {
    --vectors_;
    if (elide_)
      text += std::to_string(elided_) + " words\"";
    else
      text += ']';
    elide_ = false;
    elided_ = 0;
  }
  void Element(size_t index, flatbuffers::ElementaryType, const flatbuffers::TypeTable*, const uint8_t*) override {
    if (index && !elide_)
      text += ", ";
  }
  void UType(uint8_t value, const char* name) override { named(value, name); }
  void Bool(bool value) override { text += value ? "true" : "false"; }
  void Char(int8_t value, const char* name) override { named(value, name); }
  void UChar(uint8_t value, const char* name) override { named(value, name); }
  void Short(int16_t value, const char* name) override { named(value, name); }
  void UShort(uint16_t value, const char* name) override { named(value, name); }
  void Int(int32_t value, const char* name) override { named(value, name); }
  void UInt(uint32_t value, const char* name) override {
    if (elide_)
      ++elided_;
    else
      named(value, name);
  }
  void Long(int64_t value) override { text += std::to_string(value); }
  void ULong(uint64_t value) override { text += std::to_string(value); }
  void Float(float value) override { number(value); }
  void Double(double value) override { number(value); }
  void String(const flatbuffers::String* value) override { quote(value->string_view()); }
  void Unknown(const uint8_t*) override { text += "null"; }

private:
  void newLine() {
    text += '\n';
    text.append(2 * fields_.size(), ' ');
  }
  void named(int64_t value, const char* name) {
    if (name)
      quote(name);
    else
      text += std::to_string(value);
  }
  void number(double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.17g", value);
    if (std::isfinite(value))
      text += buffer;
    else
      quote(buffer);  // JSON has no number for it
  }
  void quote(std::string_view value) {
    text += '"';
    for (unsigned char c : value) {
      if (c == '"' || c == '\\') {
        text += '\\';
        text += char(c);
      } else if (c < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", c);
        text += escape;
      } else {
        text += char(c);
      }
    }
    text += '"';
  }

  std::vector<size_t> fields_;
  int vectors_ = 0;
  bool elide_ = false;
  size_t elided_ = 0;
};

}  // namespace

std::string planToJson(std::span<const std::byte> plan) {
  const std::vector<std::byte> bytes(plan.begin(), plan.end());  // aligned
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), 32, 10'000'000);
  if (bytes.size() < 16 || !plan::VerifyPlanBuffer(verifier))
    return "{\"error\": \"these " + std::to_string(bytes.size()) + " bytes are no zefuse plan\"}\n";
  JsonWriter writer;
  flatbuffers::IterateFlatBuffer(data, plan::PlanTypeTable(), &writer);
  writer.text += '\n';
  return writer.text;
}

}  // namespace zefuse
