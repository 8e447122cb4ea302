#include "lowering/native/installed_compilers.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "lowering/native/ocloc.h"

namespace zefuse {
namespace {

using std::chrono::milliseconds;

// What a command stands for now; empty: nothing that could run.
std::string identityOf(const std::string& command) {
  auto identity = [](const std::string& path) -> std::string {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      return {};
    std::ostringstream text;
    text << path << ' ' << info.st_dev << ' ' << info.st_ino << ' ' << info.st_size << ' ' << info.st_mtim.tv_sec << ' '
         << info.st_mtim.tv_nsec;
    return text.str();
  };
  if (command.find('/') != std::string::npos)
    return identity(command);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string found = identity((folder.empty() ? "." : folder) + "/" + command); !found.empty())
      return found;
  return {};
}

struct Known {
  std::mutex mutex;  // held while it is asked, so that others wait for the same answer
  bool asked = false;
  milliseconds waited{0};
  InstalledCompiler answer;
};

void ask(Known& known, const std::string& command, milliseconds deadline) {
  std::lock_guard lock(known.mutex);
  if (known.asked && (known.answer.problem.code() != Code::deadline || deadline <= known.waited))
    return;
  OclocOptions question;
  question.compiler = command;
  question.deadline = deadline;
  Result<std::string> version = Status(Code::internal, "not asked");
  std::jthread other([&] { version = oclocVersion(question); });
  Result<std::vector<std::string>> devices = oclocDevices(question);
  other.join();
  known.asked = true;
  known.waited = deadline;
  known.answer = {command, {}, {}, {}};
  if (!version.ok() || !devices.ok()) {
    known.answer.problem = version.ok() ? devices.status() : version.status();
    return;
  }
  known.answer.version = std::move(*version);
  known.answer.devices = std::move(*devices);
}

}  // namespace

std::vector<InstalledCompiler> installedCompilers(milliseconds deadline) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Known>> all;  // by identity
  const std::vector<std::string> commands = installedOclocs();
  std::vector<std::shared_ptr<Known>> known(commands.size());
  {
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < commands.size(); ++i)
      if (const std::string identity = identityOf(commands[i]); !identity.empty()) {
        std::shared_ptr<Known>& entry = all[commands[i] + " " + identity];
        if (!entry)
          entry = std::make_shared<Known>();
        known[i] = entry;
      }
  }
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < commands.size(); ++i)
      if (known[i])
        threads.emplace_back([&, i] { ask(*known[i], commands[i], deadline); });
  }
  std::vector<InstalledCompiler> compilers;
  for (const std::shared_ptr<Known>& entry : known)
    if (entry) {
      std::lock_guard lock(entry->mutex);
      if (entry->answer.problem.code() != Code::not_found)
        compilers.push_back(entry->answer);
    }
  return compilers;
}

std::string describe(const std::vector<InstalledCompiler>& compilers) {
  std::string text;
  for (const InstalledCompiler& compiler : compilers) {
    text += (text.empty() ? "" : ", ") + compiler.command;
    if (compiler.problem.ok())
      text += " " + compiler.version;
    else
      text += " (" + compiler.problem.message().substr(0, compiler.problem.message().find('\n')) + ")";
  }
  return text.empty() ? "none" : text;
}

Result<InstalledCompiler> installedCompilerFor(const std::string& device, milliseconds deadline) {
  std::vector<InstalledCompiler> compilers = installedCompilers(deadline);
  for (InstalledCompiler& compiler : compilers)
    if (std::ranges::find(compiler.devices, device) != compiler.devices.end())
      return std::move(compiler);
  return Status(Code::not_found, "no installed compiler knows " + device + "; installed: " + describe(compilers));
}

}  // namespace zefuse
